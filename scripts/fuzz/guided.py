"""Inputs that an engine breeds by the coverage that they reach, where atheris is installed.

``python -m scripts.fuzz.guided TARGET RUNS SEED`` drives one target; ``guide`` runs that apart and
returns what it says, since the engine ends its process.
"""

import subprocess
import sys
from typing import Final

from scripts.fuzz.entropy import Bred

LIMITS: Final = (
    "-rss_limit_mb=2048",
    "-timeout=10",
    "-max_len=4096",
    "-len_control=0",
    "-print_final_stats=1",
)
"""Of the engine: memory, seconds for an input, its bytes."""


def is_installed() -> bool:
    """Say whether the engine is here: it installs on few platforms."""
    found = subprocess.run(
        [sys.executable, "-c", "import atheris"], check=False, capture_output=True
    )
    return found.returncode == 0


def guide(target: str, runs: int, seed: int) -> tuple[int, str]:
    """Breed ``runs`` inputs for a target; return the exit status and what was said."""
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "scripts.fuzz.guided", target, str(runs), str(seed)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stdout


def main() -> None:
    """Drive one target; the engine ends the process."""
    import atheris  # noqa: PLC0415 - optional

    name, runs, seed = sys.argv[1:]
    with atheris.instrument_imports(include=["cmdc_runtime", "supervisor", "workers"]):
        from scripts.fuzz.targets import TARGETS  # noqa: PLC0415 - imports under the instruments
    target = next(one for one in TARGETS if one.name == name)
    with target.open() as try_one:

        def take(data: bytes) -> None:
            try_one(Bred(data))

        words = [sys.argv[0], f"-runs={runs}", f"-seed={seed}", *LIMITS]
        atheris.Setup(words, take)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
