"""Run in a pid namespace of its own: signal a process that has ended and whose pid another one has.

Prints, as JSON, what each way to end a process did; ``stranger`` says how the other one fared. The
namespace has so few pids that the next process but a few gets that of the dead one.
"""

import asyncio
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

from cmdc_runtime.process_table import look_up
from supervisor.adapters.orphans import end_sessions, sweep
from supervisor.adapters.zygote import Zygote, ZygoteOptions

PIDS_MAX = 330
"""The kernel keeps the first 300 for itself when it begins anew."""
FIRST_PID = 300
ATTEMPTS_MAX = 10 * PIDS_MAX
WAIT_S = 5.0


def fork(act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return pid


def stay():
    """Be what an agent is: the leader of a POSIX session."""
    os.setsid()
    os.kill(os.getpid(), signal.SIGSTOP)


def burn():
    """Let there be few pids, and use them up until the kernel begins anew."""
    Path("/proc/sys/kernel/pid_max").write_text(str(PIDS_MAX))
    while (pid := fork(lambda: None)) < PIDS_MAX - 1:
        os.waitpid(pid, 0)
    os.waitpid(pid, 0)


def take_pid(wanted):
    """Return when a process of ours has the pid ``wanted``."""
    for _ in range(ATTEMPTS_MAX):
        pid = fork(stay)
        if pid == wanted:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
            return
        end(pid)
    raise AssertionError(f"no process got pid {wanted}")


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def has_ended(pidfd):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1e3))


async def main():
    """Give a dead child's pid to a stranger, and then try to end the child."""
    zygote = Zygote(ZygoteOptions(preload="light_preload", needs=()))
    await zygote.warm()
    burn()
    child = await zygote.fork({"do": "stay"}, module="zygote_children")
    ticks = look_up(child.pid).start_ticks
    reported = {"reused": child.pid >= FIRST_PID, "killed": child.send_signal(signal.SIGKILL)}
    has_ended(child.pidfd)
    deadline = time.monotonic() + WAIT_S
    while look_up(child.pid) is not None:  # until the zygote has reaped it
        assert time.monotonic() < deadline
        await asyncio.sleep(0)
    take_pid(child.pid)
    reported |= {
        "signalled": child.send_signal(signal.SIGKILL),
        "swept": sweep({child.pid}),
        "ended": end_sessions({child.pid: ticks}, (), (), time.monotonic() + 1.0),
    }
    stranger = look_up(child.pid)
    reported["stranger"] = "gone" if stranger is None else stranger.state
    end(child.pid)
    await zygote.close()
    sys.stdout.write(json.dumps(reported))


if __name__ == "__main__":
    asyncio.run(main())
