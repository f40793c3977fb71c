"""The hosts of MCP servers that sessions share: one process for each, a child of the tree.

An agent wants a server by its key, a digest of what it is; what that is, the daemon neither knows
nor needs to. A host is a worker that gets an address to listen at. The tree starts it again when it
has crashed, and gives it up when that is too often; it ends by itself when nobody uses it. It ends
with its daemon: the agents, which go on, have the next daemon start another one.
"""

import asyncio
import secrets
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cmdc_runtime.ids import SessionId
from cmdc_runtime.reasons import (
    AnyReason,
    Normal,
    PlainReason,
    RestartIntensityExceeded,
    Shutdown,
)
from cmdc_runtime.requests import Supervision
from cmdc_runtime.runtime_dir import host_socket
from cmdc_runtime.wire.frames import (
    Contained,
    ExitNotice,
    FromWorker,
    HostServer,
    ServerFound,
    Started,
    Terminate,
)
from supervisor.adapters.router import Published
from supervisor.core.exits import Asked, ExitRecord, judge
from supervisor.core.limits import (
    SERVER_FAILURES_KEPT_MAX,
    SERVER_LINGER_S,
    SERVER_REFUSED_S,
    SERVER_SILENT_S,
    SERVERS_MAX,
    SERVERS_OF_AGENT_MAX,
)
from supervisor.core.session_tree import SERVERS, server_name, server_spec
from supervisor.core.tree.messages import (
    CallResult,
    Ending,
    Outcome,
    ProcessEnded,
    Ref,
    SupervisorEnded,
)
from supervisor.processes.pool import WorkerPool
from supervisor.processes.tool_hosts import SpawnErrors, spawn_failure
from supervisor.processes.worker import Worker, WorkerOwner
from supervisor.sessions.session_tasks import SessionTasks
from supervisor.sessions.tree_runtime import TreeRuntime

log = structlog.get_logger()

_NO_LIMITS = Supervision()
_TOKEN_BYTES: Final = 16


@dataclass(slots=True, eq=False)
class ServerHost(WorkerOwner):
    """The child handler of one host, from the first agent that wants it to its last process."""

    key: str
    pool: WorkerPool
    runtime: TreeRuntime
    is_leaving: Callable[[], bool]
    waiting: list[Worker] = field(default_factory=list)
    """Agents that get its address, once it is up."""
    restarts: int = 0
    worker: Worker | None = None
    _ref: Ref | None = None
    _order: HostServer | None = None
    _is_up: bool = False
    _said: PlainReason | None = None
    _fail_reason: PlainReason | None = None
    _asked: Asked = Asked.NOTHING
    _tasks: SessionTasks = field(init=False)

    def __post_init__(self) -> None:
        """Run no task yet."""
        self._tasks = SessionTasks(SessionId(self.name), self._give_up_for_bug)

    @property
    def name(self) -> str:
        """What it is called in the tree, in the log, and as the mark of what it starts."""
        return server_name(self.key)

    @property
    def state(self) -> str:
        """How it stands, as it is shown."""
        return "up" if self._is_up else "starting"

    def want(self, agent: Worker) -> None:
        """Send an agent its address, now or when it is up."""
        if agent not in self.waiting:
            self.waiting.append(agent)
        self._answer()

    # --- as a child of the tree -------------------------------------------------------------

    def launch(self, ref: Ref) -> None:
        """Make a worker the host; a daemon that ends starts none."""
        if not self.is_leaving():
            self._ref, self._said, self._fail_reason = ref, None, None
            self._asked = Asked.NOTHING
            self._tasks.spawn(self._acquire(ref))

    def ask(self, ref: Ref, reason: str) -> None:
        """Ask it politely to end."""
        self._raise(Asked.POLITELY)
        if self.worker is None:
            self._give_up(ref, Shutdown(detail=reason), Ending.NORMAL)
        else:
            self.pool.send(self.worker, Terminate(reason=reason))

    def terminate(self, _ref: Ref) -> None:
        """Send SIGTERM."""
        self._raise(Asked.SIGTERM)
        if self.worker is not None:
            self.pool.signal(self.worker, signal.SIGTERM)

    def kill(self, ref: Ref, fail_reason: PlainReason | None) -> None:
        """Send SIGKILL to it and to what it has started."""
        self._raise(Asked.SIGKILL)
        self._fail_reason = self._fail_reason or fail_reason
        if self.worker is not None:
            self.pool.kill(self.worker)
        else:
            ending = Ending.NORMAL if fail_reason is None else Ending.CRASH
            self._give_up(ref, fail_reason or Shutdown(detail="killed"), ending)

    def is_over(self) -> bool:
        """Say whether its process is gone, though its end is not reported yet."""
        return self.worker is not None and self.worker.is_over()

    def on_ended(self, ended: ProcessEnded) -> None:
        """Say in the log that it is gone, and whether another one comes."""
        self.restarts = ended.restarts
        log.warning(
            "mcp_host.ended",
            server=self.name,
            reason=str(ended.reason),
            restarting=ended.restarting,
        )

    # --- as the owner of its process --------------------------------------------------------

    def on_frame(self, frame: FromWorker, _published: Published) -> None:
        """Record that it listens, or why it ends."""
        match frame:
            case Started() if self._ref is not None and self.worker is not None:
                self._is_up = True
                self.worker.containment.expect(self.worker.pid, SERVER_SILENT_S)
                log.info("mcp_host.started", server=self.name, pid=self.worker.pid)
                self.runtime.up(self._ref, self.worker.pid)
                self._answer()
            case ExitNotice(reason=reason):
                self._said = reason
            case _:
                log.warning("frame.refused", server=self.name, frame=type(frame).__name__)

    def on_exit(self, record: ExitRecord) -> None:
        """Judge its end, and report it to the tree."""
        record.said, record.fail_reason, record.asked = self._said, self._fail_reason, self._asked
        judge(record)
        self._tasks.spawn(self._clear_away(record))

    def on_contained(self) -> None:
        """Send word that its server may be started."""
        if self.worker is not None:
            self.pool.send(self.worker, Contained())

    def on_fail(self, reason: PlainReason) -> None:
        """Report it to the tree, which has it killed."""
        if self._ref is not None:
            self.runtime.fail(self._ref, reason)

    def on_stack(self) -> None:
        """Have it write its stacks to standard error."""
        if self.worker is not None:
            self.pool.signal(self.worker, signal.SIGQUIT)

    async def _acquire(self, ref: Ref) -> None:
        pool = self.pool
        await pool.sweeper.swept(SessionId(self.name))
        try:
            worker = await pool.acquire(lambda: False)
        except SpawnErrors as error:
            self._give_up(ref, spawn_failure(error), Ending.CRASH)
            return
        if self._ref != ref or self.is_leaving():  # nobody wants it any more
            pool.release(worker)
            return
        order = self._order = HostServer(
            key=self.key,
            name=self.name,
            generation=ref.generation,
            address=str(host_socket(pool.folder, worker.id, 0)),
            token=secrets.token_hex(_TOKEN_BYTES),
            linger_s=SERVER_LINGER_S,
        )
        self.worker, worker.owner = worker, self
        worker.mark = (self.name, ref.generation)
        worker.containment.assign(worker.pid, SessionId(self.name), ref.generation, _NO_LIMITS)
        pool.send(worker, order)

    async def _clear_away(self, record: ExitRecord) -> None:
        """Remove the socket that a killed host has left, and report the end."""
        order, ref = self._order, self._ref
        if order is not None:
            with suppress(OSError):  # the daemon's end removes what can be removed then
                await asyncio.to_thread(Path(order.address).unlink, missing_ok=True)
        self.worker = None
        if ref is not None:
            self._give_up(ref, record.reason, record.ending)

    def _answer(self) -> None:
        """Send its address to all who wait, if it is up."""
        order, worker = self._order, self.worker
        if not self._is_up or order is None or worker is None or worker.has_ended:
            return
        found = ServerFound(key=self.key, address=order.address, token=order.token, pid=worker.pid)
        waiting, self.waiting = self.waiting, []
        for agent in waiting:
            self.pool.send(agent, found)

    def _give_up(self, ref: Ref, reason: PlainReason, ending: Ending) -> None:
        """Report to the tree that there is no process. Idempotent."""
        if self._ref == ref:
            self._ref, self._order, self._is_up = None, None, False
            self.runtime.exited(ref, reason, ending)

    def _give_up_for_bug(self) -> None:
        if self.worker is not None:
            self.pool.kill(self.worker)
        elif self._ref is not None:
            self._give_up(self._ref, Shutdown(detail="its start failed"), Ending.CRASH)

    def _raise(self, asked: Asked) -> None:
        rungs = list(Asked)
        self._asked = max(self._asked, asked, key=rungs.index)


@dataclass(slots=True, eq=False)
class ServerHosts:
    """All hosts, by the keys of their servers."""

    pool: WorkerPool
    runtime: TreeRuntime
    is_leaving: Callable[[], bool]
    all: dict[str, ServerHost] = field(default_factory=dict)
    _failed: OrderedDict[str, tuple[float, str]] = field(default_factory=OrderedDict)
    """Until when a server is refused, and why."""

    def want(self, agent: Worker, key: str) -> None:
        """Send an agent the address of a server's host, which is started where there is none."""
        host = self.all.get(key)
        problem = self._problem(agent, key, is_new=host is None)
        if problem:
            self.pool.send(agent, ServerFound(key=key, problem=problem))
            return
        agent.servers_wanted.add(key)
        if host is None:
            host = self.all[key] = ServerHost(key, self.pool, self.runtime, self.is_leaving)
            host.waiting.append(agent)
            self._begin(host)
        else:
            host.want(agent)

    def _problem(self, agent: Worker, key: str, *, is_new: bool) -> str:
        if key not in agent.servers_wanted and len(agent.servers_wanted) >= SERVERS_OF_AGENT_MAX:
            return f"a process of a session has had {SERVERS_OF_AGENT_MAX} shared servers"
        until_s, why = self._failed.get(key, (0.0, ""))
        if is_new and time.monotonic() < until_s:
            return f"it has ended too often: {why}"
        if is_new and len(self.all) >= SERVERS_MAX:
            return f"the daemon has {SERVERS_MAX} shared servers already"
        return ""

    def _begin(self, host: ServerHost) -> None:
        def answered(answer: CallResult) -> None:
            if answer.outcome is not Outcome.OK:
                self._gone(host, answer.reason)

        def over(ended: SupervisorEnded) -> None:
            is_spent = isinstance(ended.reason, RestartIntensityExceeded)
            self._gone(host, ended.reason if is_spent else ended.cause)

        self.runtime.start_child((SERVERS,), server_spec(host.key, host), answered, over)

    def _gone(self, host: ServerHost, reason: AnyReason | None) -> None:
        """Forget a host that nobody used, or that the tree has given up. Idempotent."""
        if self.all.get(host.key) is not host:
            return
        del self.all[host.key]
        waiting, host.waiting = host.waiting, []
        if isinstance(reason, RestartIntensityExceeded):
            self._failed[host.key] = time.monotonic() + SERVER_REFUSED_S, str(reason)
            while len(self._failed) > SERVER_FAILURES_KEPT_MAX:
                self._failed.popitem(last=False)
        for agent in waiting:
            if isinstance(reason, Normal):  # it was about to end when it was asked for
                self.want(agent, host.key)
            else:
                problem = f"its host ended: {reason or 'the daemon ends'}"
                self.pool.send(agent, ServerFound(key=host.key, problem=problem))
