"""What the children of the tests' zygotes do; ``boot["do"]`` names one function."""

import json
import os
import signal
import sys
import threading
from pathlib import Path


def write_facts(boot):
    """Write what a test wants to know about a forked process."""
    facts = {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "threads": threading.active_count(),
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "modules": sorted(sys.modules),
        "boot": boot,
    }
    Path(boot["path"]).write_text(json.dumps(facts))


def end(boot):
    """End with the status of the test's choice."""
    os._exit(boot["status"])


def stay(boot):
    """Do nothing until somebody kills it."""
    while True:
        signal.pause()


def arrive_and_stay(boot):
    """Stay, and leave a file as a sign of that."""
    Path(boot["path"]).touch()
    stay(boot)


DO = {do.__name__: do for do in (write_facts, end, stay, arrive_and_stay)}


def main(boot):
    """Do it."""
    DO[boot["do"]](boot)
