"""The options of the reflection."""

import re
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from cmdc_runtime.model_names import check_models
from cmdc_runtime.packing import BuiltInPlugin

REVIEWER_PROMPT: Final = """\
Review the answer to the request as a strict reader who has to work with it. Is every part of the \
request met, is every claim right and every step sound, and is nothing missing or made up?"""
"""What a reviewer is asked where the options do not say."""
MAX_REVIEWS: Final = 3
"""Of one cycle, where the options do not say."""
PATTERN: Final = "re:"
"""What a pass signal begins with that is a regular expression."""

_Reviews = Annotated[int, Meta(ge=1, le=20)]
_Text = Annotated[str, Meta(min_length=1)]


class Reflection(BuiltInPlugin, frozen=True, kw_only=True):
    """Has each answer reviewed before its cycle ends, and corrected until the reviewer approves.

    Without a reviewer the model reviews its own answer as a part of the conversation, and gives it
    once more when it has approved it, so that the reply is the answer and not the approval. With
    ``reviewer_model`` or ``reviewer_subagent`` somebody else reads request and answer, apart from
    the conversation; an answer that is approved stays the reply as it is.
    """

    short_name: ClassVar[str] = "reflection"
    reviewer_prompt: _Text = REVIEWER_PROMPT
    """What to look at. How to approve, and what to do else, is added to it, unless the pass signal
    is a pattern: then it has to say how to approve."""
    reviewer_model: _Text | None = None
    """The model that reviews; None leaves it to the session's own, or to the subagent."""
    reviewer_provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    """Of that model: those of the session are not used for it."""
    reviewer_subagent: bool | str = False
    """The type of the subagent that reviews, one of the session's ``subagents``; False is none.
    Give it ``plugins=[]``: else it has those of the session, and they have a say in its review."""
    criteria: Annotated[tuple[_Text, ...], Meta(max_length=50)] = ()
    """What the answer must be besides, each in one sentence."""
    max_reviews: _Reviews | None = None
    """How often one answer is reviewed and corrected; then it passes as it is. None is
    ``max_iterations``."""
    max_iterations: _Reviews | None = None
    """Another name for ``max_reviews``, which counts if both are given. None is 3."""
    pass_signal: _Text = "APPROVED"  # noqa: S105 - it is no password
    """What approves: a reply that begins with this word, or has it on a line of its own, in any
    case. ``re:…`` is a regular expression that is found anywhere in the reply."""

    def __post_init__(self) -> None:
        """Refuse what cannot be together, and a pattern or a model that is none."""
        if self.reviewer_subagent is True or self.reviewer_subagent == "":
            raise ValueError(
                f"reviewer_subagent: {self.reviewer_subagent!r} names no subagent: give its type,"
                " or False for none"
            )
        if self.reviewer_subagent and self.reviewer_model is not None:
            raise ValueError(
                f"reviewer_subagent {self.reviewer_subagent!r} and reviewer_model"
                f" {self.reviewer_model!r} cannot both review: give one of them"
            )
        if self.reviewer_provider_opts is not None and self.reviewer_model is None:
            raise ValueError(
                "reviewer_provider_opts are those of reviewer_model, which is not given: name the"
                " model, or leave its options out"
            )
        self._refuse_bad_signal()
        check_models(reviewer_model=self.reviewer_model)

    @property
    def reviews_max(self) -> int:
        """How often one answer is reviewed at most."""
        return self.max_reviews or self.max_iterations or MAX_REVIEWS

    @property
    def pass_pattern(self) -> str | None:
        """The regular expression that approves, None where a word does."""
        signal = self.pass_signal
        return signal.removeprefix(PATTERN) if signal.startswith(PATTERN) else None

    def _refuse_bad_signal(self) -> None:
        if not self.pass_signal.strip():
            raise ValueError(f"pass_signal: {self.pass_signal!r} has no word to look for")
        if (pattern := self.pass_pattern) is None:
            return
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"pass_signal: {pattern!r} is no regular expression: {error}"
            ) from error
        if self.reviewer_prompt == REVIEWER_PROMPT:
            raise ValueError(
                f"pass_signal {self.pass_signal!r} is a pattern, which nobody can be asked to say:"
                " give a reviewer_prompt that says how to approve"
            )
