"""The options of the chains, and what each asks of a model: one thought leads to the next.

The Reasoning plugin asks the same within one session. To add a chain: its name in ``Chain``, its
phases in ``PHASES``, a class here, and a strategy in ``workers.builtin.reasoning``.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from cmdc_runtime.packing import BuiltInStrategy

Chain: TypeAlias = Literal["chain_of_thought", "plan_and_solve", "step_back"]

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

PHASES: Final[Mapping[Chain, tuple[str, ...]]] = MappingProxyType(
    {
        "chain_of_thought": (_CHAIN_OF_THOUGHT,),
        "plan_and_solve": (_PLAN_AND_SOLVE,),
        "step_back": (_STEP_BACK, _STEP_FORWARD),
    }
)
"""What the model reads in each phase of a chain: after the prompt, then after each answer.

The ideas are those of Wei et al. 2022 and Kojima et al. 2022 (chain of thought, without examples),
Wang et al. 2023 (plan and solve) and Zheng et al. 2023 (step back); the words are ours.
"""

OWN: Final = "own"
"""What the plugin ``Reasoning`` calls a chain that is none of ours."""
CHAIN_PLUGIN: Final = "reasoning"
"""The plugin that has a session reason by a chain."""
LABEL_CHARS_MAX: Final = 64
"""Of the name of somebody's own chain."""
_PAIR: Final = 2
Text = Annotated[str, Meta(min_length=1, max_length=100_000)]
"""A text of a prompt."""


class ChainStrategy(BuiltInStrategy, frozen=True, kw_only=True):
    """Base of the chains, and of your own: a subclass whose ``templates`` have its texts.

    As ``reasoning_strategy`` a chain runs inside the session, as the plugin ``Reasoning`` does it.
    """

    short_name: ClassVar[str] = "chain"
    chain: ClassVar[str] = ""
    """Which of ours it is; empty for your own."""
    templates: tuple[Text, ...] | None = None
    """What the model reads, one text for each phase; None: our words."""

    def __post_init__(self) -> None:
        """Refuse templates that are not as many as the chain has phases, or not there."""
        check_templates(self.chain, self.templates)

    @property
    def phases(self) -> tuple[str, ...]:
        """What the model reads in each phase."""
        return self.templates or PHASES[self.chain]  # type: ignore[index]  # checked above

    def to_options(self) -> dict[str, Any]:  # Any: as its base has it
        """Return the options as they travel: those of your own chain are its texts."""
        return super().to_options() if self.chain else {"templates": list(self.phases)}


class ChainOfThought(ChainStrategy, frozen=True, kw_only=True):
    """One branch that reasons step by step.

    Wei et al. 2022, in Kojima et al.'s form without examples (2022). We differ: Kojima et al. ask a
    second time, with the reasoning above "Therefore, the answer is", to have the answer alone; here
    the answer is all of the branch's text, and a strategy that compares answers reads it from the
    end (``search.final_answer``). The words of the prompt are ours, and not "Let's think step by
    step".
    """

    short_name: ClassVar[str] = "chain_of_thought"
    chain: ClassVar[str] = "chain_of_thought"


class PlanAndSolve(ChainStrategy, frozen=True, kw_only=True):
    """One branch that makes a plan first, and carries it out.

    Wang et al. 2023, "plan-and-solve plus": with the quantities written down and the calculation
    checked. We differ as ``ChainOfThought`` does: the words are ours, no second prompt extracts the
    answer, which is all of its text.
    """

    short_name: ClassVar[str] = "plan_and_solve"
    chain: ClassVar[str] = "plan_and_solve"


class StepBack(ChainStrategy, frozen=True, kw_only=True):
    """A branch for the more general question, then one that answers the request with it.

    Zheng et al. 2023. We differ: there the first answer is looked up in documents where there are
    some, here the model knows it, or has tools; and the prompts are ours, without the paper's
    examples.
    """

    short_name: ClassVar[str] = "step_back"
    chain: ClassVar[str] = "step_back"


def check_templates(chain: str, templates: tuple[str, ...] | None) -> None:
    """Refuse templates that are not as many as the chain has phases; another one needs some.

    Raises:
        ValueError: it says how many there should be.
    """
    phases = {str(name): texts for name, texts in PHASES.items()}.get(chain)
    if chain in {"", OWN} and not templates:
        raise ValueError("templates: give the texts of your own chain, one for each phase")
    if templates is None or phases is None:  # an unknown chain is refused by its type
        return
    if len(templates) != len(phases):
        raise ValueError(
            f"templates: {len(templates)} given, but {chain!r} has {len(phases)}"
            " phases: give one text for each, in their order"
        )


def chain_of(given: object) -> ChainStrategy | None:
    """Return the chain that a session's strategy is, None where its branches are sessions.

    ``"module:Class"`` is looked up where it can be imported here.

    Raises:
        InvalidOptions: its options are wrong.
    """
    options: Mapping[str, Any] = {}  # Any: options as they come
    if isinstance(given, tuple) and len(given) == _PAIR and isinstance(given[1], Mapping):
        given, options = given
    if isinstance(given, str):
        given = _CHAINS.get(given) or _imported(given)
    if isinstance(given, ChainStrategy):
        return None if options else given
    if isinstance(given, type) and issubclass(given, ChainStrategy):
        return given(**options)
    return None


def _imported(reference: str) -> object:
    module, _, name = reference.partition(":")
    if not name:
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except Exception:  # noqa: BLE001 - it may be there where the daemon runs, which says what is wrong
        return None


_CHAINS: Final = {one.short_name: one for one in (ChainOfThought, PlanAndSolve, StepBack)}
