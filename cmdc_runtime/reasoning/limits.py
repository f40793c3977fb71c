"""How far a run of a strategy may go, and the tool that runs strategies by name.

The tool is ``tools=[cmdc.tools.Reason(["tree_of_thoughts"])]``. It stands here since a session's
own strategy and ``Runner`` are calls of it, too.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked, Cost, Count, Moment, Positive, misfit
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.ids import ToolName
from cmdc_runtime.packing import STRATEGY_KEY, BuiltIn, strategy_option
from cmdc_runtime.subagent import REASON_TOOL

# --- limits ---------------------------------------------------------------------------------------

NODES_MAX: Final = 2_000
"""Thoughts and branches of one run, whatever its steps."""
PROMPT_CHARS_MAX: Final = 1_000_000
"""Of one branch's prompt, feedback included, and of one thought of the strategy's own."""
PLAIN_BYTES_MAX: Final = 256 * 1024
"""Of a run's answer, which is cut there, and of what is said beside a branch, a thought or a score,
which is refused."""
SCORE_MAX: Final = 1e9
"""Of a score, and below 0."""
NODE_ID: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What may name a thought or a branch, as a regular expression."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What ends a run: each gives it a status of its own."""

    max_steps: Positive = 20
    """Decisions of the strategy but ``Done`` and ``Failed``."""
    max_parallel: Positive = 4
    """Branches at a time."""
    max_revisions: Count = 3
    """``Revise`` decisions; one more ends the run as too many steps do."""
    budget_usd: Cost | None = None
    """Of all branches together. A branch of unknown price, and one that ends in the middle of a
    request, counts with all that was reserved for it."""
    budget_tokens: Positive | None = None
    """As above."""
    timeout: Moment | None = None
    """In seconds, from the beginning, whatever process dies meanwhile."""


# --- the tool -------------------------------------------------------------------------------------

STRATEGIES_MAX: Final = 32
StrategyName = Annotated[str, Meta(pattern="^[a-z0-9_-]{1,64}$")]


class Reason(BuiltIn, frozen=True, kw_only=True):
    """Lets the model have a question thought about by a strategy, over branches of the session.

    A strategy is given as its name, one of ``cmdc.reasoning``, a class, an instance, ``(class,
    options)`` or ``"module:Class"``; the model chooses among several. Variants of one class are
    given as a dict, by the names that the model and events have for them. The other fields bound
    each run, as those of ``cmdc.reasoning.RunLimits``.
    """

    short_name: ClassVar[str] = "reason"
    strategies: (
        Annotated[Sequence[Any], Meta(min_length=1, max_length=STRATEGIES_MAX)]
        | Annotated[dict[StrategyName, Any], Meta(min_length=1, max_length=STRATEGIES_MAX)]
    ) = ("adaptive",)
    max_steps: Positive = 20
    max_parallel: Positive = 4
    max_revisions: Count = 3
    budget_usd: Cost | None = None
    budget_tokens: Positive | None = None
    timeout: Moment | None = None
    """Seconds; what is best then is the answer."""
    fork: bool | None = None
    """Whether each branch begins with the session's conversation, as those do that say so
    themselves. None: where the strategy is the session's own, or ``Runner``'s in a session that is
    there; not where the model calls the tool, which puts into the question what is needed."""
    name: ToolName = REASON_TOOL
    """What the model calls it."""

    def to_options(self) -> dict[str, Any]:  # Any: whatever the options are
        """Return the options with the strategies packed.

        Raises:
            InvalidOptions: a strategy is none, breaks the contract or cannot travel, two have one
                name, or another option is wrong: ``problems`` has all of it.
        """
        problems: list[str] = []
        packed = _packed(self.strategies, problems)
        for field in msgspec.structs.fields(Reason):
            value = packed if field.name == "strategies" else getattr(self, field.name)
            try:
                msgspec.convert(value, field.type)
            except (TypeError, ValueError) as error:  # a ValidationError is one
                why = misfit(str(error), field.type, value, field.name)
                problems.append(f"{field.name}: {why}")
        if problems:
            raise InvalidOptions(problems)
        bare = msgspec.structs.replace(self, strategies=packed)
        options: dict[str, Any] = msgspec.to_builtins(bare)
        return options | {"strategies": packed}


# Any: strategies as they were given, and as they travel.
def _packed(given: Any, problems: list[str]) -> Any:
    """Return strategies as they travel, in the form that they have; what is wrong is added."""
    if isinstance(given, Mapping):
        return {name: _one(one, f"strategies[{name!r}]", problems) for name, one in given.items()}
    if not isinstance(given, list | tuple):
        return given
    packed = [_one(one, f"strategies[{at}]", problems) for at, one in enumerate(given)]
    names = [one[STRATEGY_KEY]["label"] for one in packed if one is not None]
    problems += [
        f"strategies: {names.count(one)} are named {one!r}: give them as a dict, each by a name of"
        " its own: strategies={'quick': …, 'deep': …}"
        for one in dict.fromkeys(names)
        if names.count(one) > 1
    ]
    return packed


def _one(given: object, label: str, problems: list[str]) -> dict[str, Any] | None:
    try:
        return strategy_option(given, label)
    except InvalidOptions as error:
        problems += error.problems
        return None
