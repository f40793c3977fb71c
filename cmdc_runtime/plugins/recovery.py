"""The options of the recovery."""

from typing import Annotated, ClassVar

from msgspec import Meta

from cmdc_runtime.model_names import check_models
from cmdc_runtime.packing import BuiltInPlugin


class Recovery(BuiltInPlugin, frozen=True, kw_only=True):
    """Takes care of tools that fail again and again, one measure after the other.

    It waits longer and longer between the attempts; then it asks another model to find another way;
    then observers are notified; then the cycle ends with a report. Each measure but the waiting is
    given one turn of the model to help. A success of the tool, or a new prompt, ends the affair.
    """

    short_name: ClassVar[str] = "recovery"
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 3
    """Attempts after the first failure of a tool before the other measures begin; those of the
    session itself and those of the model count alike."""
    backoff_base_ms: Annotated[int, Meta(ge=0, le=60_000)] = 1000
    """The wait before the first of these; it doubles from one to the next, up to a minute."""
    fallback_model: Annotated[str, Meta(min_length=1)] | None = None
    """The model that is to find another way, and stays in use; None leaves this measure out."""
    escalation_event: bool = True
    """Whether observers are notified, by ``recovery_escalated``, before the cycle is given up."""

    def __post_init__(self) -> None:
        """Refuse a model that there can't be."""
        check_models(fallback_model=self.fallback_model)
