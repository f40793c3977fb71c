"""The command line of the tests' environment, run at a daemon that a test names."""

import os
import subprocess
import sys
from pathlib import Path

CMDC = Path(sys.executable).with_name("cmdc")
CLI_S = 60.0


def command(address, *arguments):
    """Run the command line at a daemon to its end; return its output."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    done = subprocess.run(
        [CMDC, *arguments],
        env=ours | {"CMDC_ADDRESS": str(address)},
        capture_output=True,
        text=True,
        timeout=CLI_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout
