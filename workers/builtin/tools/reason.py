"""``reason``: a question thought about by a strategy, over branches that models work on.

The run is a part of this call: it goes on after a death of the process, and ends with the call.
What it came to is told by ``reasoning_done``; the model reads the answer.
"""

import importlib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from cmdc_runtime import plain
from cmdc_runtime.clock import now_ms
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions import Context, Tool, ToolError
from cmdc_runtime.extensions.reasoning import ReasoningStrategy
from cmdc_runtime.ids import run_of_call
from cmdc_runtime.ranges import SECONDS_MAX
from cmdc_runtime.reasoning import ReasoningResult, RunLimits
from cmdc_runtime.subagent import REASON_TOOL
from workers.builtin import reasoning as built_in
from workers.builtin.tools._driver import Driver
from workers.builtin.tools._session import META_CHARS_MAX, session_of
from workers.reasoning.inputs import RunBegun

CLOSING_S: Final = 300.0
"""For branches to end after the run's own time, before the call is cut off."""
_CUT_OFF: Final = ("timeout", "budget_exceeded", "max_steps_exceeded")
_DESCRIPTION: Final = """\
Think about a hard question with a strategy that asks models several times, compares what they \
come to and goes on from there. It costs more than an answer of your own, so use it where a first \
thought is likely to be wrong."""


class Reason(Tool):
    """The tool of one session, with the strategies that it may be called with."""

    description = _DESCRIPTION
    isolation = "task"
    effects = "idempotent"
    max_retries = 0

    def __init__(
        self,
        name: str,
        strategies: Sequence[Callable[[], ReasoningStrategy]],
        limits: RunLimits,
        *,
        forks: bool = False,
    ) -> None:
        """Make each strategy once, for its name."""
        self.name = name
        self._limits = limits
        self._forks = forks
        self._strategies = {make().name: make for make in strategies}
        if len(self._strategies) < max(1, len(strategies)):
            raise InvalidTool(f"tool {name!r}: give one strategy or more, each with its own name")
        time_s = limits.timeout
        self.timeout = SECONDS_MAX if time_s is None else min(time_s + CLOSING_S, SECONDS_MAX)
        self.parameters = _parameters(tuple(self._strategies))

    def meta(self, args: dict[str, Any]) -> str:
        """Return the question."""
        return textwrap.shorten(f"Reason: {args.get('question')}", META_CHARS_MAX, placeholder="…")

    async def execute(self, args: dict[str, Any], context: Context) -> str:
        """Run the strategy and return its answer."""
        session = session_of(context, self.name)
        chosen = str(args.get("strategy") or next(iter(self._strategies)))
        begin = RunBegun(
            run_id=run_of_call(context.call_id, context.turn),
            question=str(args["question"]),
            session_id=context.session_id,
            limits=self._limits,
            at_ms=now_ms(),
        )
        driver = Driver(self._strategies[chosen], session, forks=self._forks)
        return _told(await driver.drive(begin))


def create(  # noqa: PLR0913, PLR0917 - the fields of ``cmdc.tools.Reason``
    strategies: Sequence[str | Callable[[], ReasoningStrategy]] = ("adaptive",),
    max_steps: int = 20,
    max_parallel: int = 4,
    max_revisions: int = 3,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    timeout: float | None = None,
    fork: bool | None = None,  # noqa: FBT001 - as above
    name: str = REASON_TOOL,
) -> Tool:
    """Return the tool; ``strategies`` make a new one for each run, or name built-in ones."""
    limits = RunLimits(
        max_steps=max_steps,
        max_parallel=max_parallel,
        max_revisions=max_revisions,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        timeout=timeout,
    )
    return Reason(name, [_maker(one) for one in strategies], limits, forks=bool(fork))


def _maker(given: str | Callable[[], ReasoningStrategy]) -> Callable[[], ReasoningStrategy]:
    if not isinstance(given, str):
        return given
    create: Callable[[], ReasoningStrategy]
    create = importlib.import_module(f"{built_in.__name__}.{given}").create
    return create


def _parameters(names: Sequence[str]) -> dict[str, Any]:  # Any: a JSON Schema
    question = {
        "type": "string",
        "pattern": r"\S",
        "description": "The question, with all that is needed to answer it.",
    }
    strategy = {
        "type": "string",
        "enum": list(names),
        "default": names[0],
        "description": "How it is thought about.",
    }
    return {
        "type": "object",
        "properties": {"question": question, "strategy": strategy},
        "required": ["question"],
        "additionalProperties": False,
    }


def _told(result: ReasoningResult) -> str:
    """Return what the model reads.

    Raises:
        ToolError: there is no answer; the text says why.
    """
    why = f"{result.status}: {result.reason}" if result.reason else result.status
    if result.status == "done":
        return _text(result.answer)
    if result.status in _CUT_OFF and result.answer is not None:
        return f"{_text(result.answer)}\n\n[Cut off ({why}): this is the best answer so far.]"
    if result.status in _CUT_OFF:
        raise ToolError(f"{result.strategy} was cut off without an answer ({why})")
    if result.answer is not None:
        return f"{_text(result.answer)}\n\n[Not finished ({why}): this is the best answer so far.]"
    raise ToolError(f"{result.strategy} {why}")


def _text(answer: Any) -> str:  # Any: plain data of the strategy
    if isinstance(answer, str):
        return answer
    return plain.mended(msgspec.json.encode(answer).decode())
