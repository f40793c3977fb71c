"""What the kernel says of an end, asked of real processes that are not all our children."""

import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from supervisor.adapters.pidfd import ExitStatus, exit_status, reap, stuck_at

pytestmark = pytest.mark.process

WAIT_S = 10.0
STAY = "import signal; signal.pause()"
END_UNSEEN = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os._exit(5)"
"""After PR_SET_DUMPABLE only the privileged see how it ends."""
CRASH = "import signal; signal.raise_signal(signal.SIGQUIT)"
# The first thread ends alone, by exit(2); the other waits for that and ends the process.
END_WITHOUT_LEADER = """
import ctypes, os, threading

def end_last():
    while True:
        with open(f"/proc/self/task/{os.getpid()}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                os._exit(7)
        os.sched_yield()

threading.Thread(target=end_last).start()
ctypes.CDLL(None).syscall(60, 5)
"""


def end(status):
    return f"import os; os._exit({status})"


def die(number):
    return f"import os; os.kill(os.getpid(), {int(number)})"


@contextmanager
def started(script, core_bytes=0, **more):
    """Start a child that does something; give its pid and pidfd, and leave nothing of it."""
    limit = f"from resource import *; setrlimit(RLIMIT_CORE, ({core_bytes}, {core_bytes}))\n"
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", limit + script], **more)
    pidfd = os.pidfd_open(process.pid)
    try:
        yield process.pid, pidfd
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        process.wait(WAIT_S)
        os.close(pidfd)


def wait_ended(pidfd):
    """Return when the process has ended; it is a zombie then."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(WAIT_S * 1e3)


WAYS = {
    "0": (end(0), 0),
    "3": (end(3), 3),
    "128": (end(128), 128),
    "255": (end(255), 255),
    "SIGTERM": (die(signal.SIGTERM), -15),
    "SIGKILL": (die(signal.SIGKILL), -9),
    "SIGSEGV": (die(signal.SIGSEGV), -11),
    "the last real-time signal": (die(signal.SIGRTMAX), -64),
}


def has_exit_info():
    """Say whether this kernel reports the status of a process that was reaped."""
    with started(end(0)) as (pid, pidfd):
        wait_ended(pidfd)
        os.waitpid(pid, 0)
        return exit_status(pid, pidfd) is not None


@pytest.fixture(scope="module")
def exit_info():
    """Skip the test where the kernel forgets the status of a process that was reaped."""
    if not has_exit_info():
        pytest.skip("the kernel has no PIDFD_INFO_EXIT: it is older than 6.15")


@pytest.mark.parametrize("way", WAYS)
def test_the_status_of_a_zombie_is_reported(way):
    """Nobody has waited for it."""
    script, code = WAYS[way]
    with started(script) as (pid, pidfd):
        wait_ended(pidfd)

        assert exit_status(pid, pidfd) == ExitStatus(code)


@pytest.mark.usefixtures("exit_info")
@pytest.mark.parametrize("way", WAYS)
def test_the_status_of_a_reaped_process_is_reported(way):
    """Somebody else took it; the pidfd has it still, as often as one asks."""
    script, code = WAYS[way]
    with started(script) as (pid, pidfd):
        os.waitpid(pid, 0)

        assert exit_status(pid, pidfd) == exit_status(pid, pidfd) == ExitStatus(code)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of exit(2) is x86-64's")
def test_the_status_is_the_process_s_and_not_its_first_thread_s():
    """The first thread ended with 5, the process with 7, which its parent hears too."""
    with started(END_WITHOUT_LEADER) as (pid, pidfd):
        wait_ended(pidfd)

        assert exit_status(pid, pidfd) == ExitStatus(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_core_that_was_written_is_reported(tmp_path):
    """As a zombie, to its parent, and of a reaped process alike."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if pattern.startswith(("|", "/", "@")):
        pytest.skip(f"cores go elsewhere on this machine: {pattern.strip()}")
    if 0 <= resource.getrlimit(resource.RLIMIT_CORE)[1] < 2**26:
        pytest.skip("RLIMIT_CORE allows no core")

    with started(CRASH, core_bytes=2**26, cwd=tmp_path) as (pid, pidfd):
        wait_ended(pidfd)
        reported = [exit_status(pid, pidfd), reap(pidfd)]
        if has_exit_info():
            reported.append(exit_status(pid, pidfd))

    assert set(reported) == {ExitStatus(-3, core_dumped=True)}
    for core in tmp_path.iterdir():
        core.unlink()


def test_a_process_that_runs_stops_or_goes_on_has_not_ended():
    """The kernel shows the stop where it shows the status; where it stopped can be read."""
    with started(STAY) as (pid, pidfd):
        running = exit_status(pid, pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        os.waitid(os.P_PIDFD, pidfd, os.WSTOPPED)
        stopped, at = exit_status(pid, pidfd), stuck_at(pid, pidfd)
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        os.waitid(os.P_PIDFD, pidfd, os.WCONTINUED)
        going_on, reaped = exit_status(pid, pidfd), reap(pidfd)

        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        wait_ended(pidfd)
        ended_at = stuck_at(pid, pidfd)

    assert (running, stopped, going_on, reaped) == (None, None, None, None)
    assert (at.state, at.wchan in ("", "do_signal_stop"), ended_at) == ("T", True, None)


def test_what_the_kernel_does_not_want_to_show_is_not_known():
    """It shows 0 of another's process: that must not be taken for an exit status."""
    with started(END_UNSEEN) as (pid, pidfd):
        wait_ended(pidfd)
        # As root one may see it; another user of the machine may not.
        watcher = subprocess.run(
            [sys.executable, "-c", WATCHER, str(pid), str(pidfd)],
            pass_fds=[pidfd],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    assert watcher.stdout == "None\n", watcher.stderr


# It gives up what lets it see everything, if it has that.
WATCHER = """
import os, sys
from supervisor.adapters.pidfd import exit_status
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(exit_status(int(sys.argv[1]), int(sys.argv[2])))
"""


def test_a_pid_that_is_another_process_s_by_now_is_not_trusted():
    """Here the pid is that of a zombie which the descriptor does not hold."""
    with started(end(3)) as (pid, pidfd), started(end(4)) as (other, other_fd):
        wait_ended(pidfd)
        os.waitpid(other, 0)
        reported = exit_status(pid, other_fd)
        nothing = os.eventfd(1)
        asked_of_no_process = exit_status(pid, nothing), reap(nothing), stuck_at(pid, nothing)
        os.close(nothing)

    assert reported in (None, ExitStatus(4))
    assert asked_of_no_process == (None, None, None)


def test_only_our_own_children_are_reaped():
    """The status of an own child is given once; of a stranger there is nothing to take."""
    with started(end(3)) as (_, pidfd):
        wait_ended(pidfd)

        assert (reap(pidfd), reap(pidfd)) == (ExitStatus(3), None)

    stranger = os.pidfd_open(1)
    assert reap(stranger) is None
    os.close(stranger)
