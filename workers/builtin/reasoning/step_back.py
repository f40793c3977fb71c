"""A branch for the more general question, then one for the request. The options say more."""

from cmdc_runtime import reasoning
from workers.builtin.reasoning._chain import ChainRunner


class StepBack(ChainRunner):
    """A branch for the more general question, then one for the request."""

    name = "step_back"
    Config = reasoning.StepBack


create = StepBack
