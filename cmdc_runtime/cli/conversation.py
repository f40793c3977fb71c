"""One agent that a command starts, prompts, shows and stops, with Ctrl-C meaning abort.

The session is stopped however the command ends, unless it is to be kept; only a SIGKILL leaves it.

What is seen of a running cycle is a view. ``Transcript`` is for people: on a terminal the answer
appears as it is made; elsewhere standard output gets the final answers alone. ``JsonTranscript``
has every event. Both take every event of the session, whoever caused it.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Final, NoReturn, Protocol, TypeVar

from cmdc_runtime import events
from cmdc_runtime.cli.choices import AgentChoice
from cmdc_runtime.cli.questions import AbsentUser, Decision, TerminalUser, User
from cmdc_runtime.cli.terminal import Terminal, json_line
from cmdc_runtime.client.daemon_start import announce_by
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.client.sync.stream import EventStream
from cmdc_runtime.client.typed_answer import Reply
from cmdc_runtime.commands import KillTools
from cmdc_runtime.errors import (
    AgentAborted,
    AgentFailed,
    ApprovalNotFound,
    AskNotFound,
    CmdcError,
    InvalidSession,
    SessionNotAlive,
    aborted,
)
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    AgentResumed,
    AgentStart,
    ApprovalRequired,
    AskUser,
    Envelope,
    Event,
    EventsLost,
    PromptDropped,
    ToolApproved,
    ToolRejected,
)
from cmdc_runtime.ids import CallId, CommandId, EventIndex, new_session_id
from cmdc_runtime.lines import duration, neutral, one_line
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import Down
from cmdc_runtime.requests import TreeNode

# --- views of a cycle -----------------------------------------------------------------------------

_NEW_ANSWERS: Final = (events.RequestStart, events.StreamReset, events.MessageStart)
"""What was shown before one of these is no part of the answer that follows."""


class View(Protocol):
    """Who is shown a cycle."""

    def take(self, envelope: Envelope) -> None:
        """Show one event."""

    def take_down(self, down: Down) -> None:
        """Show that a process ended; may come from another thread."""

    def finish(self, reply: Reply) -> None:
        """Show what came of it."""

    def fail(self, error: CmdcError) -> None:
        """Show that nothing came of it."""


class Transcript:
    """The view for people."""

    def __init__(self, terminal: Terminal) -> None:
        """Write to ``terminal``."""
        self._terminal = terminal
        self._shown = ""
        self._started_ms: dict[CallId, int] = {}

    def take(self, envelope: Envelope) -> None:
        """Show one event."""
        event = envelope.event
        if isinstance(event, _NEW_ANSWERS):
            self._shown = ""
        if event.notice:
            self._terminal.note(str(event), event.notice)
        if special := _SPECIAL.get(type(event)):
            special(self, envelope.at_ms, event)

    def take_down(self, down: Down) -> None:
        """Show that a process ended, unless it was the end of the session."""
        if down.restarting:
            self._terminal.note(str(down), "bad")

    def finish(self, reply: Reply) -> None:
        """Print the answer where it was not shown piece by piece."""
        if self._terminal.is_live:
            self._terminal.end_line()
        else:
            self._terminal.line(neutral(reply.text))

    def fail(self, error: CmdcError) -> None:  # noqa: ARG002 - the caller says it
        """Go to a new line, so that the error has one of its own."""
        self._terminal.end_line()

    def _begin_message(self, _at_ms: int, _event: events.MessageStart) -> None:
        self._terminal.end_line()

    def _text(self, _at_ms: int, event: events.MessageDelta) -> None:
        if self._terminal.is_live:
            self._terminal.piece(neutral(event.delta))
            self._shown += event.delta

    def _thinking(self, _at_ms: int, event: events.ThinkingDelta) -> None:
        if self._terminal.is_live:
            self._terminal.piece(neutral(event.delta), "quiet")

    def _message(self, _at_ms: int, event: events.ResponseComplete) -> None:
        """Show what of the whole answer did not come in pieces: a crash may have taken some."""
        whole, shown, self._shown = event.message.content, self._shown, ""
        if not self._terminal.is_live or whole == shown:
            return
        if not whole.startswith(shown):
            self._terminal.end_line()
            shown = ""
        self._terminal.piece(neutral(whole[len(shown) :]))

    def _tool_started(self, at_ms: int, event: events.ToolExecutionStart) -> None:
        self._started_ms[event.call_id] = at_ms
        self._terminal.note(f"tool {event}")

    def _tool_ended(self, at_ms: int, event: events.ToolExecutionEnd) -> None:
        started_ms = self._started_ms.pop(event.call_id, None)
        took = "" if started_ms is None else f" after {duration(max(0, at_ms - started_ms))}"
        if event.ok:
            self._terminal.note(f"tool {one_line(event.name)} done{took}")
        else:
            failure = f"tool {one_line(event.name)} failed{took}: {one_line(event.text)}"
            self._terminal.note(failure, "warning")


# Any: each takes the event of its own row.
_SPECIAL: Final[Mapping[type[events.Event], Callable[[Transcript, int, Any], None]]] = {
    events.MessageStart: Transcript._begin_message,  # noqa: SLF001 - its own table
    events.MessageDelta: Transcript._text,  # noqa: SLF001
    events.ThinkingStart: Transcript._begin_message,  # noqa: SLF001
    events.ThinkingDelta: Transcript._thinking,  # noqa: SLF001
    events.ResponseComplete: Transcript._message,  # noqa: SLF001
    events.ToolExecutionStart: Transcript._tool_started,  # noqa: SLF001
    events.ToolExecutionEnd: Transcript._tool_ended,  # noqa: SLF001
}


class JsonTranscript:
    """The view for programs: a line for each event, and the outcome as the last one."""

    def __init__(self, terminal: Terminal) -> None:
        """Write to ``terminal``."""
        self._terminal = terminal

    def take(self, envelope: Envelope) -> None:
        """Print the event with its index."""
        self._terminal.line(json_line(envelope))

    def take_down(self, down: Down) -> None:
        """Print nothing: the recovery is an event, and every line but the last one is one."""

    def finish(self, reply: Reply) -> None:
        """Print the reply."""
        self._terminal.line(json_line({"reply": reply}))

    def fail(self, error: CmdcError) -> None:
        """Print the error."""
        self._terminal.line(json_line({"error": {"code": error.code, "message": str(error)}}))


# --- the conversation -----------------------------------------------------------------------------

T = TypeVar("T")

INTERRUPTED: Final = "interrupted"
"""Reason of an abort that Ctrl-C asked for."""
_KILLS: Final[tuple[KillTools, ...]] = ("killable", "all")
"""What the first and the second Ctrl-C end; the one after them leaves."""
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_WARMING: Final = "warming the zygote, which takes some seconds the first time"


class Conversation:
    """A session with its events, from the first one on."""

    def __init__(self, session: Session, stream: EventStream, view: View, user: User) -> None:
        """Show ``view`` what the session does, and let ``user`` answer what it wants to know."""
        self.session = session
        self._stream = stream
        self._view = view
        self._user = user
        self._approvals: dict[str, ApprovalRequired] = {}

    def ask(self, text: str) -> Reply:
        """Return what a prompt leads to, shown meanwhile.

        A call that waits for approval lets the cycle end; each one that is allowed then opens
        another, whose reply is returned instead.

        Raises:
            AgentAborted: by Ctrl-C or by somebody else.
            AgentFailed: the provider or the kernel failed for good.
            SessionNotAlive: the session ended.

        """
        self._approvals.clear()  # those of an earlier prompt were not answered then
        with _interruptible(self._abort):
            reply = self._follow(self.session.prompt(text).command_id)
            while self._approvals:
                wanted = self._approvals.pop(next(iter(self._approvals)))
                if self._is_allowed(wanted):
                    reply = self._resumed(wanted.id, self.session.last_index()) or reply
        self._view.finish(reply)
        return reply

    def _follow(self, command_id: CommandId) -> Reply:
        while True:
            event = self._next().event
            if (reply := _outcome(event, command_id)) is not None:
                return reply
            if isinstance(event, EventsLost):
                return self._collected()

    def _resumed(self, approval_id: str, through: EventIndex) -> Reply | None:
        """Return the reply of the cycle that an approval opened, None if it opened none.

        Events up to ``through`` say which: a session that is busy goes on as it is.
        """
        is_resumed = False
        while True:
            envelope = self._next()
            event = envelope.event
            if isinstance(event, AgentResumed) and event.approval_id == approval_id:
                is_resumed = True
            elif isinstance(event, AgentStart) and is_resumed:
                return self._follow(event.command_id)
            elif isinstance(event, EventsLost):
                return self._collected()
            if envelope.index >= through and not is_resumed:
                return None

    def _collected(self) -> Reply:
        """Ask the session itself: the end may have been among the events that are lost."""
        text = self.session.collect_reply(timeout=None)
        return Reply(text=text, messages=(), usage=TokenUsage(), output=text)

    def _next(self) -> Envelope:
        envelope = self._stream.get()
        self._view.take(envelope)
        event = envelope.event
        if isinstance(event, ApprovalRequired) and event.hold:
            self._is_allowed(event)  # its cycle waits
        elif isinstance(event, ApprovalRequired):
            self._approvals[event.id] = event  # its cycle ends, and then it can go on
        elif isinstance(event, ToolApproved | ToolRejected):
            self._approvals.pop(event.approval_id, None)
        elif isinstance(event, AskUser):
            self._respond(event)
        return envelope

    def _is_allowed(self, wanted: ApprovalRequired) -> bool:
        """Have a call decided on and say whether it may be made."""
        decision: Decision | None = self._answered(lambda: self._user.decision(wanted))
        with contextlib.suppress(ApprovalNotFound):  # somebody else was quicker
            if decision == "reject":
                self.session.reject(wanted.id)
            elif decision is not None:
                self.session.approve(wanted.id, kind=decision)
                return True
        return False

    def _respond(self, question: AskUser) -> None:
        response = self._answered(lambda: self._user.response(question))
        if response is not None:
            with contextlib.suppress(AskNotFound):  # somebody else was quicker
                self.session.user_respond(question.ref, response)

    def _answered(self, answer: Callable[[], T | None]) -> T | None:
        """Return an answer; a Ctrl-C in its place aborts the cycle."""
        try:
            with _signals_handled((signal.SIGINT,), signal.default_int_handler):
                return answer()
        except KeyboardInterrupt:
            self._abort("killable")
            return None

    def _abort(self, kill_tools: KillTools) -> None:
        # The session may have ended meanwhile: the thread that reads its events says so.
        with contextlib.suppress(CmdcError):
            self.session.abort(reason=INTERRUPTED, kill_tools=kill_tools)


@contextlib.contextmanager
def conversation(
    choice: AgentChoice, terminal: Terminal, view: View, *, is_attended: bool = False
) -> Iterator[Conversation]:
    """Start the agent that was chosen; stop it in the end, unless it is to be kept.

    ``is_attended``: a person at the terminal can be asked what the agent wants to know.

    An error that ends it is shown to ``view`` and goes on.
    """
    with (
        ending_in_order(),
        _failures_shown(view),
        contextlib.closing(Client(choice.address)) as client,
        contextlib.ExitStack() as stack,
    ):
        session = started(client, choice, terminal)
        if not choice.keep:
            stack.callback(stop_session, session)
        stream = stack.enter_context(session.subscribe(since=0))
        watch = session.monitor(view.take_down, persistent=True)
        stack.callback(_demonitor, session, watch.ref)
        asked = TerminalUser(terminal) if is_attended else AbsentUser(terminal, is_kept=choice.keep)
        yield Conversation(session, stream, view, asked)
        if choice.keep:
            terminal.note(f"session {session.id} goes on; `cmdc stop {session.id}` ends it")


@contextlib.contextmanager
def _failures_shown(view: View) -> Iterator[None]:
    try:
        yield
    except CmdcError as error:
        view.fail(error)
        raise


def started(client: Client, choice: AgentChoice, terminal: Terminal) -> Session:
    """Return the agent that was chosen, when it is up; an interrupted start leaves none."""
    doing = "starting a daemon" if choice.address is None else "connecting"
    with terminal.waiting(doing) as say, announce_by(say):
        say(_WARMING if _is_warming(client.tree()) else "starting the agent")
        session_id = choice.session_id or new_session_id()
        try:
            return client.create_agent(session_id=session_id, **choice.options)
        except BaseException:
            if choice.session_id is None:  # nobody else's: an interrupted start must not go on
                with contextlib.suppress(CmdcError):
                    client.stop(session_id)
            raise


def _is_warming(tree: TreeNode) -> bool:
    return any(node.id == "nursery" and node.state == "warming" for node in tree.children)


def stop_session(session: Session) -> None:
    """End a session, unless it has ended."""
    with contextlib.suppress(SessionNotAlive, InvalidSession):
        session.stop()


def _demonitor(session: Session, ref: str) -> None:
    with contextlib.suppress(CmdcError):
        session.demonitor(ref)


def _outcome(event: Event, command_id: CommandId) -> Reply | None:
    """Return the reply if the event is the end of the cycle of ``command_id``, else None."""
    match event:
        case AgentEnd(command_id=ended) if ended == command_id:
            said = (one.content for one in reversed(event.messages) if one.role == "assistant")
            text = next(said, "")
            return Reply(text=text, messages=event.messages, usage=event.usage, output=text)
        case AgentAbort(command_id=ended) if ended == command_id:
            raise aborted(event.reason)
        case AgentError(command_id=ended) if ended == command_id:
            raise AgentFailed(event.reason)
        case PromptDropped(command_id=ended) if ended == command_id:
            raise AgentAborted("dropped")
    return None


@contextlib.contextmanager
def _interruptible(abort: Callable[[KillTools], None]) -> Iterator[None]:
    """Call ``abort`` on Ctrl-C, in a thread: the main one may hold any lock when it comes."""
    kills = iter(_KILLS)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        kill = next(kills, None)
        if kill is None:
            raise KeyboardInterrupt
        threading.Thread(target=abort, args=(kill,), name="cmdc-abort", daemon=True).start()

    with _signals_handled((signal.SIGINT,), interrupt):
        yield


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Let a signal that ends the process unwind it, so that the session is stopped."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    with _signals_handled(_ENDING_SIGNALS, leave):
        yield


@contextlib.contextmanager
def _signals_handled(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)
