"""The options of self-consistency."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInStrategy, Function
from cmdc_runtime.reasoning.chains import Text
from cmdc_runtime.reasoning.judging import WEIGH, check_scorers

SAMPLE: Final = """\
Work this out step by step, and check each step. End with one line of the form

Answer: <your answer, as short as it can be>"""
"""Asks for one sample."""


class SelfConsistency(BuiltInStrategy, frozen=True, kw_only=True):
    """Has the question answered several times, and takes the answer that most of them give.

    Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning": a majority vote over
    the answers of independent chains. We differ: 10 samples, where the paper draws 40 and finds
    most of the gain with 5 to 10; it ends as soon as the rest cannot change the majority; and the
    prompt is ours, without the paper's examples.

    Samples have to differ. The paper draws them at a temperature of 0.5 or 0.7; here they have the
    session's, which at 0 makes them all alike, and the vote one of a single sample:
    ``provider_opts={"temperature": 0.7}``, of the session or, for branches alone, of its
    ``SubAgent("general-purpose", …)``, sets it.
    """

    short_name: ClassVar[str] = "self_consistency"
    samples: Annotated[int, Meta(ge=1, le=200)] = 10
    score: Function | None = None
    """A function of a sample's text and the question to a number from 0: a vote weighs as much.
    Then all samples are waited for."""
    judge: Text | None = None
    """A model, "provider:model_id", that weighs each sample from 0 to 1, in place of ``score``."""
    judge_prompt: Text = WEIGH
    answer: Function | None = None
    """A function of a sample's text to its answer; None: what stands behind the last "answer", else
    its last line. Answers are compared by ``cmdc.reasoning.search.normalise``."""
    prompt: Text = SAMPLE
    """Asks for one sample, below the question."""

    def __post_init__(self) -> None:
        """Refuse scorers that are none."""
        check_scorers(self.score, self.judge)
