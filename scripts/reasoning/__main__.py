"""``python -m scripts.reasoning``: what strategies make of models of a known error rate, as CSV.

Each line has what was measured, what theory predicts, and the interval around it that 999 of 1,000
measurements are in. The exit status is 1 where one is outside. No real model is asked.
``--picture`` draws them, too.
"""

import argparse
import sys
from pathlib import Path

from scripts.reasoning import measure, picture

RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def main() -> int:
    """Measure, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.reasoning", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="puzzles for each error rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", type=Path, help="an SVG to be written")
    chosen = parser.parse_args()
    games = [one for rate in RATES for one in measure.game_of_24(rate, chosen.runs, chosen.seed)]
    sums = [measure.arithmetic(rate, chosen.runs, chosen.seed) for rate in RATES]
    sys.stdout.write(measure.table([*games, *sums]))
    if chosen.picture is not None:
        picture.draw((games, sums), chosen.picture)
    return 0 if all(one.is_as_predicted for one in (*games, *sums)) else 1


if __name__ == "__main__":
    sys.exit(main())
