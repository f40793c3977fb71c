"""What a strategy and its branches bring, made into what a run can keep, or refused by name."""

import re
from typing import Any, Final

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.events import (
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.extensions.reasoning import ERROR, OUTPUT, Branch, Thought
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.plain import copied, mended, short, text_problem
from cmdc_runtime.reasoning.limits import PLAIN_BYTES_MAX, PROMPT_CHARS_MAX
from cmdc_runtime.reasoning.result import ReasoningEvent
from workers.reasoning.inputs import ThoughtCame

_BROKE: Final = re.compile(r"\bmax_(?:total_tokens|cost_usd)_exceeded\b")
"""What the session of a branch, or that of the run, ends with at its limit."""


class MisuseError(Exception):
    """The strategy decided something that cannot be done; the text says what."""


class NotDeterministicError(MisuseError):
    """The strategy decides otherwise than it did before."""

    def __init__(self, what: str) -> None:
        """Say what differs."""
        super().__init__(f"strategy is not deterministic: {what}")


def thought_of(branch: Branch, came: ThoughtCame) -> Thought:
    """Return what a branch came to."""
    if came.error is not None:
        return lost(branch, mended(came.error) or "failed")
    content = mended(came.content)
    metadata = branch.metadata
    if branch.result is not None:
        try:
            output = foreign.call(lambda: _typed(content, branch.result))
        except ForeignError as error:
            why = f"its answer is not of the type that was asked for: {error}: {short(content)}"
            return lost(branch, why)
        metadata = {**metadata, OUTPUT: output}
    return Thought(str(branch.id), content, branch.parent_id, metadata=metadata)


def _typed(content: str, result: Any) -> Any:  # Any: a type, and what is of it
    of_pydantic = getattr(result, "model_validate_json", None)
    if of_pydantic is not None:
        return of_pydantic(content)
    return msgspec.json.decode(content, type=result)


def is_broke(error: str | None) -> bool:
    """Say whether a branch came to nothing for want of budget."""
    return error is not None and _BROKE.search(error) is not None


def lost(branch: Branch, why: str) -> Thought:
    """Return the thought of a branch that came to nothing."""
    metadata = {**branch.metadata, ERROR: why}
    return Thought(str(branch.id), "", branch.parent_id, metadata=metadata)


def plain(value: object, what: str) -> Any:  # Any: what was given, as data
    """Return data as it is read back.

    Raises:
        MisuseError: it is no plain data, or too much.
    """
    try:
        return copied(value, PLAIN_BYTES_MAX)
    except ValueError as error:
        raise MisuseError(f"{what}: {error}") from error


def plain_dict(value: object, what: str) -> dict[str, Any]:  # Any: what was given, as data
    """Return a dict as ``plain`` does, and refuse anything else."""
    if not isinstance(value, dict):
        raise MisuseError(f"{what}: expected a dict, got {type(value).__name__}")
    found: dict[str, Any] = plain(value, what)
    return found


def check_text(text: object, what: str) -> None:
    """Refuse what cannot be kept as text."""
    if (problem := text_problem(text, chars_max=PROMPT_CHARS_MAX)) is not None:
        raise MisuseError(f"{what}: {problem}")


def name_of(event: ReasoningEvent) -> str:
    """Return an event for people: its kind, and whose it is."""
    match event:
        case ReasoningBranch():
            return f"branch {event.branch_id!r} of prompt {short(event.prompt)}"
        case ReasoningThought() | ReasoningScore():
            return f"{event.kind} of {event.thought_id!r}"
        case ReasoningPrune():
            return f"{event.kind} of {', '.join(event.thought_ids)}"
        case ReasoningDone():
            return event.kind
