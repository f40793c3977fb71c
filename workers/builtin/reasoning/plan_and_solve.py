"""One branch that plans, and carries its plan out. The options say more."""

from cmdc_runtime import reasoning
from workers.builtin.reasoning._chain import ChainRunner


class PlanAndSolve(ChainRunner):
    """One branch that plans, and carries its plan out."""

    name = "plan_and_solve"
    Config = reasoning.PlanAndSolve


create = PlanAndSolve
