"""``Chaos``: what becomes of an agent, its tools and plugins when a process dies at a bad moment.

It has a daemon of its own, which goes when it is closed, so that nobody else's sessions are
touched. The moment is exact: the victim is killed by SIGKILL right before or after a write to the
journal (``cmdc_runtime.faults``), not at some time. A daemon that dies is followed by the next one,
as under systemd.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, get_args

from cmdc_runtime import faults
from cmdc_runtime.client.default import redirected
from cmdc_runtime.client.sync.session import Client
from cmdc_runtime.client.sync.stream import EventStream
from cmdc_runtime.commands import PromptReceipt
from cmdc_runtime.errors import CmdcError, InvalidSession, SessionNotAlive
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.testing.audit import Books, calls_repeated, history_problems
from cmdc_runtime.testing.daemon import DaemonProcess

Victim: TypeAlias = Literal["agent", "tool_host", "daemon", "zygote"]
Moment: TypeAlias = Literal[
    "after_prompt",
    "after_cycle_start",
    "after_response",
    "before_tool_start",
    "after_tool_start",
    "before_tool_end",
    "after_tool_end",
    "before_cycle_end",
    "after_cycle_end",
]

# fmt: off
_VICTIMS: Final[Mapping[str, str]] = {
    "agent":     "agent",
    "tool_host": "host",
    "daemon":    "daemon",
    "zygote":    "zygote",
}
_WRITES: Final[Mapping[str, str]] = {
    "prompt":      "accept",
    "cycle_start": "append.*cycle_started*",
    "response":    "append.*said*turn_spent*",
    "tool_start":  "append.*tool_started*",
    "tool_end":    "append.*tool_ended*",
    "cycle_end":   "append.*cycle_ended*",
}
# fmt: on
NTH_MAX: Final = 1_000
"""A moment that comes later in a test than that is not waited for."""
REST_S: Final = 60.0
"""For the sessions to come to rest before they are looked at."""
LOOK_AGAIN_S: Final = 0.05
HEARD_MAX: Final = 200_000
"""Durable events that are kept to be compared; beyond them a session is looked at as it is."""


@dataclass(frozen=True, slots=True)
class Audited:
    """How much an audit has looked at, all of which was right."""

    kills: int
    """Processes that were killed."""
    sessions: int
    prompts: int
    calls: int
    """Of tools, those that were not made among them."""
    recovered: int
    """How often an agent was brought back."""


class Chaos:
    """Kills one process of a session at a named moment; a context manager.

    Within it the functions of ``cmdc_runtime`` and ``cmdc_runtime.aio`` speak with a daemon of its
    own. ``kill`` is the victim: the session's agent, the process that forks its tool calls, the
    daemon, or the process that all agents are forked from. ``at`` is the moment: right before or
    after what it names is written to the journal. So ``after_tool_start`` is before the tool runs,
    and ``before_tool_end`` is when it has run and nobody knows of it yet. ``nth`` counts the times
    that the moment comes while the victim is there, over all sessions; there is one kill.
    """

    def __init__(self, *, kill: Victim, at: Moment, nth: int = 1) -> None:
        """Check what is asked for; start nothing yet.

        Raises:
            ValueError: there is no such victim or moment, or ``nth`` is not in 1..1000.

        """
        for name, given, known in (("kill", kill, Victim), ("at", at, Moment)):
            if given not in get_args(known):
                raise ValueError(f"{name}: one of {', '.join(get_args(known))}, got {given!r}")
        if type(nth) is not int or not 1 <= nth <= NTH_MAX:
            raise ValueError(f"nth: a number from 1 to {NTH_MAX}, got {nth!r}")
        self._step = faults.FaultStep(_point(kill, at), nth, _VICTIMS[kill])
        self._what = f"kill={kill!r} at={at!r} nth={nth}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start the daemon."""
        with contextlib.ExitStack() as stack:
            self.daemon = _MortalDaemon(self._step)
            stack.push(self._closed)
            self._client = stack.enter_context(self.daemon.client())
            self._heard = stack.enter_context(_Heard(self._client))
            stack.enter_context(redirected(self.daemon.address))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the daemon with its sessions.

        Raises:
            AssertionError: it left something behind, and the block has not failed otherwise.

        """
        self._stack.__exit__(kind, error, trace)

    @property
    def kills(self) -> int:
        """How many processes were killed so far: none, or one."""
        return self.daemon.kills

    def audit(self, *, accepted: Iterable[PromptReceipt | str] = ()) -> Audited:
        """Wait until every session rests, check what must hold, and return what was looked at.

        The victim was killed. No prompt that was received, or is one of the ``accepted`` receipts,
        is lost, and each cycle has one beginning and one end. No call of a tool with the effects
        ``write`` ran twice. Each conversation is one that a provider takes. The indexes of the
        events have no hole and no repeat, and what was published is still there. Call it within the
        block, before sessions are stopped: one that was is judged by its events and calls alone.

        Raises:
            AssertionError: it is not so; has a line for each thing that is wrong.

        """
        commands = [one if isinstance(one, str) else one.command_id for one in accepted]
        problems = [] if self.kills else [f"nobody was killed: {self._what} did not come"]
        books: list[Books] = []
        for session_id in self._heard.sessions:
            books.append(Books())
            problems += [f"{session_id}: {one}" for one in self._audited(session_id, books[-1])]
        known = {command for one in books for command in one.received}
        problems += [
            f"prompt {command} was acknowledged, and no session knows it"
            for command in commands
            if command not in known
        ]
        if problems:
            raise AssertionError("\n  ".join([f"after {self._what}:", *problems]))
        return Audited(
            kills=self.kills,
            sessions=len(books),
            prompts=sum(len(one.received) for one in books),
            calls=sum(len(one.calls_begun) for one in books),
            recovered=sum(one.recovered for one in books),
        )

    def _audited(self, session_id: SessionId, books: Books) -> list[str]:
        """Look at one session and return what is wrong with it."""
        problems: list[str] = []
        try:
            if not self._rests(session_id):
                problems.append(f"it does not rest within {REST_S:g} s")
            problems += history_problems(self._client.messages(session_id))
            last, is_over = self._client.last_index(session_id), False
        except SessionNotAlive:
            last, is_over = self._heard.last(session_id), True
        with self._client.subscribe(session_id, since=0) as stream:
            while books.last < last:
                books.feed(stream.get(REST_S))
        problems += books.close(is_over=is_over)
        problems += books.missing(self._heard.durable(session_id, last))
        return problems + calls_repeated(self.daemon.calls_noted(session_id))

    def _rests(self, session_id: SessionId) -> bool:
        deadline_s = time.monotonic() + REST_S
        while time.monotonic() < deadline_s:
            status = self._client.status(session_id)
            if status.state == "idle" and not status.queued_prompts and status.pid is not None:
                return True
            time.sleep(LOOK_AGAIN_S)
        return False

    def _closed(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        try:
            self.daemon.close()
        except AssertionError:
            if error is None:
                raise


def _point(kill: Victim, at: Moment) -> str:
    """Return the fault point of a moment.

    An agent dies before it hands a write over: what has left it is committed without it.
    """
    when, _, what = at.partition("_")
    write = _WRITES[what]
    if kill == "agent" and when == "before":
        write = write.replace("append.", "agent.")
    return f"{write}.{when}"


class _MortalDaemon(DaemonProcess):
    """A daemon with a plan for its processes; when it dies of that, the next one is started."""

    def __init__(self, step: faults.FaultStep) -> None:
        self._step = step
        self._closing = threading.Event()
        super().__init__()
        self._plan = self._faults / f"{faults.EVERY}{faults.PLAN}"
        self._plan.write_text(f"{step}\n", encoding="utf-8")
        self._restarter = threading.Thread(target=self._restart, name="chaos-daemon", daemon=True)
        self._restarter.start()

    @property
    def kills(self) -> int:
        """How many steps of the plan were taken."""
        return int(not self._plan.read_text(encoding="utf-8").strip())

    def calls_noted(self, session_id: SessionId) -> list[str]:
        """Return a line for each call that began to run."""
        try:
            text = (self._faults / f"{session_id}{faults.CALLS}").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return text.splitlines()

    def close(self) -> None:
        """End it and check that nothing of it is left."""
        self._closing.set()
        self._restarter.join()
        super().close()

    @property
    def _faults(self) -> Path:
        return self._base / "faults"

    def _environment(self) -> dict[str, str]:
        self._faults.mkdir(exist_ok=True)
        return super()._environment() | {faults.VARIABLE: str(self._faults)}

    def _restart(self) -> None:
        while not self._closing.wait(LOOK_AGAIN_S):
            if self._process.poll() is not None and self.kills:
                self._process = self._spawn()
                self.pid = self._process.pid
                return


class _Heard:
    """Receives what all sessions of a daemon publish, from the first one on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: dict[SessionId, dict[EventIndex, str]] = {}
        self._last: dict[SessionId, EventIndex] = {}
        self._count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._stream: EventStream = self._client.subscribe_all()
        self._thread = threading.Thread(target=self._listen, name="chaos-events", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stream.close()
        self._thread.join()

    @property
    def sessions(self) -> list[SessionId]:
        """The sessions that have published anything, in the order of their first event."""
        with self._lock:
            return list(self._kinds)

    def last(self, session_id: SessionId) -> EventIndex:
        """Return the newest index that the session has published."""
        with self._lock:
            return self._last.get(session_id, EventIndex(0))

    def durable(self, session_id: SessionId, last: EventIndex) -> dict[EventIndex, str]:
        """Return the durable events up to ``last`` that were published, each with its kind."""
        with self._lock:
            kinds = self._kinds.get(session_id, {})
            return {index: kind for index, kind in kinds.items() if index <= last}

    def _listen(self) -> None:
        with contextlib.suppress(CmdcError, InvalidSession):  # the client is closed
            for envelope in self._stream:
                if envelope.session_id.startswith("_"):  # the daemon's own
                    continue
                with self._lock:
                    kinds = self._kinds.setdefault(envelope.session_id, {})
                    self._last[envelope.session_id] = envelope.index
                    if envelope.event.durable and self._count < HEARD_MAX:
                        kinds[envelope.index] = envelope.event.kind
                        self._count += 1
