"""One agent that a command starts, prompts and stops, with Ctrl-C meaning abort.

The session is stopped however the command ends, unless it is to be kept; only a SIGKILL leaves it.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NoReturn

from cmdc_runtime.cli.choices import AgentChoice
from cmdc_runtime.cli.terminal import Terminal
from cmdc_runtime.cli.transcript import View
from cmdc_runtime.client.calls import Reply
from cmdc_runtime.client.client import Client
from cmdc_runtime.client.session import Session
from cmdc_runtime.client.stream import EventStream
from cmdc_runtime.commands import KillTools
from cmdc_runtime.errors import (
    AgentAborted,
    AgentFailed,
    CmdcError,
    InvalidSession,
    SessionNotAlive,
)
from cmdc_runtime.events import (
    AgentAbort,
    AgentEnd,
    AgentError,
    Event,
    EventsLost,
    PromptDropped,
)
from cmdc_runtime.ids import CommandId, new_session_id
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.requests import TreeNode

INTERRUPTED: Final = "interrupted"
"""Reason of an abort that Ctrl-C asked for."""
_KILLS: Final[tuple[KillTools, ...]] = ("killable", "all")
"""What the first and the second Ctrl-C end; the one after them leaves."""
_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_WARMING: Final = "warming the nursery, which takes some seconds the first time"


class Conversation:
    """A session with its events, from the first one on."""

    def __init__(self, session: Session, stream: EventStream, view: View) -> None:
        """Show ``view`` what the session does."""
        self.session = session
        self._stream = stream
        self._view = view

    def ask(self, text: str) -> Reply:
        """Return what a prompt leads to, shown meanwhile.

        Raises:
            AgentAborted: by Ctrl-C or by somebody else.
            AgentFailed: the provider or the kernel failed for good.
            SessionNotAlive: the session ended.

        """
        with _interruptible(self._abort):
            reply = self._follow(self.session.prompt(text).command_id)
        self._view.finish(reply)
        return reply

    def _follow(self, command_id: CommandId) -> Reply:
        while True:
            envelope = self._stream.get()
            self._view.take(envelope)
            if (reply := _outcome(envelope.event, command_id)) is not None:
                return reply
            if isinstance(envelope.event, EventsLost):
                # The end may have been among them, so the session itself is asked.
                text = self.session.collect_reply(timeout=None)
                return Reply(text=text, messages=(), usage=TokenUsage())

    def _abort(self, kill_tools: KillTools) -> None:
        # The session may have ended meanwhile: the thread that reads its events says so.
        with contextlib.suppress(CmdcError):
            self.session.abort(reason=INTERRUPTED, kill_tools=kill_tools)


@contextlib.contextmanager
def conversation(choice: AgentChoice, terminal: Terminal, view: View) -> Iterator[Conversation]:
    """Start the agent that was chosen; stop it in the end, unless it is to be kept.

    An error that ends it is shown to ``view`` and goes on.
    """
    with (
        _ending_in_order(),
        _failures_shown(view),
        contextlib.closing(Client(choice.address)) as client,
        contextlib.ExitStack() as stack,
    ):
        session = _started(client, choice, terminal)
        if not choice.keep:
            stack.callback(_stop, session)
        stream = stack.enter_context(session.subscribe(since=0))
        watch = session.monitor(view.take_down, persistent=True)
        stack.callback(_demonitor, session, watch.ref)
        yield Conversation(session, stream, view)
        if choice.keep:
            terminal.note(f"session {session.id} goes on; `cmdc stop {session.id}` ends it")


@contextlib.contextmanager
def _failures_shown(view: View) -> Iterator[None]:
    try:
        yield
    except CmdcError as error:
        view.fail(error)
        raise


def _started(client: Client, choice: AgentChoice, terminal: Terminal) -> Session:
    private = choice.address is None
    with terminal.waiting("starting a private daemon" if private else "connecting") as say:
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


def _stop(session: Session) -> None:
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
            return Reply(text=next(said, ""), messages=event.messages, usage=event.usage)
        case AgentAbort(command_id=ended) if ended == command_id:
            raise AgentAborted(event.reason)
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
def _ending_in_order() -> Iterator[None]:
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
