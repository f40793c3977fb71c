"""The options of plugins that shape how a model works: choice, plan, thought and review.

What each chain of the reasoning asks of a model is that of the strategies.
"""

import re
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.packing import BuiltInPlugin
from cmdc_runtime.provider_options import check_models
from cmdc_runtime.reasoning.strategies import LABEL_CHARS_MAX, PHASES, Chain, check_templates
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields

# --- model router ---------------------------------------------------------------------------------

Complexity: TypeAlias = Literal["simple", "normal", "complex"]
"""How much a task asks of a model."""
RULES_MAX: Final = 100
"""Of one router: they are tried before every request."""

_Model = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0)]
_Hour = Annotated[int, Meta(ge=0, le=24)]
_Key = Annotated[str, Meta(min_length=1)]


# Positional too, here and below: rules read like sentences, ``Rule(TurnGt(5), "openai:gpt-5")``.
class RouterCondition(msgspec.Struct, frozen=True, tag_field="kind", tag=snake, metaclass=Checked):
    """Base of all conditions; as data ``TurnGt(5)`` is ``{"kind": "turn_gt", "n": 5}``."""


class TurnGt(RouterCondition, frozen=True):
    """More than ``n`` requests in the session's life, the one that is about to go counted."""

    n: _Count


class CostGt(RouterCondition, frozen=True):
    """The session has cost more than ``usd``; what has no known price has cost nothing."""

    usd: Annotated[float, Meta(ge=0)]


class TokensGt(RouterCondition, frozen=True):
    """The session has used more than ``n`` tokens."""

    n: _Count


class TokenBudgetLt(RouterCondition, frozen=True):
    """Less than ``n`` tokens are left of ``user_data["token_budget"]``; never without a budget."""

    n: _Count


class TaskComplexity(RouterCondition, frozen=True):
    """The task at hand is this complex."""

    value: Complexity


class TaskComplexityIn(RouterCondition, frozen=True):
    """The task at hand is as complex as one of these."""

    values: Annotated[tuple[Complexity, ...], Meta(min_length=1)]


class TimeOfDayIn(RouterCondition, frozen=True):
    """It is within one of these ranges of hours, UTC.

    ``(9, 17)`` is from 09:00 until 17:00, ``(22, 6)`` goes over midnight, ``(0, 24)`` is always.
    """

    ranges: Annotated[tuple[tuple[_Hour, _Hour], ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse ranges that no time is in."""
        for hours in self.ranges:
            if not _is_range(hours):
                raise ValueError(
                    f"time_of_day_in: {hours!r} is no range of hours: give two from 0 to 24, the"
                    " second one the hour after the last, (0, 24) for the whole day"
                )


class UserTier(RouterCondition, frozen=True):
    """``user_data["user_tier"]`` is this one."""

    value: str


class UserTierIn(RouterCondition, frozen=True):
    """``user_data["user_tier"]`` is one of these."""

    values: Annotated[tuple[str, ...], Meta(min_length=1)]


class UserData(RouterCondition, frozen=True):
    """``user_data[key]`` is there, and equal to ``value``."""

    key: _Key
    value: Any  # Any: the application's own


class UserDataGt(RouterCondition, frozen=True):
    """``user_data[key]`` is a number above ``n``."""

    key: _Key
    n: float


Condition: TypeAlias = (
    TurnGt
    | CostGt
    | TokensGt
    | TokenBudgetLt
    | TaskComplexity
    | TaskComplexityIn
    | TimeOfDayIn
    | UserTier
    | UserTierIn
    | UserData
    | UserDataGt
)


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, metaclass=Checked):
    """The model of the requests for which a condition holds."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    condition: Condition
    model: _Model
    provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    """Of that model, where the router switches to it; None keeps those there are."""


class ModelRouter(BuiltInPlugin, frozen=True, kw_only=True):
    """Chooses the model of each request by rules: the first one whose condition holds.

    ``ModelRouter(rules=[Rule(TaskComplexity("complex"), "openai:gpt-5")], default_model="…")``,
    with ``Rule`` and the conditions from ``cmdc_runtime.plugins.thinking``. The rules have the
    last word before each request: a model that somebody switched to in between is kept only if they
    choose none.
    """

    short_name: ClassVar[str] = "model_router"
    rules: Annotated[tuple[Rule, ...], Meta(max_length=RULES_MAX)] = ()
    """Tried in their order."""
    default_model: _Model | None = None
    """Where no rule holds; None stays with the model there is, whoever chose it."""
    default_provider_opts: dict[str, Any] | None = None  # Any: litellm's own arguments
    """As those of a rule, for the default model."""

    def __post_init__(self) -> None:
        """Refuse models that there can't be, and options of one that is not named."""
        models = {f"rules[{at}].model": rule.model for at, rule in enumerate(self.rules)}
        check_models(default_model=self.default_model, **models)
        if self.default_provider_opts is not None and self.default_model is None:
            raise ValueError(
                "default_provider_opts are those of default_model, which is not given: name the"
                " model, or leave its options out"
            )


def _is_range(hours: object) -> bool:
    match hours:
        case [int(start), int(end)]:
            return start % 24 != end % 24 or (start, end) == (0, 24)
        case _:
            return False


# --- planning -------------------------------------------------------------------------------------

DIRECTIVE: Final = """\
Before you act on this request, write down a plan for it: a Markdown checklist with one item for \
each step, in the order in which you will take them.

- [ ] first step
- [ ] second step

Keep the steps few and concrete. Then carry the plan out without waiting for a go-ahead. Whenever \
something has changed, repeat the checklist with the same titles and the new marks: [x] completed, \
[~] in progress, [!] failed, [-] skipped because it is not needed any more. Your last message \
answers the request in full."""
"""What the model reads after a prompt that wants a plan."""


class Planning(BuiltInPlugin, frozen=True, kw_only=True):
    """Has the model make a checklist before it acts, and follows the plan until it is done.

    The plan stands in the system prompt, outlives crashes and compactions, and goes to observers
    as it is made, as its steps are checked off, and when all of them are over.
    """

    short_name: ClassVar[str] = "planning"
    plan_first: bool = True
    """Whether the model is asked for a plan; else a checklist that it makes by itself is one."""
    min_prompt_length: Annotated[int, Meta(ge=0)] = 20
    """In characters; a shorter prompt wants no plan."""
    directive: Annotated[str, Meta(min_length=1)] = DIRECTIVE
    """What asks for the plan; it should name the form ``- [ ] step``."""
    max_plan_attempts: Annotated[int, Meta(ge=0, le=10)] = 2
    """How often the model is reminded when a reply has no plan; then it goes on without one."""


# --- reasoning ------------------------------------------------------------------------------------


class Reasoning(BuiltInPlugin, frozen=True, kw_only=True):
    """Has the model reason in a certain way before it answers a prompt.

    Observers get each of its texts as a thought, and the answer when it is there.
    """

    short_name: ClassVar[str] = "reasoning"
    strategy: Chain | Literal["own"] = "chain_of_thought"
    """"own": a chain of your own, whose texts are ``templates``."""
    label: Annotated[str, Meta(max_length=LABEL_CHARS_MAX)] = ""
    """What its events call the strategy; empty: as ``strategy`` does."""
    min_prompt_length: Annotated[int, Meta(ge=0)] = 0
    """In characters; a shorter prompt is answered as ever."""
    templates: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    """What the model reads in place of our words, one text for each phase of the strategy."""

    def __post_init__(self) -> None:
        """Refuse templates that are not as many as the strategy has phases."""
        check_templates(self.strategy, self.templates)

    @property
    def phases(self) -> tuple[str, ...]:
        """What the model reads in each phase."""
        return self.templates or PHASES[self.strategy]


# --- reflection -----------------------------------------------------------------------------------

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
