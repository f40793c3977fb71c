"""What the daemon and the zygote load, each in a fresh interpreter."""

import subprocess
import sys

import pytest

from cmdc_runtime.process import SWITCH_INTERVAL_S

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


def test_a_thread_that_computes_does_not_keep_the_loop_of_a_daemon_long(tmp_path):
    """What would run the loop says how long a thread keeps the interpreter from it."""
    program = """
import asyncio, sys
from supervisor.entry import main
asyncio.run = lambda loop: (loop.close(), print(sys.getswitchinterval()))
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--runtime-dir", tmp_path, "--state-dir", tmp_path],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    )

    assert float(done.stdout) == pytest.approx(SWITCH_INTERVAL_S)
