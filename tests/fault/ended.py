"""Whether a process is over, for whoever has it by psutil."""

import psutil


def has_ended(process):
    """Say whether a process is over; it may be there still, for its parent to reap."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
