"""What the daemon and the zygote load, each in a fresh interpreter."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

RUN_S = 120.0
DAEMON = "import supervisor.entry"
ZYGOTE = "import workers.zygote; from workers.preload import preload; preload([])"


@pytest.mark.parametrize("program", [DAEMON, ZYGOTE])
def test_a_start_loads_nothing_for_a_console(program):
    """Structlog takes rich along where that is installed: a fifth of a daemon's imports."""
    unwanted = "{'rich', 'pygments', 'litellm'}"
    probe = f"import sys; {program}; print(sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=RUN_S, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"
