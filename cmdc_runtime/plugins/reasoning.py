"""The options of the reasoning, and what each strategy asks of a model.

To add a strategy: its name in ``Strategy``, and its phases in ``STRATEGIES``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from cmdc_runtime.packing import BuiltInPlugin

Strategy: TypeAlias = Literal["chain_of_thought", "plan_and_solve", "step_back"]

_CHAIN_OF_THOUGHT: Final = """\
Work this out step by step before you answer. Write each step down with what it rests on and what \
follows from it, and look at it once more before you go on. Then give your answer, clearly set \
apart from the steps."""
_PLAN_AND_SOLVE: Final = """\
Before you answer, make sure that you have understood what is asked. Write down what is known and \
what is wanted, with every quantity that matters. Make a plan that leads from one to the other, \
then carry it out step by step; check each calculation and each intermediate result before you use \
it. End with your answer, clearly set apart."""
_STEP_BACK: Final = """\
Do not answer this yet. Take a step back: which more general question lies behind it, about the \
principles, concepts or facts that it is a case of? State that question, and answer it."""
_STEP_FORWARD: Final = """\
Now return to the request itself. Reason from what you have just laid out to the case at hand, and \
give your answer in full, so that it can be understood by somebody who reads nothing else."""

STRATEGIES: Final[Mapping[Strategy, tuple[str, ...]]] = MappingProxyType(
    {
        "chain_of_thought": (_CHAIN_OF_THOUGHT,),
        "plan_and_solve": (_PLAN_AND_SOLVE,),
        "step_back": (_STEP_BACK, _STEP_FORWARD),
    }
)
"""What the model reads in each phase of a strategy: after the prompt, then after each answer.

The ideas are those of Wei et al. 2022 and Kojima et al. 2022 (chain of thought, without examples),
Wang et al. 2023 (plan and solve) and Zheng et al. 2023 (step back); the words are ours.
"""


class Reasoning(BuiltInPlugin, frozen=True, kw_only=True):
    """Has the model reason in a certain way before it answers a prompt.

    Observers get each of its texts as a thought, and the answer when it is there.
    """

    short_name: ClassVar[str] = "reasoning"
    strategy: Strategy = "chain_of_thought"
    min_prompt_length: Annotated[int, Meta(ge=0)] = 0
    """In characters; a shorter prompt is answered as ever."""
    templates: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    """What the model reads in place of our words, one text for each phase of the strategy."""

    def __post_init__(self) -> None:
        """Refuse templates that are not as many as the strategy has phases."""
        phases = STRATEGIES.get(self.strategy)
        if self.templates is None or phases is None:  # an unknown strategy is refused by its type
            return
        if len(self.templates) != len(phases):
            raise ValueError(
                f"templates: {len(self.templates)} given, but {self.strategy!r} has {len(phases)}"
                " phases: give one text for each, in their order"
            )

    @property
    def phases(self) -> tuple[str, ...]:
        """What the model reads in each phase."""
        return STRATEGIES[self.strategy] if self.templates is None else self.templates
