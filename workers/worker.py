"""A worker process from fork to end: wait for an Assign, become an agent, say why it ends.

The zygote calls ``main`` in a fresh child. The process ends by ``os._exit`` and never returns to
the zygote's code. When the daemon is gone a spare ends by itself, and an agent goes on for its
grace: it works on, and ``Detachment`` announces it until the next daemon adopts it. The loop
watches the daemon's pidfd, and ``watchdog`` does so in case the loop is stuck in foreign code.
"""

import asyncio
import faulthandler
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import beneath, foreign, reasons
from cmdc_runtime.errors import CheckpointUnreadable, ProtocolError, SandboxUnavailable
from cmdc_runtime.faults import rebuild_point
from cmdc_runtime.heartbeats import PERIOD_S_MAX, REBUILDING, SNAPSHOT_STEP, period_for
from cmdc_runtime.ids import WorkerId
from cmdc_runtime.prctl import answer_others, set_title
from cmdc_runtime.process import (
    CODE_STAGE,
    EXIT_BAD_OPTIONS,
    EXIT_CRASHED,
    EXIT_OK,
    EXIT_ORPHANED,
    FRAME_STAGE,
    HIBERNATE,
    SANDBOX_STAGE,
    SWITCH_INTERVAL_S,
    TITLE_PREFIX,
)
from cmdc_runtime.reasons import PlainReason
from cmdc_runtime.runtime_dir import (
    BOARD_FILE,
    Registration,
    own_registration,
    register,
    unregister,
)
from cmdc_runtime.spec import AgentSpec
from cmdc_runtime.wire.codec import decode_as
from cmdc_runtime.wire.frames import (
    OWN_SLOT,
    Adopted,
    Assign,
    Attend,
    Deliver,
    Detached,
    ExitNotice,
    History,
    HostLost,
    HostServer,
    JournalCommand,
    JournalRecord,
    LitellmWanted,
    NotStarted,
    Ready,
    ServerFound,
    Started,
    Terminate,
    ToWorker,
)
from workers import callbacks
from workers.agent import Agent
from workers.build import BuildContext, BuildError, ChangedError, LitellmNeeded, build_agent
from workers.core import omissions
from workers.core.snapshot import SessionHistory
from workers.heartbeat import Heartbeat, WorkerLoop
from workers.limits import LimitError, apply_limits, step_forward
from workers.link import Link
from workers.logs import configure_logs
from workers.mcp.host import ServerHost
from workers.output import own_lines, send_output
from workers.performers.table import ExitCallbacks
from workers.plugin_slot import ERROR_CHARS_MAX
from workers.watchdog import Watchdog

# --- between two daemons --------------------------------------------------------------------------

log = structlog.get_logger()

ANNOUNCE_S: Final = 0.5
"""Between two announcements; the next daemon may die before it has received one."""


def can_register(directory: Path, own: Registration) -> bool:
    """Register for the next daemon; an agent that can't has to end with the one it has."""
    try:
        register(directory, own)
    except OSError as error:
        log.warning("agent.not_registered", problem=str(error))
        return False
    return True


class Detachment:
    """What is done while there is no daemon; nothing before ``begin`` and after ``end``."""

    def __init__(
        self, link: Link, announcement: Callable[[], Detached], on_late: Callable[[], None]
    ) -> None:
        """Send what ``announcement`` returns; call ``on_late`` when the grace is over."""
        self._link, self._announcement, self._on_late = link, announcement, on_late
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is no daemon now."""
        return self._timer is not None

    def begin(self, grace_s: float) -> None:
        """Give up the dead daemon, and announce the agent for ``grace_s`` seconds."""
        log.warning("daemon.lost", grace_s=grace_s)
        self._link.detach()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(grace_s, self._on_late)
        self._announce()

    def end(self) -> None:
        """Announce no more. Idempotent."""
        for timer in (self._timer, self._deadline):
            if timer is not None:
                timer.cancel()
        self._timer = self._deadline = None

    def _announce(self) -> None:
        self._link.announce(self._announcement())
        self._timer = asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce)


# --- the worker -----------------------------------------------------------------------------------

DYING_MS: Final = 1_000
"""For a daemon whose files are closed already to be gone; it takes less than one."""

STOP_S: Final = 3.0
"""How long the end of running work may take before the process ends all the same."""
PLUGINS_END_S: Final = 1.5
"""How long plugins may take over the end; with ``STOP_S`` less than a session has by default."""
END_S: Final = 3.5
"""How long both may take where work ends soon: what it leaves is the plugins'."""


class Worker:
    """One process: first a spare, then an agent."""

    def __init__(
        self,
        boot: dict[str, Any],  # Any: str, int or float, by the key
        watchdog: Watchdog,
        daemon_fd: int,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        """Connect to the daemon named in ``boot``; ``heartbeat`` is the running loop's."""
        address = str(boot["address"])
        self._id = WorkerId(str(boot["worker_id"]))
        self._output = str(boot.get("output", ""))
        self._grace_s = float(boot.get("grace_s", 0.0))
        self._is_lean = bool(boot.get("is_lean", False))
        self._link = Link(address, self._id, self._on_frame, self._on_unreadable)
        self._detachment = Detachment(self._link, self._announcement, self._end_orphaned)
        self._runtime_dir = Path(address.removeprefix("ipc://")).parent
        self._watchdog, self._daemon_fd = watchdog, daemon_fd
        self._exit_callbacks = ExitCallbacks(self._crash, self._exit)
        self._heartbeat = heartbeat
        self._assign: Assign | None = None
        self._snapshot = b""
        self._records: list[JournalRecord] = []
        self._unanswered: list[JournalCommand] = []
        self._agent: Agent | None = None
        self._server_host: ServerHost | None = None
        self._is_asked = self._hibernates = self._is_over = False
        self._ended: asyncio.Future[tuple[int, PlainReason | None]] = (
            asyncio.get_running_loop().create_future()
        )

    async def run(self) -> int:
        """Work until the end; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        callbacks.hide_from(loop)
        loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        # Ahead of the loop's own turn, which comes when what is being opened is open.
        signal.signal(signal.SIGTERM, self._die_where_at_step)
        signal.siginterrupt(signal.SIGTERM, False)  # noqa: FBT003 - signal takes it so
        if self._heartbeat is not None:
            self._heartbeat.note("spare", 0, (), 0)
            self._heartbeat.start(PERIOD_S_MAX)
        loop.add_reader(self._daemon_fd, self._on_daemon_lost)
        self._link.start()
        self._link.send(Ready(pid=os.getpid()))
        code, reason = await self._ended
        if self._agent is not None:
            await self._wind_up(self._agent, code)
        if self._server_host is not None:
            await self._server_host.close()
        if reason is not None:
            self._link.send(ExitNotice(reason=reason))
        if self._detachment.is_on:  # nobody else will
            unregister(self._runtime_dir, self._id)
        self._detachment.end()
        self._link.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        return code

    async def _wind_up(self, agent: Agent, code: int) -> None:
        """End the agent's work, then its plugins, unless it is a crash."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            async with asyncio.timeout(STOP_S):
                await agent.stop(hibernates=self._hibernates, ends=self._is_over)
        except TimeoutError:
            log.warning("work.abandoned", after_s=STOP_S)
        if code != EXIT_OK:
            return
        plugins_s = max(PLUGINS_END_S, begun_s + END_S - loop.time())
        try:
            async with asyncio.timeout(plugins_s):
                await agent.end_plugins(is_end=self._is_asked and not self._hibernates)
        except TimeoutError:
            log.warning("plugins.abandoned", after_s=round(plugins_s, 1))

    # --- without its daemon ---------------------------------------------------------------------

    def _on_daemon_lost(self) -> None:
        """Go on without the daemon, which is gone, for a while; what is no agent yet ends."""
        asyncio.get_running_loop().remove_reader(self._daemon_fd)
        if self._agent is None or self._grace_s <= 0 or self._ended.done():
            self._end_orphaned()
        else:
            self._detachment.begin(self._grace_s)

    def _end_orphaned(self) -> None:
        self._end(EXIT_ORPHANED, None)

    def _announcement(self) -> Detached:
        assert self._agent is not None  # noqa: S101 - only agents drift
        assert self._assign is not None  # noqa: S101 - the agent is made of it
        return Detached(
            worker_id=self._id,
            session_id=self._assign.session_id,
            incarnation=self._assign.incarnation,
            first=self._link.first_event(self._agent.next_index()),
        )

    def _adopted(self, frame: Adopted) -> None:
        """Go on with the next daemon: watched first, then with what the last one missed."""
        if not self._detachment.is_on or self._agent is None:
            return
        try:
            self._daemon_fd = os.pidfd_open(frame.daemon_pid)
        except ProcessLookupError:
            return  # it is gone, too; the one after it receives the next announcement
        self._detachment.end()
        self._watchdog.watch(self._daemon_fd)
        asyncio.get_running_loop().add_reader(self._daemon_fd, self._on_daemon_lost)
        self._move_heartbeat_and_output(frame)
        log.info("agent.adopted", daemon=frame.daemon_pid)
        self._link.attach(frame.written)
        self._link.send(Started())
        self._agent.adopted()

    def _move_heartbeat_and_output(self, frame: Adopted) -> None:
        """Write heartbeats and output where the next daemon reads them."""
        heartbeat, is_own = self._heartbeat, frame.slot == OWN_SLOT
        if heartbeat is not None:
            with suppress(OSError, ValueError):  # it would be taken for hung, which is reported
                if is_own:
                    heartbeat.use_own_memory()
                else:
                    heartbeat.move(self._runtime_dir / BOARD_FILE, frame.slot)
        if self._output:
            bring = heartbeat.fd if heartbeat is not None and is_own else None
            send_output(self._output, frame.output_id, bring)

    def _end(self, code: int, reason: PlainReason | None) -> None:
        if not self._ended.done():
            self._ended.set_result((code, reason))

    def _on_unreadable(self, why: str) -> None:
        """End, and say why: what the daemon has sent it does not send again to this process.

        While it is detached it goes on waiting: nobody has adopted it, and it is announced again.
        """
        if self._detachment.is_on:
            return
        if self._agent is None:
            self._give_up(FRAME_STAGE, why)
        else:
            self._end(EXIT_CRASHED, reasons.Other(detail=why))

    def _on_frame(self, frame: ToWorker) -> None:
        """Take a frame, or end at once and say why: who sent it would wait for what came of it.

        A socket only reports to the loop what its reader raises, and delivers the next message.
        """
        try:
            self._take_frame(frame)
        except Exception as error:  # noqa: BLE001 - the process ends for it
            self._crash(error)

    def _take_frame(self, frame: ToWorker) -> None:
        if self._agent is None and self._ended.done():
            return  # it has given up, perhaps for want of a frame that this one leans on
        match frame:
            case Assign():
                self._assign = frame
                self._expect(frame)
            case History():
                self._take_history(frame)
            case Deliver(id=command_id, body=body, durable=durable) if self._agent is not None:
                self._agent.order(command_id, body, durable=durable)
            case HostLost() | ServerFound() if self._agent is not None:
                self._agent.hear(frame)
            case HostServer() if self._assign is None:
                self._host_server(frame)
            case Adopted():
                self._adopted(frame)
            case Attend():
                self._link.send(Ready(pid=os.getpid()))
            case Terminate():
                self._terminate(frame)
            case _:
                log.warning("frame.refused", frame=type(frame).__name__)

    def _host_server(self, order: HostServer) -> None:
        """Be the host of an MCP server that sessions share, and no agent."""
        self._link.wait_for_cgroup(is_contained=False)
        host = self._server_host = ServerHost(order, self._link.contained, self._end)
        set_title("cmdc-mcp-host", f"{TITLE_PREFIX}mcp host {order.name}")
        if self._heartbeat is not None:
            self._heartbeat.note("mcp host", 0, (), 0)

        async def listen() -> None:
            await host.listen()
            self._say_up()

        self._exit_callbacks.watch(asyncio.get_running_loop().create_task(listen(), name="listen"))

    def _expect(self, assign: Assign) -> None:
        """Set the period that the session's limit needs, and note that its agent is being made."""
        self._link.wait_for_cgroup(is_contained=assign.is_contained)
        if self._heartbeat is not None:
            self._heartbeat.note("starting", 0, (), assign.next_index - 1)
            self._heartbeat.start(period_for(assign.unresponsive_after))

    def _on_sigterm(self) -> None:
        """End as politely, but as what it is: nobody asked the daemon, so the session goes on.

        The daemon's own request comes as a frame first; a signal to the whole process group, as a
        service manager sends it, must not end sessions for good.
        """
        self._end(EXIT_CRASHED, reasons.Signal(number=signal.SIGTERM, name="SIGTERM"))

    def _die_where_at_step(self, _number: int, _frame: FrameType | None) -> None:
        """Die of SIGTERM while foreign code is loaded, which may have sent it itself.

        A polite end comes later, when nothing says any more what it was that ended the process.
        """
        if self._heartbeat is not None and self._heartbeat.is_at_step and not self._ended.done():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
            os._exit(EXIT_CRASHED)  # the signal is blocked

    def _terminate(self, asked: Terminate) -> None:
        reason = asked.reason
        if self._detachment.is_on:
            log.warning("agent.rejected", reason=reason)
            self._end_orphaned()
            return
        self._is_over = asked.over
        self._is_asked, self._hibernates = True, reason == HIBERNATE
        ended = reasons.Normal() if reason == "normal" else reasons.Shutdown(detail=reason)
        self._end(EXIT_OK, ended)

    def _take_history(self, frame: History) -> None:
        self._snapshot += frame.snapshot
        self._records += frame.records
        self._unanswered += frame.commands
        if frame.complete:
            self._become_agent()

    def _become_agent(self) -> None:
        assign = self._assign
        assert assign is not None  # noqa: S101 - the daemon sends Assign first
        stage = "load"
        try:
            spec: AgentSpec = decode_as(AgentSpec, assign.agent)
            _enter(spec.working_dir)
            apply_limits(assign.max_open_files)
            stage = "rebuild"
            past = self._past(assign)
            stage = "load"
            context = BuildContext(
                self._link,
                self._runtime_dir,
                self._exit_callbacks,
                self._report_step,
                self._report_code_step,
                is_lean=self._is_lean and not assign.looks,
            )
            agent = build_agent(assign, spec, past, context)
        except LitellmNeeded:
            self._link.send(LitellmWanted())
            return
        except CheckpointUnreadable as error:
            self._give_up("rebuild", str(error))
            return
        except ChangedError as error:
            self._give_up(CODE_STAGE, str(error))
            return
        except SandboxUnavailable as error:
            self._give_up(SANDBOX_STAGE, f"{error.layer}: {error.why}")
            return
        except (BuildError, LimitError, ProtocolError, msgspec.DecodeError) as error:
            self._give_up(stage, str(error))
            return
        role = "reader" if assign.looks else "agent"
        set_title(f"cmdc-{role}", f"{TITLE_PREFIX}{role} {assign.session_id}")
        if assign.looks:
            self._answer_only(agent)
        elif agent.has_session_start:
            starting = asyncio.get_running_loop().create_task(
                self._start_plugins(agent), name="session-start"
            )
            self._exit_callbacks.watch(starting)
        else:
            self._present(agent)

    def _past(self, assign: Assign) -> SessionHistory:
        """Return what the journal has of the session, but for what kills every process."""
        killing = frozenset(assign.set_aside)
        bodies = [(record.kind, record.body) for record in self._records]
        records, left_out = omissions.read_records(bodies, killing, self._report_step)
        snapshot, size = self._snapshot, sum(len(body) for _, body in bodies)
        if omissions.is_left_out(snapshot, records):
            snapshot = b""
        elif snapshot and SNAPSHOT_STEP in killing:
            killer = omissions.set_aside(omissions.SNAPSHOT, snapshot, omissions.KILLED)
            left_out, snapshot = (killer, *left_out), b""
        return SessionHistory(snapshot, records, size, left_out)

    def _report_step(self, step: int | None) -> None:
        """Report which step of rebuilding is next, None for none: the process may die of it."""
        if self._heartbeat is not None and self._assign is not None:
            index = self._assign.next_index - 1
            state, turns = ("starting", 0) if step is None else (REBUILDING, step)
            self._heartbeat.note(state, turns, (), index)
            if step is not None:
                rebuild_point(self._assign.session_id, step)

    def _report_code_step(self, step: int) -> None:
        """Report which packed code of a command is being loaded, 0 for none."""
        if self._heartbeat is not None:
            self._heartbeat.write_code_step(step)

    def _answer_only(self, agent: Agent) -> None:
        """Answer how the session stands, and end: no other process goes on from this one."""
        self._agent, self._grace_s = agent, 0.0
        self._say_up()

    async def _start_plugins(self, agent: Agent) -> None:
        """Run ``session_start`` first: a plugin may abort the session there."""
        problem = await agent.start_plugins()
        if problem is None:
            self._present(agent)
        else:
            self._give_up("plugin", problem)

    def _present(self, agent: Agent) -> None:
        self._agent, assign = agent, self._assign
        assert assign is not None  # noqa: S101 - the agent is made of it
        if self._grace_s > 0:
            own = own_registration(self._id, assign.session_id, assign.incarnation)
            self._grace_s = self._grace_s if can_register(self._runtime_dir, own) else 0.0
            self._watchdog.allow(self._grace_s)
        self._say_up()
        agent.begin(assign.last_reason, self._unanswered, self._report_step)
        if self._heartbeat is not None:
            agent.report_activity_to(self._heartbeat.note)
        self._snapshot, self._records, self._unanswered = b"", [], []

    def _say_up(self) -> None:
        answer_others()
        self._link.send(Started())

    def _give_up(self, stage: str, message: str) -> None:
        self._link.send(NotStarted(stage=stage, message=message))
        self._end(EXIT_BAD_OPTIONS, None)

    def _exit(self, reason: PlainReason) -> None:
        self._end(EXIT_OK, reason)

    def _crash(self, error: BaseException) -> None:
        trace = foreign.traceback_of(error)
        if self._agent is None and self._assign is not None:
            log.error("agent.not_built", exception=trace)
        raised = reasons.Exception(
            type=type(error).__qualname__,
            message=foreign.text_of(error),
            traceback=trace,
        )
        self._end(EXIT_CRASHED, raised)

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Any: asyncio's own shape.
        error = context.get("exception")
        if error is not None and callbacks.is_ours(context):
            self._crash(error)  # a bug of ours in a callback: let it crash, and say why
            return
        # Our tasks are all watched: this one is of a tool, a plugin or a library.
        trace = "" if error is None else foreign.traceback_of(error)
        log.error("task.abandoned", problem=str(context.get("message")), exception=trace)
        plugin = callbacks.owner_of(context)
        if error is not None and plugin and self._agent is not None:
            why = foreign.summary_of(error, ERROR_CHARS_MAX)
            self._agent.plugin_crashed(plugin, callbacks.CALLBACK, why)


def main(boot: dict[str, Any]) -> None:  # Any: str, int or float, by the key
    """Be a worker; never returns."""
    os.setsid()  # the tools' process groups stay in this POSIX session, so they can be found
    step_forward()
    is_sent = "output" in boot and send_output(str(boot["output"]), str(boot["worker_id"]))
    faulthandler.enable()
    # The daemon asks a silent process for its stacks; they need no interpreter, and it goes on.
    faulthandler.register(signal.SIGQUIT, all_threads=True, chain=False)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    lines = own_lines() if is_sent else None
    configure_logs(str(boot.get("log_level", "info")), as_records=is_sent, file=lines)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    daemon_fd = _open_daemon(int(boot["daemon_pid"]))
    watchdog = Watchdog(daemon_fd)
    watchdog.start()
    code = EXIT_CRASHED
    try:
        code = _run(boot, daemon_fd, watchdog)
    except BaseException as error:  # noqa: BLE001 - the last line of defence; the exit code says so
        # What it was about to open may be gone with the daemon, whose end shows a little later.
        if _is_over(watchdog.daemon_fd, DYING_MS if isinstance(error, OSError) else 0):
            code = EXIT_ORPHANED
        else:
            sys.stderr.write(foreign.traceback_of(error))
    finally:
        os._exit(code)


def _run(boot: dict[str, Any], daemon_fd: int, watchdog: Watchdog) -> int:
    heartbeat = Heartbeat(int(boot["slot_fd"])) if "slot_fd" in boot else None
    runner = asyncio.Runner(loop_factory=heartbeat.new_loop if heartbeat else WorkerLoop)
    code = runner.run(_main(boot, daemon_fd, watchdog, heartbeat))
    watchdog.leave(code)
    with suppress(RuntimeError):  # it takes a thread, and a tool may have left none to be had
        runner.close()
    return code


async def _main(
    boot: dict[str, Any], daemon_fd: int, watchdog: Watchdog, heartbeat: Heartbeat | None
) -> int:
    try:
        return await Worker(boot, watchdog, daemon_fd, heartbeat).run()
    except (SystemExit, KeyboardInterrupt) as error:
        log.error("worker.exited", exception=foreign.traceback_of(error))
        return EXIT_CRASHED


def _open_daemon(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(EXIT_ORPHANED)


def _is_over(daemon_fd: int, wait_ms: int) -> bool:
    poller = select.poll()
    poller.register(daemon_fd, select.POLLIN)
    return bool(poller.poll(wait_ms))


def _enter(directory: str) -> None:
    """Make relative paths in tools start where the session works, as in the program they are of."""
    try:
        os.chdir(directory)
        beneath.pin(directory, os.getcwd())  # noqa: PTH109 - a text
    except OSError as error:
        raise BuildError(f"working_dir: {error}") from error
