"""The functions among the options of a strategy, as something that can be called."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from cmdc_runtime.extensions.reasoning import Failed, ReasoningStrategy, Thought
from cmdc_runtime.extensions.tool import resolve
from cmdc_runtime.reasoning import search

FUNCTIONS: Final = frozenset({"answer", "score"})
"""What the options are called that take a function, or its ``"module:name"``."""

Opts = TypeVar("Opts", bound=msgspec.Struct)


class FunctionStrategy(ReasoningStrategy):
    """Base of the strategies whose options take functions."""

    def __init__(self, **options: Any) -> None:  # Any: options as they come
        """Take the options, with the functions that are given by name."""
        super().__init__(**options)
        self.opts = looked_up(self.opts)


def looked_up(opts: Opts) -> Opts:
    """Return the options of a strategy, and those within them, with their functions in place.

    Raises:
        ImportError, AttributeError: nothing is there under the name.
        TypeError: it is no function.
    """
    found = {
        name: _function(name, value) if name in FUNCTIONS else looked_up(value)
        for name, value in msgspec.structs.asdict(opts).items()
        if name in FUNCTIONS or isinstance(value, msgspec.Struct)
    }
    return msgspec.structs.replace(opts, **found)


def nothing_scored(
    scores: Mapping[str, search.Scored | None], judges: Sequence[Thought] = ()
) -> Failed | None:
    """Return how a run ends whose judges, or whose function, have scored none of its thoughts.

    None where one has a score: who failed does not count, and a thought without a score ranks
    last. Where none has, each choice would be as good as any.
    """
    if any(one is not None for one in scores.values()):
        return None
    if not judges:
        return Failed("score has scored none of the thoughts")
    errors = [one.error for one in judges if one.error is not None]
    return Failed(
        f"no judge has answered: {errors[0] if errors else 'none had a thought to score'}"
    )


# Any, twice: a user's function, or its name.
def _function(option: str, given: Any) -> Any:
    found = resolve(given) if isinstance(given, str) else given
    if found is not None and not callable(found):
        raise TypeError(f"{option} must be a function, got {type(found).__name__}")
    return found
