"""``python -m supervisor.stopping``: what the unit runs before and after the daemon's end.

systemd signals the daemon alone (``KillMode=process``), because ``systemctl restart``, an upgrade
and a crash are to end no agent. So two things are left to do. Before a restart the daemon is asked
by SIGUSR2 to leave its agents to the next one, and its end is awaited; a plain stop is left to
systemd's SIGTERM, which ends all of them. After a plain stop what a broken daemon has left is
killed. What systemd is about to do only systemd knows, so it is asked; where it does not answer,
the daemon is stopped, and the next one goes on with its sessions in new processes.
"""

import os
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

ASK_S: Final = 5.0
"""For systemd to say what its jobs are."""
LEAVE_S: Final = 20.0
"""For the daemon to write down what it has and end; SIGTERM follows."""
AFTER: Final = "after"
"""The argument of the run behind the daemon's end."""
_UNIT: Final = re.compile(r"/([^/]+\.service)(?:/|$)")
_MOUNTS: Final = {
    "": (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")),
    "name=systemd": (Path("/sys/fs/cgroup/systemd"),),
}
"""Where the hierarchies are in which systemd keeps units, by their name in /proc/self/cgroup."""


def main() -> None:
    """Do what is to be done before a stop, or behind it; never fails."""
    cgroups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    job = job_of(cgroups, ask_jobs(is_user="/user@" in cgroups))
    main_pid = os.environ.get("MAINPID", "")
    if AFTER in sys.argv[1:]:
        if job == "stop":
            end_rest(cgroups)
    elif job == "restart" and main_pid.isdecimal():
        leave(int(main_pid))


def job_of(cgroups: str, jobs: str) -> str:
    """Return what systemd is doing with the unit of a process with these cgroups, or nothing.

    Pure; ``jobs`` is what ``systemctl list-jobs`` prints: number, unit, type and state.
    """
    units = _UNIT.findall(cgroups)
    words = [line.split() for line in jobs.splitlines()]
    types = {line[1]: line[2] for line in words if len(line) > 2}  # noqa: PLR2004 - see above
    return types.get(units[-1], "") if units else ""


def ask_jobs(*, is_user: bool) -> str:
    """Return systemd's jobs, nothing where it does not say."""
    scope = ["--user"] if is_user else []
    try:
        listed = subprocess.run(  # noqa: S603 - our words
            ["systemctl", *scope, "list-jobs", "--no-legend", "--no-pager", "--full"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"systemd was not asked: {error}\n")
        return ""
    return listed.stdout


def leave(pid: int) -> None:
    """Have the daemon leave its agents to the next one, and wait until it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
        signal.pidfd_send_signal(pidfd, signal.SIGUSR2)
    except OSError:
        return  # it has ended by itself
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(LEAVE_S * 1e3)


def end_rest(cgroups: str) -> None:
    """Kill all that is in the unit's cgroup, but for this process."""
    for line in cgroups.splitlines():
        _, name, path = line.split(":", 2)
        found = _UNIT.search(path)
        if found is None or name not in _MOUNTS:
            continue
        for mount in _MOUNTS[name]:
            unit = mount / path[1 : found.end(1)]
            for procs in unit.rglob("cgroup.procs"):
                _kill_all(procs)


def _kill_all(procs: Path) -> None:
    for pid in _pids_in(procs):
        with suppress(OSError):  # it has ended
            pidfd = os.pidfd_open(pid)
            try:
                if pid in _pids_in(procs):  # behind the pidfd: it is the process that is meant
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _pids_in(procs: Path) -> list[int]:
    """Return who is in a cgroup, but for this process and those of another pid namespace."""
    try:
        found = map(int, procs.read_text(encoding="ascii").split())
    except OSError:
        return []
    return [pid for pid in found if pid not in (0, os.getpid())]


if __name__ == "__main__":
    main()
