"""What ``create_agent`` takes: every option with its default, its unit and its bound.

To add an option: one field of ``Options`` with its bound in the annotation, and its place in
``AgentSpec`` (``spec.py``) or in ``Supervision`` (``requests.py``). ``parse`` names every wrong
field at once; nothing is coerced, so ``"5"`` is not a number of turns.
"""

import difflib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, get_type_hints, runtime_checkable

import msgspec
from msgspec import Meta

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.ids import is_session_id
from cmdc_runtime.messages import Message
from cmdc_runtime.requests import RestartType

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
Moment = Annotated[float, Meta(gt=0, le=1_000_000)]
PromptMode = Annotated[str, Meta(pattern="^(full|task|minimal|none)$")]

TOOLS_MAX: Final = 512
HISTORY_MESSAGES_MAX: Final = 100_000


@runtime_checkable
class ModelSource(Protocol):
    """An object usable as ``model=``: it knows the model's name and how to reach it."""

    def model_source(self) -> tuple[str, dict[str, object]]:
        """Return the model's name and the provider options that reach it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one agent. Times are seconds; costs are US dollars."""

    # --- agent ---
    model: Any = None  # "provider:model_id", "provider/model_id" or a ModelSource
    session_id: str | None = None
    system_prompt: str | None = None
    tools: list[Any] = []  # tools, decorated functions, classes or "module:name"
    working_dir: str = "."
    provider_opts: dict[str, Any] = {}  # passed to litellm: api_key, api_base, temperature …
    prompt_mode: PromptMode = "full"
    messages: list[Message] = []
    user_data: dict[str, Any] = {}
    group_id: str | None = None
    max_turns: Positive = 100  # requests in one cycle
    max_tokens: Positive | None = None  # of one answer; None: the provider decides
    max_queued_prompts: Count = 100
    max_parallel_tools: Positive = 8
    tool_timeout: Moment = 300.0
    tool_max_retries: Count = 2  # tools with effects "read" or "idempotent" only
    max_retries: Count = 3
    retry_base_delay: Seconds = 2.0
    retry_max_delay: Seconds = 60.0
    retry_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0  # share of the delay added at random
    stall_after: Moment = 30.0
    stall_timeout: Moment = 120.0
    # --- supervision ---
    restart: RestartType = "transient"
    max_restarts: Count = 3
    max_seconds: Moment = 5.0
    restart_delay: tuple[Seconds, Seconds] = (0.1, 5.0)
    shutdown: Seconds | None = 5.0
    start_timeout: Moment = 30.0
    max_cycle_crashes: Positive = 2
    event_buffer_size: Annotated[int, Meta(ge=0, le=1_000_000)] = 1000


_TYPES: Final[Mapping[str, Any]] = get_type_hints(Options, include_extras=True)
FIELDS: Final[tuple[str, ...]] = Options.__struct_fields__


def parse(options: Options | None, given: Mapping[str, object]) -> Options:
    """Return ``options`` with ``given`` on top, checked.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
    """
    base = {} if options is None else {name: getattr(options, name) for name in FIELDS}
    merged = {**base, **given}
    problems = [_unknown(name) for name in merged if name not in _TYPES]
    values: dict[str, Any] = {}
    for name in merged.keys() & _TYPES.keys():
        try:
            values[name] = _checked(name, merged[name])
        except (msgspec.ValidationError, TypeError) as error:
            problems.append(f"{name}: {error}, got {_short(merged[name])}")
    problems += _cross_checks(values)
    problems += _orders(values, wrong=merged.keys() - values.keys())
    if problems:
        raise InvalidOptions(sorted(problems))
    return Options(**values)


def _checked(name: str, value: object) -> object:
    if name in {"model", "tools"}:  # objects of the application: checked where they are packed
        if name == "tools" and not isinstance(value, list | tuple):
            raise TypeError("Expected a list of tools")
        return list(value) if isinstance(value, list | tuple) else value
    if name == "working_dir" and isinstance(value, os.PathLike):
        return os.fspath(value)
    return msgspec.convert(value, _TYPES[name])


def _cross_checks(values: Mapping[str, Any]) -> list[str]:
    problems: list[str] = []
    model = values.get("model")
    if model is None:
        problems.append("model: required, for example model='openai:gpt-4o-mini'")
    elif not isinstance(model, str | ModelSource):
        problems.append(f"model: expected a str or a ModelSource, got {_short(model)}")
    elif isinstance(model, str) and not _has_provider(model):
        problems.append(f"model: expected 'provider:model_id', got {model!r}")
    session_id = values.get("session_id")
    if session_id is not None and not is_session_id(session_id):
        problems.append(
            f"session_id: expected 1 to 128 of A-Z a-z 0-9 . _ : @ -, got {_short(session_id)}"
        )
    if len(values.get("tools", ())) > TOOLS_MAX:
        problems.append(f"tools: at most {TOOLS_MAX}, got {len(values['tools'])}")
    if len(values.get("messages", ())) > HISTORY_MESSAGES_MAX:
        problems.append(f"messages: at most {HISTORY_MESSAGES_MAX}")
    directory = values.get("working_dir")
    if directory is not None and not Path(directory).is_dir():
        problems.append(f"working_dir: no such directory: {directory!r}")
    return problems


def _orders(values: Mapping[str, Any], *, wrong: Collection[str]) -> list[str]:
    pairs = (("retry_base_delay", "retry_max_delay"), ("stall_after", "stall_timeout"))
    default = Options()
    problems = []
    for low, high in pairs:
        if low in wrong or high in wrong:
            continue
        lower = values.get(low, getattr(default, low))
        upper = values.get(high, getattr(default, high))
        if lower > upper:
            problems.append(f"{low}: {lower:g} is more than {high} {upper:g}")
    return problems


def _has_provider(model: str) -> bool:
    provider, mark, name = model.replace(":", "/", 1).partition("/")
    return bool(provider and mark and name)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, FIELDS, n=1)
    return f"{name}: no such option" + (f"; did you mean {near[0]}?" if near else "")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - fits one line
