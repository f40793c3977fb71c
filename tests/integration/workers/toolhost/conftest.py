"""A tool runner with real tool hosts and no daemon: the test is both ends of the link."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.extensions import Context, tool
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packing import pack
from cmdc_runtime.wire.frames import HostLost
from tests.ended import has_ended
from workers.core.inputs import ToolEmitted, ToolReturned
from workers.core.step import RunTools
from workers.performers.tools import LoadedTool, ToolRunner, ToolSettings
from workers.toolhost.start import command

WAIT_S = 20.0


class Stage:
    """A tool runner, its own link to a daemon: hosts are started as the daemon would."""

    def __init__(self, folder, tools, **changes):
        given = {
            "session_id": "s",
            "incarnation": 2,
            "group_id": "g",
            "working_dir": str(folder),
            "user_data": {"k": 1},
            "parallel_max": 8,
            "timeout_s": WAIT_S,
            "retries_max": 2,
            "runtime_dir": folder,
        }
        self.posted, self.hosts, self.addresses = [], [], []
        self.worker_id = "w-1-0123456789abcdef"
        self.daemons_lost, self.go, self.has_daemon = 0, asyncio.Event(), asyncio.Event()
        self.has_daemon.set()
        self.go.set()  # the agent reads, unless a test says otherwise
        self.answer_want, self.bounds = self.start_host, "pass"
        loaded = [one if isinstance(one, LoadedTool) else load(one) for one in tools]
        settings = ToolSettings(**{**given, **changes})
        self.runner = ToolRunner(loaded, settings, self.posted.append, self)

    def send(self, frame):
        self.addresses.append(frame.address)
        self.answer_want(frame.address)

    def start_host(self, address):
        line = command(address)
        line[3] = line[3].replace("from workers", f"{self.bounds}; from workers")
        host = subprocess.Popen(line, start_new_session=True, stdin=subprocess.PIPE)
        with host.stdin as given:
            given.write(address.encode())
        self.hosts.append(host)

    def refuse_host(self, address):
        self.runner.host_lost(HostLost(address=address, message="no room"))

    async def contained(self):
        pass

    async def synced(self):
        pass

    async def attached(self):
        await self.has_daemon.wait()

    async def room(self):
        await self.go.wait()

    def start(self, *calls):
        """Start a batch of calls: names, or pairs of a name and arguments."""
        pairs = [one if isinstance(one, tuple) else (one, {}) for one in calls]
        made = [
            ToolCall(call_id=f"c{at}", name=name, arguments=arguments)
            for at, (name, arguments) in enumerate(pairs)
        ]
        return self.runner.run(RunTools(1, 3, "m", tuple(made)))

    async def texts(self, *calls):
        """Return the result of each call of a batch, in call order."""
        before = len(self.posted)
        await asyncio.gather(*self.start(*calls))
        found = [one for one in self.posted[before:] if isinstance(one, ToolReturned)]
        return [one.text for one in sorted(found, key=lambda one: one.call_id)]

    async def result(self, call):
        await asyncio.gather(*self.start(call))
        return self.posted[-1]

    async def until_emitted(self, count=1):
        """Return the payloads of emitted events when there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(self.emitted) < count:  # noqa: ASYNC110 - it comes from another process
                await asyncio.sleep(0.001)  # tidy: see above
        return self.emitted

    @property
    def emitted(self):
        return [one.payload for one in self.posted if isinstance(one, ToolEmitted)]


def load(found):
    return LoadedTool(found, pack(found, found.name))


@asynccontextmanager
async def opened_in(folder, *tools, **changes):
    """Yield a stage; afterwards every host has ended, and all that it started."""
    stage = Stage(folder, tools, **changes)
    family = []
    try:
        yield stage
    finally:
        for host in stage.hosts:
            if host.poll() is None:
                family += psutil.Process(host.pid).children(recursive=True)
        stage.runner.cancel()
        await stage.runner.closed()
        for host in stage.hosts:
            await asyncio.to_thread(host.wait, WAIT_S)
        alive = [one for one in family if not ends(one.pid)]
        for one in alive:
            one.kill()
        assert alive == []


@pytest.fixture
def folder():
    """A folder with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="h-") as name:
        yield Path(name)


def ends(pid):
    """Say whether a process ends within the patience of a test."""
    deadline = time.monotonic() + WAIT_S
    while not has_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)  # tidy: polls the operating system
    return True


@tool(effects="read", name="report")
def report_facts(*, context: Context) -> str:
    """Report where the call runs."""
    inherited = {int(fd.name) for fd in Path("/proc/self/fd").iterdir() if fd.exists()}
    facts = {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "group": os.getpgid(0),
        "sid": os.getsid(0),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "host_threads": len(list(Path(f"/proc/{os.getppid()}/task").iterdir())),
        "modules": sorted(sys.modules),
        "stdin": sys.stdin.read(),
        "cwd": str(Path.cwd()),
        "fds": sorted(inherited),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "environ": {n: v for n, v in os.environ.items() if n in NAMES},
        "context": [
            context.session_id,
            context.call_id,
            context.incarnation,
            context.group_id,
            context.model,
            context.turn,
            context.user_data,
            context.working_dir,
        ],
    }
    context.session.emit("facts", facts)
    return "reported"


NAMES = ("CMDC_SESSION_ID", "CMDC_CALL_ID", "CMDC_INCARNATION")


@tool(effects="read", name="stay")
def stayed(seconds: float = 3600.0, *, context: Context) -> str:
    """Start a child and burn a core."""
    child = subprocess.Popen(["sleep", "3600"])
    context.session.emit("pids", [os.getpid(), child.pid])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


@pytest.fixture
def opened(folder):
    """Return what opens a stage with tools; sessions' settings are keyword arguments."""
    return partial(opened_in, folder)


@pytest.fixture
def facts_tool():
    """Return a tool that reports where it runs."""
    return report_facts


@pytest.fixture
def stay():
    """Return a tool that burns a core, with a child, until it is killed."""
    return stayed


@pytest.fixture(name="ends")
def _ends():
    """Say whether a process ends in time."""
    return ends


@pytest.fixture(name="load")
def _load():
    """Return a tool with its packed code."""
    return load
