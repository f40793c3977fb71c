"""The options of the adaptive strategy."""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from cmdc_runtime.packing import BuiltInStrategy
from cmdc_runtime.ranges import Share
from cmdc_runtime.reasoning.self_consistency import SelfConsistency
from cmdc_runtime.reasoning.tree_of_thoughts import TreeOfThoughts


class Adaptive(BuiltInStrategy, frozen=True, kw_only=True):
    """Begins with the cheapest strategy, and takes a dearer one where answers do not agree.

    First ``probes`` chains; where they do not agree, the rest of the samples of self-consistency;
    where too few of those agree, a tree of thoughts. A stage that the budget or the steps have no
    room for is left out: a branch is taken to cost what those so far did on average. The idea of
    stopping at agreement is that of Wang et al. 2022; no paper has this ladder.
    """

    short_name: ClassVar[str] = "adaptive"
    probes: Annotated[int, Meta(ge=1, le=20)] = 2
    """Chains of the first stage; one alone agrees with itself."""
    agreement: Share = 0.6
    """The part of the second stage's votes that is enough; the first stage has to agree in all."""
    sampling: SelfConsistency = field(default_factory=SelfConsistency)
    """The chains of both first stages, and their number in the second one."""
    tree: TreeOfThoughts = field(default_factory=TreeOfThoughts)
