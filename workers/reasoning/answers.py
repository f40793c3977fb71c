"""What a run answers where it is cut off, and what is to be noted of its answer."""

from typing import Any, TypeAlias

from cmdc_runtime import foreign
from cmdc_runtime.extensions.reasoning import ReasoningStrategy, Thought, drained
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.lines import one_line
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.reasoning.inputs import MisuseError, plain

Noted: TypeAlias = tuple[Any, tuple[str, ...]]  # Any: plain data of the strategy
"""An answer, and lines for people about it."""


def best_answer(
    strategy: ReasoningStrategy,
    thoughts: tuple[Thought, ...],
    state: Any,  # Any: the strategy's own
) -> Noted:
    """Return the best answer so far: what the strategy says, else by the rule of all strategies."""
    try:
        best = foreign.call(lambda: strategy.best(thoughts, state))
        drained(strategy)
        return plain(best, "the best answer"), ()
    except (ForeignError, MisuseError) as error:
        best = ReasoningStrategy().best(thoughts, None)
        so = "" if best is None else ", so the best thought is the answer"
        why = one_line(str(error), LINE_CHARS_MAX)
        return best, (f"the strategy's best() failed{so}: {why}",)
