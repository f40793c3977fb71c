"""A chain of somebody's own: one branch for each of its texts. The options say more."""

from cmdc_runtime import reasoning
from workers.builtin.reasoning._chain import ChainRunner


class OwnChain(ChainRunner):
    """One branch for each text."""

    name = "chain"
    Config = reasoning.ChainStrategy


create = OwnChain
