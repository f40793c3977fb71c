"""The options of self-refinement."""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.packing import BuiltInStrategy
from cmdc_runtime.reasoning.chains import Text

STOP: Final = "NOTHING TO IMPROVE"
"""What feedback says that finds nothing."""
DRAFT: Final = "Answer this in full."
"""Asks for the draft."""
FEEDBACK: Final = """\
Review the answer below. Name each concrete weakness with the place where it is and what would be \
better: mistakes of fact or reasoning, what is missing, what is unclear. Do not rewrite it. \
If there is nothing worth changing, write only: {stop}"""
"""Asks for feedback."""
REFINE: Final = """\
You have answered this before, and have feedback on it. Write the answer again, in full, \
with every point of the feedback dealt with; what was good stays as it is."""
"""Asks for a better answer."""


class SelfRefine(BuiltInStrategy, frozen=True, kw_only=True):
    """A draft, feedback on it, a better draft, until the feedback finds nothing or the limit.

    Madaan et al. 2023, "Self-Refine": one model in three roles, which sees all earlier drafts and
    feedback. We differ: up to 3 refinements, as many as a run may have unless it says otherwise,
    where the paper has up to 4; feedback is text without scores; and the words of the prompts are
    ours, the same for every task and without examples, where the paper has some for each. The
    paper's temperature is 0.7, here it is the session's.
    """

    short_name: ClassVar[str] = "self_refine"
    revisions: Annotated[int, Meta(ge=0, le=50)] = 3
    """At most; the run's ``max_revisions`` bounds them too."""
    stop: Annotated[str, Meta(min_length=1, max_length=200)] = STOP
    """Feedback that has it, in whatever case, ends the loop."""
    draft_prompt: Text = DRAFT
    feedback_prompt: Text = FEEDBACK
    """It may have {stop}."""
    refine_prompt: Text = REFINE
