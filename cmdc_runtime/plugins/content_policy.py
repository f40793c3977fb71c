"""The options of the content policy, and what a judge says."""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.model_names import check_models
from cmdc_runtime.packing import BuiltInPlugin, Function

JUDGE_TIMEOUT_S_MAX: Final = 600.0
"""A user waits meanwhile."""
RUBRIC_CHARS_MAX: Final = 20_000
KEYWORDS_MAX: Final = 1000
KEYWORD_CHARS_MAX: Final = 200

Policy: TypeAlias = Literal[
    "instruction_subversion", "harmful_content", "off_topic", "brand_competitor"
]
"""What a message may be against; a ``judge_fn`` may have words of its own."""
Keywords: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=KEYWORD_CHARS_MAX)], ...],
    Meta(max_length=KEYWORDS_MAX),
]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """What a judge says of one message."""

    compliance_status: Literal["compliant", "non-compliant"]
    evaluation_summary: str = ""
    """Why, in a sentence."""
    triggered_policies: tuple[str, ...] = ()


class ContentPolicy(BuiltInPlugin, frozen=True, kw_only=True):
    """Judges what a user says before the model sees it, and ends the cycle where it may not be.

    Each message is judged once: by ``judge_fn``, else by ``judge_model``, else by a heuristic that
    knows common phrases of subversion and the names of competitors.
    """

    short_name: ClassVar[str] = "content_policy"
    judge_model: Annotated[str, Meta(min_length=1)] | None = None
    """A model that is asked for a verdict; the session pays for it."""
    judge_provider_opts: dict[str, Any] = msgspec.field(  # Any: litellm's own arguments
        default_factory=lambda: {"temperature": 0.0}
    )
    judge_timeout: Annotated[float, Meta(gt=0, le=JUDGE_TIMEOUT_S_MAX)] = 8.0
    """Seconds; a judge that takes longer has failed."""
    custom_rubric: Annotated[str, Meta(max_length=RUBRIC_CHARS_MAX)] = ""
    """What ``judge_model`` reads besides: what is on topic, what else is not allowed."""
    brand_keywords: Keywords = ()
    """Names of one's own, which ``judge_model`` protects."""
    competitor_keywords: Keywords = ()
    """Names of competitors, for ``judge_model``; the heuristic does not let them pass."""
    fail_open: bool = True
    """Whether a message that could not be judged passes."""
    judge_fn: Function | None = None
    """``judge_fn(text, context)``, sync or async, with the plugin's context: True lets the message
    pass, False does not; or a ``Verdict``, as a dict or a Struct of its fields."""

    def __post_init__(self) -> None:
        """Refuse a model that there can't be."""
        check_models(judge_model=self.judge_model)
