"""Points of a daemon's start, each to be seen from outside, at which a test may end it."""

import subprocess

import psutil


def begin(place):
    """Start a daemon, and do not wait for it."""
    with place.log.open("ab") as log:
        place.process = subprocess.Popen(
            place.command(),
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def has_lock(place):
    lock = place.address / "daemon.lock"
    return f'"pid":{place.process.pid},' in lock.read_text()


def takes_output(place):
    """Say whether this daemon, and none before it, listens there."""
    path = place.address / "output.sock"
    found = (one for one in psutil.Process(place.process.pid).net_connections("unix"))
    return path.exists() and any(one.laddr == str(path) for one in found)


def listens(place):
    return takes_output(place) and (place.address / "control.sock").exists()


def has_zygote(place):
    return psutil.Process(place.process.pid).children() != []


def has_agent(place):
    """Say whether a process below the zygote has begun to be an agent, or a spare."""
    daemon = psutil.Process(place.process.pid)
    return len(daemon.children(recursive=True)) > len(daemon.children())


MOMENTS = (has_lock, takes_output, listens, has_zygote)
"""Those that come within half a second."""
ALL_MOMENTS = (*MOMENTS, has_agent)
