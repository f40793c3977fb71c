"""The client for threads: every call of the API, from any thread.

The calls that guide a running session are in ``guidance``, how a thread is served in ``threaded``.
"""

import os
import threading
from functools import partial
from typing import Any, Final, TypeVar

from cmdc_runtime.client.callbacks import Callback
from cmdc_runtime.client.calls import Calls, Reply
from cmdc_runtime.client.cycle import Pieces, View, Whole
from cmdc_runtime.client.cycle_stream import Clock, CycleStream
from cmdc_runtime.client.edge import edge
from cmdc_runtime.client.engine import Engine
from cmdc_runtime.client.feed import Feed
from cmdc_runtime.client.inbox import ThreadInbox
from cmdc_runtime.client.keeping import Keeping
from cmdc_runtime.client.limits import REPLY_TIMEOUT_S, STOP_TIMEOUT_S
from cmdc_runtime.client.monitors import Monitor, Watch
from cmdc_runtime.client.selection import EventTypes, Selection
from cmdc_runtime.client.session import Session
from cmdc_runtime.client.start import start_request
from cmdc_runtime.client.stream import EventStream
from cmdc_runtime.client.subjects import (
    SessionLike,
    checked_callback,
    checked_group,
    checked_id,
    checked_ref,
)
from cmdc_runtime.commands import PromptReceipt, Status
from cmdc_runtime.events import Envelope, Event
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.messages import Message, OpeningCall
from cmdc_runtime.options import Options
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import TreeNode

T = TypeVar("T")


@edge
class Client(Keeping):
    """Speaks with one daemon; ``close`` it or use ``with``. Any thread may use it.

    A call takes a session object or a session id. Every call may raise DaemonUnavailable,
    CommandTimeout, and InvalidSession or SessionNotAlive where it is about a session.
    """

    def create_agent(self, options: Options | None = None, /, **given: Any) -> Session:
        """Start an agent and return its session when it is ready (Any: see ``Options``).

        Raises:
            InvalidOptions: ``problems`` has one line for each wrong field.
            InvalidTool: a tool cannot travel.
            SessionExists: the session id is taken.
            StartFailed: ``reason`` says at which stage and why.

        """
        return Session(self._run(Calls.start, start_request(options, given)), self)

    def resume_session(
        self,
        session_id: SessionLike,
        /,
        *,
        checkpoint_id: str | None = None,
        new_id: str | None = None,
        **overrides: Any,
    ) -> Session:
        """Start a session from a checkpoint, or from all that a session recorded (see ``Options``).

        An ended session goes on under its id; with ``new_id`` the state becomes a new session, also
        of one that lives. ``overrides`` are options that are to change (Any: as there).

        Raises:
            SessionExists: it is alive and ``new_id`` is not given, or that is taken.
            CheckpointNotFound: there is no such checkpoint.
            InvalidOptions: ``problems`` has one line for each wrong field.
            StartFailed: ``reason`` says at which stage and why.

        """
        found = self._resume(session_id, checkpoint_id, new_id, overrides)
        return Session(found, self)

    def prompt(self, session: SessionLike, text: str) -> PromptReceipt:
        """Send a prompt and return when it is in the journal.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return self._run(Calls.prompt, checked_id(session), text)

    def collect_reply(
        self, session: SessionLike, *, timeout: float | None = REPLY_TIMEOUT_S
    ) -> str:
        """Return the last answer of the cycle that serves this client's latest prompt.

        Raises:
            CollectTimeout: the cycle takes longer than ``timeout`` seconds; it goes on.
            AgentAborted: it was aborted, or the prompt was dropped from the queue.
            AgentFailed: the provider or the kernel failed for good.

        """
        return self._run(Calls.collect_reply, checked_id(session), timeout)

    def run(self, session: SessionLike, text: str, *, timeout: float | None = None) -> Reply:
        """Send a prompt and return what its own cycle led to; raises as both calls above."""
        return self._run(Calls.run, checked_id(session), text, timeout)

    def stream(
        self, session: SessionLike, text: str, *, timeout: float | None = None
    ) -> CycleStream[str]:
        """Send a prompt and return the pieces of its answers, as they come, to be iterated.

        The iteration ends with the prompt's own cycle, which may begin later, and raises what ended
        that as ``collect_reply`` does; ``timeout`` seconds are for all of it. A request that is
        sent again says only what was not said yet; an answer that differs is said from its
        beginning. ``stream_events`` tells more.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, Pieces(), timeout)

    def stream_events(
        self, session: SessionLike, text: str, *, timeout: float | None = None
    ) -> CycleStream[Event]:
        """Send a prompt and return the events of its own cycle, from ``agent_start`` on.

        The last one tells how it ended: ``agent_end``, ``agent_abort``, ``agent_error``, or
        ``prompt_dropped`` where it never began. What no event tells is raised: the session's end.

        Raises:
            InvalidText: ``text`` is not a non-empty str.
            QueueFull: too many prompts wait.

        """
        return self._read(session, text, Whole(), timeout)

    def _read(
        self,
        session: SessionLike,
        text: str,
        view: View[T],
        timeout_s: float | None,
        call: OpeningCall | None = None,
    ) -> CycleStream[T]:
        clock = Clock(timeout_s)
        inbox: ThreadInbox[Envelope] = ThreadInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(view.kinds))
        opened = self._run(Calls.open_cycle, checked_id(session), text, maker, timeout_s, call)
        stream = EventStream(opened.feed, inbox, self._started().loop, self)
        look = partial(self._run, Calls.look_for_end, opened)
        return CycleStream(stream, opened, view, clock, look)

    def stop(
        self, session: SessionLike, *, reason: str = "normal", timeout: float = STOP_TIMEOUT_S
    ) -> None:
        """End the session and return when its process is gone; SIGKILL after ``timeout`` s."""
        self._run(Calls.stop, checked_id(session), reason, timeout)

    def subscribe(
        self,
        session: SessionLike,
        *,
        since: int | None = None,
        types: EventTypes | None = None,
    ) -> EventStream:
        """Return the session's events after index ``since``, or from now on.

        ``types`` are event classes or names, ``plugin:NAME`` for what a plugin or a tool emits;
        others are not shown, EventsLost always is.
        """
        inbox: ThreadInbox[Envelope] = ThreadInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types))
        feed = self._run(Calls.follow, checked_id(session), maker, since)
        return EventStream(feed, inbox, self._started().loop, self)

    def subscribe_all(self, *, types: EventTypes | None = None) -> EventStream:
        """Return the events of all sessions from now on, new sessions included."""
        inbox: ThreadInbox[Envelope] = ThreadInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types), follows_strangers=True)
        feed = self._run(Calls.follow_all, maker)
        return EventStream(feed, inbox, self._started().loop, self)

    def subscribe_group(
        self, group_id: str, *, since: int | None = None, types: EventTypes | None = None
    ) -> EventStream:
        """Return the events of a group's sessions, those that join later included.

        Each is heard after its own index ``since`` (0: its whole past), or from now on.
        """
        inbox: ThreadInbox[Envelope] = ThreadInbox()
        maker = partial(Feed, inbox=inbox, selection=Selection(types))
        feed = self._run(Calls.follow_group, checked_group(group_id), maker, since)
        return EventStream(feed, inbox, self._started().loop, self)

    def unsubscribe(self, stream: EventStream | SessionLike) -> None:
        """Close a stream, or all streams that this client has of a session."""
        if isinstance(stream, EventStream):
            stream.close()
        else:
            self._run(Calls.unfollow, checked_id(stream))

    def last_index(self, session: SessionLike) -> EventIndex:
        """Return the index of the session's newest event, for a later ``since``."""
        return self._run(Calls.find_live, checked_id(session)).last_index

    def session_id(self, session: SessionLike) -> SessionId:
        """Return the session's id; a str that can be one comes back as it is."""
        return checked_id(session)

    def agent_pid(self, session: SessionLike) -> int | None:
        """Return the process id of the agent, None between two incarnations."""
        return self._run(Calls.find_live, checked_id(session)).pid

    def status(self, session: SessionLike) -> Status:
        """Return how the session stands, also while its process does not answer."""
        return self._run(Calls.status, checked_id(session))

    def list_sessions(self) -> list[Status]:
        """Return how all live sessions stand."""
        return self._run(Calls.list_sessions)

    def tree(self) -> TreeNode:
        """Return the supervision tree."""
        return self._run(Calls.tree)

    def messages(self, session: SessionLike) -> list[Message]:
        """Return the conversation, oldest first, system message and tool results included."""
        return self._run(Calls.messages, checked_id(session))

    def monitor(
        self, session: SessionLike, callback: Callback | None = None, *, persistent: bool = False
    ) -> Monitor:
        """Ask to be told when the session's process ends; ``persistent``: each of its processes.

        ``callback(down)`` runs in a thread that is for callbacks only, and may call this client.
        The streams that this client has of the session hold every event of the process by then.
        """
        checked_callback(callback)
        callbacks = self._started().callbacks

        def deliver(watch: Watch, down: Down, _keeps: object = self) -> None:
            if callback is not None:
                callbacks.put(watch, callback, down)

        watch = Monitor(checked_id(session), deliver, persistent=persistent)
        self._run(Calls.watch, watch)
        return watch

    def demonitor(self, session: SessionLike, ref: Monitor | str) -> None:
        """Forget a monitor; after this returned no notice of it is delivered.

        It waits for a callback of this monitor that runs, unless it is called from that callback.
        """
        checked_id(session)
        watch: Watch | None = None
        if isinstance(ref, Monitor):
            ref.mark_removed()
            watch, ref = ref, ref.ref
        watch = self._run(Calls.unwatch, checked_ref(ref)) or watch
        if watch is not None:
            self._started().callbacks.settle(watch)


_inherited: Final[list[Engine]] = []
"""What forks left behind: kept, so that nothing of the parent's is touched by its destruction."""


class DefaultClient(Client):
    """The client of the module-level functions: always open, made anew in every fork.

    When an embedded daemon has died, the next call finds or starts another one.
    """

    _renews = True

    def __init__(self) -> None:
        """Connect at the first call."""
        super().__init__()
        os.register_at_fork(after_in_child=self._renew_lock)

    def close(self) -> None:
        """Close as every client, and connect again when it is used again."""
        super().close()
        self._is_closed = False

    def _on_fork(self, inherited: Engine) -> None:
        _inherited.append(inherited)
        self._engine = None

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()  # whoever held it is not in this process
