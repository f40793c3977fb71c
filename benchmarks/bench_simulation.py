"""How many random lives of a supervision tree does one core play in a minute, each step checked?

Expected: 110,000 to 150,000 lives of 22 inputs on average, 18 to 24 us for an input. More than half
of that is the tree's own work, the rest draws what happens and checks what holds.
"""  # noqa: D400 - a question

from collections.abc import Iterator
from typing import Final

from benchmarks.metrics import Metric, measured, no_less_than
from benchmarks.settings import Settings
from scripts.simulate.run import Simulation

SEED: Final = 1
BATCH: Final = 500
"""Schedules of one sample; half a second."""
WARM_UP: Final = 2
"""Batches that are not counted."""
PER_MINUTE: Final = no_less_than(100_000)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    simulation = Simulation(SEED)
    lives, inputs = [], []
    for batch in range(WARM_UP + settings.repeats):
        result = simulation.run(range(batch * BATCH, (batch + 1) * BATCH))
        if result.wrong:
            raise RuntimeError(f"{result.wrong} schedules of seed {SEED} are wrong: run simulate")
        if batch >= WARM_UP:
            lives.append(result.per_minute)
            inputs.append(result.inputs / result.seconds)
    yield measured("simulation.schedules", "per_min", lives, bar=PER_MINUTE)
    yield measured("simulation.inputs", "per_s", inputs)
