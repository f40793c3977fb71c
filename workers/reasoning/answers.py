"""What a run answers: what is best so far where it is cut off, and what is to be noted of it.

An answer is cut where it becomes an event, since one that was paid for may not be lost for its
length.
"""

import sys
from typing import Any, Final, TypeAlias

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.extensions.reasoning import ReasoningStrategy, Thought, drained
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.lines import one_line
from cmdc_runtime.reasoning.limits import PLAIN_BYTES_MAX
from cmdc_runtime.reasons import LINE_CHARS_MAX
from workers.reasoning.inputs import MisuseError, plain

NotedAnswer: TypeAlias = tuple[Any, tuple[str, ...]]  # Any: plain data of the strategy
"""An answer, and lines for people about it."""
CUT: Final = "the answer was cut"
"""What the line begins with that tells it."""


def told_answer(value: object, what: str = "the answer") -> NotedAnswer:
    """Return an answer as it is told; of what is too long and no text, the beginning of its JSON.

    Raises:
        MisuseError: it is no plain data.
    """
    found = plain(value, what, sys.maxsize)
    if isinstance(found, str):
        body, of = found.encode(), ""
    elif len(msgspec.msgpack.encode(found)) <= PLAIN_BYTES_MAX:
        return found, ()
    else:
        body, of = msgspec.json.encode(found), " of its JSON"
    if len(body) <= PLAIN_BYTES_MAX:
        return found, ()
    text = body[:PLAIN_BYTES_MAX].decode(errors="ignore")
    note = f"{CUT}: it is the first {len(text.encode()):,} of {len(body):,} bytes{of}"
    return text, (note,)


def best_answer(
    strategy: ReasoningStrategy,
    thoughts: tuple[Thought, ...],
    state: Any,  # Any: the strategy's own
) -> NotedAnswer:
    """Return the best answer so far: what the strategy says, else by the rule of all strategies."""
    try:
        best = foreign.call(lambda: strategy.best(thoughts, state))
        drained(strategy)
        return told_answer(best, "the best answer")
    except (ForeignError, MisuseError) as error:
        best, notes = told_answer(ReasoningStrategy().best(thoughts, None))
        so = "" if best is None else ", so the best thought is the answer"
        why = one_line(str(error), LINE_CHARS_MAX)
        return best, (f"the strategy's best() failed{so}: {why}", *notes)
