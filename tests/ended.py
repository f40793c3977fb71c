"""Whether a process is over, for whoever has it by psutil or by its pid."""

import psutil


def has_ended(process):
    """Say whether a process is over; it may be there still, for its parent to reap."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return not found.is_running() or found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
