"""The options of the reasoning; what each chain asks of a model is that of the strategies."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin
from cmdc_runtime.reasoning.strategies import LABEL_CHARS_MAX, PHASES, Chain, check_templates


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
