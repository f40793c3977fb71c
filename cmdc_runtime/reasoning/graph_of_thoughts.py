"""The options of the graph of thoughts: its operations, which form a graph without cycles."""

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packing import BuiltInStrategy, Function
from cmdc_runtime.reasoning.chains import Text
from cmdc_runtime.reasoning.judging import VALUE, check_scorers
from cmdc_runtime.reasons import snake

OPERATIONS_MAX: Final = 200
SPLIT: Final = """\
Do not solve this yet. Split it into {parts} parts that can be worked on independently, each so \
that somebody who reads it alone knows what to do."""
GENERATE: Final = "Work this out step by step, and write the complete result."
AGGREGATE: Final = (
    "Combine the results below into one complete result that has what is best in each."
)
REFINE: Final = """\
Below is a result so far. Check it against the task, correct every mistake, and write the complete \
result again."""

Many = Annotated[int, Meta(ge=1, le=100)]
Place = Annotated[int, Meta(ge=0, lt=OPERATIONS_MAX)]


class Operation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="op",
    tag=snake,
    metaclass=Checked,
):
    """Base of all operations: each makes thoughts of the thoughts of others."""

    inputs: tuple[Place, ...] | None = None
    """The places of the operations that it builds on, all before it; None: the one before it, of
    the first one the question."""


class Split(Operation, frozen=True, kw_only=True):
    """One branch splits the task into parts, which are thoughts of their own."""

    parts: Many = 2
    prompt: Text = SPLIT
    """It may have {parts}."""


class Select(Operation, frozen=True, kw_only=True):
    """Takes one of the thoughts, by its place among them."""

    part: Annotated[int, Meta(ge=0, le=99)] = 0


class Generate(Operation, frozen=True, kw_only=True):
    """``k`` branches for each thought, which answer the question, or the part that it is."""

    k: Many = 1
    prompt: Text = GENERATE


class Aggregate(Operation, frozen=True, kw_only=True):
    """``k`` branches that make one thought of all."""

    k: Many = 1
    prompt: Text = AGGREGATE


class Refine(Operation, frozen=True, kw_only=True):
    """``k`` branches for each thought, which make it better; it stays among the results."""

    k: Many = 1
    prompt: Text = REFINE


class Score(Operation, frozen=True, kw_only=True):
    """Scores each thought: by the graph's ``score``, or by the mean of ``votes`` judges."""

    votes: Many = 1
    prompt: Text = VALUE


class KeepBest(Operation, frozen=True, kw_only=True):
    """Keeps the ``n`` best thoughts, and prunes the others."""

    n: Many = 1


AnyOperation: TypeAlias = Split | Select | Generate | Aggregate | Refine | Score | KeepBest
_DEFAULT: Final[tuple[AnyOperation, ...]] = (
    Generate(k=3),
    Score(),
    KeepBest(n=2),
    Aggregate(),
    Refine(),
    Score(),
    KeepBest(),
)


class GraphOfThoughts(BuiltInStrategy, frozen=True, kw_only=True):
    """Thoughts that are generated, split, merged, refined, scored and kept, as a graph says.

    Besta et al. 2023, "Graph of Thoughts": a graph of operations, carried out in its order. The
    answer is the best thought of the last operation. The paper has no default graph; ours is three
    results, the two best merged, and that refined. The volume of a thought is, in the paper, the
    number of thoughts from which there is a way to it: of that answer it is 3, the two that were
    kept and the merged one. We differ: what can run at the same time does; a thought that is
    refined stays a candidate beside what came of it, where the paper draws refining as an edge of a
    thought to itself; the words of the prompts are ours. ``k`` results of one prompt differ by the
    session's temperature alone, as with ``SelfConsistency``; the paper's is 1.
    """

    short_name: ClassVar[str] = "graph_of_thoughts"
    operations: Annotated[
        tuple[AnyOperation, ...], Meta(min_length=1, max_length=OPERATIONS_MAX)
    ] = _DEFAULT
    score: Function | None = None
    """In place of judges: a function of a thought's text and the question to a number, the greater
    the better, or its "module:name"."""
    judge: Text | None = None
    """The model of judges, "provider:model_id"; None: the session's own."""

    def __post_init__(self) -> None:
        """Refuse a graph that has a cycle, and scorers that are none."""
        check_scorers(self.score, self.judge)
        for place, operation in enumerate(self.operations):
            wrong = [one for one in operation.inputs or () if one >= place]
            if wrong:
                raise ValueError(
                    f"operations[{place}] builds on operations[{wrong[0]}], which is not before it"
                )

    def inputs_of(self, place: int) -> tuple[int, ...]:
        """Return the places of what an operation builds on; none: the question."""
        given = self.operations[place].inputs
        if given is not None:
            return given
        return (place - 1,) if place else ()
