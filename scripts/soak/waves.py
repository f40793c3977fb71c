"""A strategy whose answer does not depend on any one of its branches: nine, in three waves.

The branches of a wave are asked the same, and what most of them say counts. So a run in which one
of them dies comes to what it comes to without that.
"""

from collections import Counter
from typing import Any, Final

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.reasoning import Decided, ReasoningContext
from scripts.soak.model import prompt_text

WAVES: Final = 3
WIDTH: Final = 3
BRANCHES: Final = WAVES * WIDTH
LATE_S: Final = 0.1
"""How long an answer takes to begin, so that who dies meanwhile dies of a branch at work."""


class Waves(cmdc.ReasoningStrategy):
    """Asks a wave of branches, takes what most say, and goes on with the next one."""

    name = "waves"

    def init(self, opts: Any, context: ReasoningContext) -> Any:  # noqa: ARG002 - the contract
        """Begin with no wave's answer (Any: the contract's)."""
        return ()

    def step(self, state: Any, context: ReasoningContext) -> Decided:  # noqa: ARG002 - the contract
        """Ask the next wave."""
        return _wave(state)

    def aggregate(self, thoughts: list[cmdc.Thought], state: Any) -> Decided:  # Any: the contract's
        """Take what most of a wave say; who has failed says nothing."""
        said = Counter(one.content for one in thoughts if one.error is None)
        if not said:
            return cmdc.Failed("nobody of a wave has an answer")
        answers = (*state, said.most_common(1)[0][0])
        if len(answers) == WAVES:
            return cmdc.Done(" ".join(answers))
        return _wave(answers), answers


def _wave(answers: tuple[str, ...]) -> list[cmdc.Branch]:
    text = prompt_text(f"wave{len(answers)}", late_s=LATE_S)
    return [cmdc.Branch(text, id=f"w{len(answers)}.{number}") for number in range(WIDTH)]
