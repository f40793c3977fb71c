"""The options of the model router: rules, and the conditions that they hang on."""

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.model_names import check_models
from cmdc_runtime.packing import BuiltInPlugin
from cmdc_runtime.reasons import snake
from cmdc_runtime.redaction import printed, printed_fields

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
    with ``Rule`` and the conditions from ``cmdc_runtime.plugins.model_router``. The rules have the
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
