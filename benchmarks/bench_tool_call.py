"""How long does a call in a process of its own take, beside a bare fork of a small process?

Expected: a fork that answers over a socket about 0.6 ms; a call about 1 ms, with its checks, its
way to the host and back, and the end of its process group; the first call of a session 0.2 s, as
it starts the host. A call in a thread is shown for orientation.
"""  # noqa: D400 - a question

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.metrics import Bar, Metric, at_most, measured
from benchmarks.processes import Peer, end, environment
from benchmarks.settings import Settings
from cmdc_runtime.extensions import Isolation, tool
from cmdc_runtime.extensions.sandbox import SandboxPlace
from cmdc_runtime.ids import CallId, Incarnation, SessionId
from cmdc_runtime.messages import ToolCall
from cmdc_runtime.packing import Packed, pack
from cmdc_runtime.wire.frames import FromWorker, HostWanted
from workers.core.inputs import Result, ToolReturned
from workers.core.step import RunTools
from workers.link import Link
from workers.loader import load_tools, open_sandbox
from workers.performers.tools import LoadedTool, ToolRunner, ToolSettings
from workers.toolhost.start import command

PROCESS: Final = at_most(2)
WARM_UP: Final = 5
CALL_S_MAX: Final = 60.0
END_S: Final = 5.0


def idle_tool(isolation: Isolation) -> Packed:
    """Return a tool that does nothing: ``nothing``."""

    @tool(effects="read", isolation=isolation)
    def nothing(number: int) -> str:
        """Do nothing."""
        return str(number)

    return pack(nothing, "nothing")


class Stage:
    """A tool runner with a tool host and no agent around it."""

    def __init__(
        self, folder: Path, parcels: Sequence[Packed], sandbox: Packed | None = None
    ) -> None:
        """Have these tools; the host is started by the first call that needs it.

        Raises:
            SandboxUnavailable: the sandbox can't be had here.
        """
        place = SandboxPlace(
            session_id=SessionId("benchmark"), working_dir=str(folder), real_dir=str(folder)
        )
        settings = ToolSettings(
            session_id=SessionId("benchmark"),
            incarnation=Incarnation(1),
            group_id=None,
            working_dir=str(folder),
            user_data={},
            parallel_max=8,
            timeout_s=CALL_S_MAX,
            retries_max=0,
            runtime_dir=folder,
            sandbox=open_sandbox(sandbox, place),
            packed_sandbox=sandbox,
        )
        self._hosts: list[subprocess.Popen[bytes]] = []
        self._posted: list[Result] = []
        loaded = [LoadedTool(*pair) for pair in zip(load_tools(parcels), parcels, strict=True)]
        link = cast("Link", self)  # with what a tool runner asks of one
        self._runner = ToolRunner(loaded, settings, self._posted.append, link)

    def send(self, frame: FromWorker, *_more: bytes) -> None:
        """Start a host, as the daemon would."""
        if isinstance(frame, HostWanted):
            line = command(frame.address)
            host = subprocess.Popen(line, env=environment(), stdin=subprocess.PIPE)
            self._hosts.append(host)
            assert host.stdin is not None
            with host.stdin as given:
                given.write(frame.address.encode())

    daemons_lost, worker_id = 0, "w-1-0123456789abcdef"

    async def contained(self) -> None:
        """Return at once: nothing is started here that hides."""

    async def attached(self) -> None:
        """Have no daemon that could be lost."""

    async def synced(self) -> None:
        """Have no journal."""

    async def room(self) -> None:
        """Have no daemon that could be slow."""

    async def call(self, name: str = "nothing", **arguments: object) -> float:
        """Time one call from the batch to its result, in ms."""
        call = ToolCall(call_id=CallId("call_1"), name=name, arguments=arguments or {"number": 1})
        self._posted.clear()
        start = time.perf_counter()
        await asyncio.gather(*self._runner.run(RunTools(1, 1, "model", (call,))))
        took_ms = (time.perf_counter() - start) * 1e3
        returned = self._posted[-1]
        if not isinstance(returned, ToolReturned) or not returned.ok:
            raise RuntimeError(f"the call failed: {returned}")
        return took_ms

    async def close(self) -> None:
        """End the host."""
        await self._runner.closed()
        for host in self._hosts:
            end(host, END_S)


class Stages:
    """One stage for each isolation, and the loop that they live in."""

    def __init__(self, folder: Path) -> None:
        """Open both."""
        self._loop = asyncio.Runner()
        self.process: Stage = self.do(_stage(folder, "process"))
        self.thread: Stage = self.do(_stage(folder, "thread"))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:  # Any: what the coroutine returns
        """Run a coroutine in the loop."""
        return self._loop.run(work)

    def close(self) -> None:
        """End the host and the loop."""
        self.do(self.process.close())
        self._loop.close()


async def _stage(folder: Path, isolation: Isolation) -> Stage:
    return Stage(folder, [idle_tool(isolation)])


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cmdc-bench-")))
        small = stack.enter_context(Peer("benchmarks.frozen", "json"))
        stages = Stages(folder)
        stack.callback(stages.close)
        first = [stages.do(stages.process.call())]
        for _ in range(WARM_UP):
            small.ask("spawn")
            stages.do(stages.process.call())
            stages.do(stages.thread.call())
        yield from _calls(settings, small, stages)
        yield measured("tool_call.first", "ms", first)


def _calls(settings: Settings, small: Peer, stages: Stages) -> Iterator[Metric]:
    forks: list[float] = []
    processes: list[float] = []
    threads: list[float] = []
    for _ in range(settings.repeats):
        forks.append(small.ask("spawn"))
        processes.append(stages.do(stages.process.call()))
        threads.append(stages.do(stages.thread.call()))
    bar: Bar = PROCESS
    yield measured("tool_call.process", "ms", processes, baseline=forks, bar=bar)
    yield measured("tool_call.thread", "ms", threads, baseline=forks)
