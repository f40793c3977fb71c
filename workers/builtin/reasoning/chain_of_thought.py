"""One branch that reasons step by step. The options say more."""

from cmdc_runtime import reasoning
from workers.builtin.reasoning._chain import ChainRunner


class ChainOfThought(ChainRunner):
    """One branch that reasons step by step."""

    name = "chain_of_thought"
    Config = reasoning.ChainOfThought


create = ChainOfThought
