"""The options of the tree of thoughts."""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInStrategy, Function
from cmdc_runtime.reasoning.chains import Text
from cmdc_runtime.reasoning.judging import VALUE, VOTE, check_scorers

STEP: Final = """\
This is worked out in {depth} steps, and you take step {step}. Build on what is there so far. \
Write this one step alone, short and complete, and go no further."""
"""Asks for one next step."""
LAST: Final = """\
This is worked out in {depth} steps, and you take the last one. Build on what is there so far, and \
write the complete answer."""
"""Asks for the last step."""
PROPOSE: Final = """\
This is worked out in {depth} steps, and the next one is step {step}. Propose up to {candidates} \
different ways to take this one step, each short, complete and in itself, without going further."""
"""Asks for several next steps in one answer."""


class TreeOfThoughts(BuiltInStrategy, frozen=True, kw_only=True):
    """Searches a tree of partial solutions: candidates for each step, scored, the best pursued.

    Yao et al. 2023, "Tree of Thoughts". The defaults are those of its creative writing: two steps,
    five samples each, five votes, the best one kept. Its Game of 24 is ``depth=3, breadth=5,
    generate="propose", scoring="value", votes=3``, its crosswords ``search="dfs"`` with 100 steps
    (``max_steps``).

    We differ: a value is 1 to 10 and the judges' mean counts, where the paper's Game of 24 maps
    sure, likely and impossible to 20, 1 and 0.001 and adds them up. Depth-first search ends with
    the first complete path, and begins at each node with its best candidate. "beam" is ours, and so
    are the words of all prompts, which have no examples. Where a level has no candidate, or no
    judge answers, the run has failed, with the best of the level before.

    Candidates that are sampled, and votes, have to differ. The paper takes a temperature of 0.7;
    here they have the session's, as with ``SelfConsistency``: at 0 all samples are alike, so that
    ``generate="propose"`` is the way to have several.
    """

    short_name: ClassVar[str] = "tree_of_thoughts"
    search: Literal["bfs", "dfs", "beam"] = "bfs"
    """How: "bfs" keeps the ``breadth`` best candidates of a level; "beam" does so by the sum of the
    scores on the path; "dfs" follows the best candidate, and goes back where all are below
    ``threshold``."""
    depth: Annotated[int, Meta(ge=1, le=50)] = 2
    """Steps from the question to the answer."""
    breadth: Annotated[int, Meta(ge=1, le=50)] = 1
    """Thoughts that are kept at each level; not for "dfs"."""
    candidates: Annotated[int, Meta(ge=1, le=50)] = 5
    """For each thought that is pursued."""
    generate: Literal["sample", "propose"] = "sample"
    """Whether each candidate is a branch of its own, or one branch proposes all of them."""
    scoring: Literal["value", "vote"] = "vote"
    """Whether judges score each candidate by itself, or each chooses the best of a level."""
    votes: Annotated[int, Meta(ge=1, le=50)] = 5
    """Judges: of each candidate, or of each level."""
    score: Function | None = None
    """In place of judges: a function of the path's text and the question to a number, the greater
    the better, or its "module:name"."""
    judge: Text | None = None
    """The model that judges, "provider:model_id"; None: the session's own."""
    threshold: float = 0.5
    """For "dfs": a candidate that is scored below is given up. Judges score from 0 to 1."""
    step_prompt: Text = STEP
    """Takes the place of our words; it may have {step}, {depth} and {candidates}."""
    last_prompt: Text = LAST
    propose_prompt: Text = PROPOSE
    value_prompt: Text = VALUE
    vote_prompt: Text = VOTE

    def __post_init__(self) -> None:
        """Refuse scorers that are none."""
        check_scorers(self.score, self.judge)
