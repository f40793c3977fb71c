"""Programs of the how-to pages, each in a process of its own, as a reader runs them."""

import os
import subprocess
import sys


def run_program(daemon, folder, text, timeout_s):
    """Return how a program ended that uses the daemon; it is written and run in the folder."""
    program = folder / "program.py"
    program.write_text(text)
    return subprocess.run(
        [sys.executable, str(program)],
        env=environment(daemon),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def environment(daemon):
    """Return the variables of a program that is to find this daemon and nothing else of ours."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
    return kept | {"CMDC_ADDRESS": str(daemon.address)}
