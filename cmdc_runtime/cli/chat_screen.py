"""``cmdc chat`` on a terminal: a line to type in that nothing else is written into.

The main thread has the line (prompt_toolkit); another one follows the session's events and prints
above it (rich). So what is typed while an answer comes stays where it is, and is sent when Enter is
pressed: as a prompt behind the running one. An answer is shown as it grows right above the line,
and for good, as Markdown, once it is there. Whatever the session does is shown, also what others
have asked it: a chat may join a session that is at work.

A question takes the line: what was being typed is put aside, and back when it is answered.
prompt_toolkit is an extra (``cli``); without it, or on a dumb terminal, ``chat`` is the plain form.
"""

import contextlib
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from cmdc_runtime import events
from cmdc_runtime.cli.questions import decision_in, response_in
from cmdc_runtime.cli.slash import SlashCommands
from cmdc_runtime.cli.terminal import RICH_STYLES
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.errors import AskNotFound, CmdcError, SessionNotAlive
from cmdc_runtime.lines import duration, neutral, one_line
from cmdc_runtime.runtime_dir import PRIVATE_MODE, default_state_dir

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.stream import EventStream
    from cmdc_runtime.commands import KillTools

# --- what is typed --------------------------------------------------------------------------------


class Keyboard(Vt100Input):
    """Keys, of a terminal that is raw as long as a chat lasts.

    What is typed while no line is there waits for the next one: between Enter and the daemon's
    answer, and while something is printed, for which prompt_toolkit gives the terminal back. A
    terminal that has its keys itself takes a Ctrl-D for an end of input that nobody reads.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Leave the terminal raw; what is written to it is the same in both."""
        return contextlib.nullcontext()


# --- what is kept of what was typed ---------------------------------------------------------------

HISTORY_NAME: Final = "chat-history"
HISTORY_BYTES_MAX: Final = 2**20
"""Of the lines that were typed in earlier chats; beyond it the older half is dropped."""


def history_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return where the lines are that were typed before; it is this user's alone, and bounded."""
    path = default_state_dir(environ, home=home) / HISTORY_NAME
    path.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    if path.stat().st_size > HISTORY_BYTES_MAX:
        newer = path.read_bytes()[-HISTORY_BYTES_MAX // 2 :]
        path.write_bytes(newer[newer.find(b"\n\n#") + 1 :])  # from the beginning of an entry
    return path


# --- what is shown --------------------------------------------------------------------------------

PARTIAL_LINES_MAX: Final = 12
"""Of an answer that is being made, so many of the newest lines are shown above the line."""
TOOL_LINES_SHOWN: Final = 6
REFRESH_S: Final = 0.2
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BUSY: Final = {"running", "streaming", "executing_tools"}
_ENDS: Final = (events.AgentEnd, events.AgentAbort, events.AgentError)


@dataclass(slots=True)
class Shown:
    """What the status line and the text above the line are made of; the two threads share it."""

    session_id: str
    state: str = "idle"
    model: str = ""
    tokens: int = 0
    cost_usd: float | None = None
    partial: str = ""
    thinking: bool = False
    tool: str = ""
    ticks: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether a cycle runs."""
        return self.state in _BUSY

    def status_line(self) -> str:
        """Return the line at the bottom."""
        self.ticks += 1
        spin = f"{_SPINNER[self.ticks % len(_SPINNER)]} " if self.is_busy else ""
        doing = f"{self.state} {self.tool}".strip()
        cost = "" if self.cost_usd is None else f" · ${self.cost_usd:.4f}"
        facts = (
            f"{spin}{doing}",
            one_line(self.model),
            f"{self.tokens} tokens{cost}",
            self.session_id,
        )
        return " · ".join(fact for fact in facts if fact)

    def partial_lines(self) -> str:
        """Return the end of the answer that is being made, each line whole."""
        lines = neutral(self.partial).split("\n")[-PARTIAL_LINES_MAX:]
        return "\n".join(lines) + "\n" if any(lines) else ""


class Printer:
    """Prints above the line, from any thread, in colours unless ``NO_COLOR`` says otherwise."""

    def __init__(self, out: Callable[[str], object]) -> None:
        """Write by ``out``."""
        self._out = out

    def markdown(self, text: str) -> None:
        """Print a text of a model."""
        self._print(Markdown(neutral(text), hyperlinks=False))

    def say(self, text: str, style: str = "plain") -> None:
        """Print a line of ours."""
        self._print(Text(neutral(text), style=RICH_STYLES[style]))

    def _print(self, what: Any) -> None:  # Any: whatever rich takes
        columns = shutil.get_terminal_size().columns
        target = io.StringIO()
        console = Console(
            file=target,
            force_terminal=True,
            width=columns,
            highlight=False,
            no_color=bool(os.environ.get("NO_COLOR")) or None,
        )
        console.print(what)
        self._out(target.getvalue())


# --- what happens ---------------------------------------------------------------------------------

Question = events.ApprovalRequired | events.AskUser


class ChatScreen:
    """One chat with one session, until it is left or the session has ended."""

    def __init__(self, client: Client, session: Session, address: str | None) -> None:
        """Talk with a session."""
        self._client, self._session = client, session
        self.shown = Shown(session.id)
        self._printer = Printer(lambda _text: None)
        self._slash = SlashCommands(client, session, self._say, address)
        self._questions: dict[str, Question] = {}
        self._draft = ""
        self._kills: list[KillTools] = []
        self._over: str | None = None
        self._started_ms: dict[str, int] = {}
        self._keyboard = Keyboard(sys.stdin)
        self._typed: PromptSession[str] = PromptSession(
            input=self._keyboard,
            history=FileHistory(str(history_file(os.environ, Path.home()))),
            message=self._message,
            bottom_toolbar=self._toolbar,
            refresh_interval=REFRESH_S,
            key_bindings=self._keys(),
            erase_when_done=True,  # what was sent is shown as the session has it
            reserve_space_for_menu=0,
        )

    def run(self, since: int) -> None:
        """Show what happens after event ``since``, and take what is typed, until it is left."""
        with (
            self._keyboard.raw_mode(),
            patch_stdout(raw=True),
            self._client.subscribe(self._session, since=since) as stream,
        ):
            self._printer = Printer(sys.stdout.write)
            self._look()
            follower = threading.Thread(
                target=self._follow, args=(stream,), name="cmdc-chat", daemon=True
            )
            follower.start()
            with contextlib.suppress(EOFError):
                while self._over is None and not self._slash.is_over:
                    self._take(self._line())
            stream.close()
            follower.join(REFRESH_S * 10)
        if self._over:
            self._say(self._over, "bad")

    # --- the line -------------------------------------------------------------------------------

    def _line(self) -> str:
        draft, self._draft = self._draft, ""
        if self._questions:
            self._draft, draft = draft, ""
        return self._typed.prompt(default=draft)

    def _take(self, line: str) -> None:
        if self._over is not None:
            return
        try:
            if line.startswith("/") and not line.startswith("//"):
                self._slash.take(line)
            elif self._questions:
                self._answer(line)
            elif line.strip() and (text := self._slash.take(line)) is not None:
                self._kills = ["killable", "all"]
                if self._session.prompt(text).queued:
                    self._say("queued behind the running answer", "quiet")
        except CmdcError as error:
            self._say(str(error), "bad")

    def _message(self) -> FormattedText:
        mark = "> "
        if self._questions:
            first = next(iter(self._questions.values()))
            mark = "y, n or a> " if isinstance(first, events.ApprovalRequired) else "answer> "
        return FormattedText([("", self.shown.partial_lines()), ("bold", mark)])

    def _toolbar(self) -> FormattedText:
        return FormattedText([("", self.shown.status_line())])

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            if self.shown.is_busy:
                self._abort()
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._say("Ctrl-D leaves, /help lists what can be typed", "quiet")

        @keys.add("escape", "enter")
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys

    def _abort(self) -> None:
        kill: KillTools = self._kills.pop(0) if self._kills else "all"

        def abort() -> None:
            with contextlib.suppress(CmdcError):
                self._session.abort(reason="interrupted", kill_tools=kill)

        threading.Thread(target=abort, name="cmdc-abort", daemon=True).start()

    # --- questions ------------------------------------------------------------------------------

    def _ask(self, key: str, question: Question) -> None:
        """Use the line for an answer; what is typed in it comes back afterwards."""
        self._questions[key] = question
        if isinstance(question, events.AskUser):
            for number, option in enumerate(question.options, 1):
                self._say(f"  {number}. {option}")
        app = self._typed.app
        if (loop := app.loop) is not None:
            loop.call_soon_threadsafe(self._stash_draft)

    def _stash_draft(self) -> None:
        buffer = self._typed.default_buffer
        if buffer.text and not self._draft:
            self._draft = buffer.text
        buffer.reset()

    def _answer(self, line: str) -> None:
        key, question = next(iter(self._questions.items()))
        if isinstance(question, events.ApprovalRequired):
            decision = decision_in(line)
            if decision is None or (decision != "reject" and decision not in question.options):
                self._say("y allows it, n refuses it, a allows every later call, too", "quiet")
                return
            if decision == "reject":
                self._session.reject(key)
            else:
                self._session.approve(key, kind=decision)
        elif (answer := response_in(line, question.options)) is None:
            return
        else:
            with contextlib.suppress(AskNotFound):  # somebody else was quicker
                self._session.user_respond(key, answer)
        self._questions.pop(key, None)

    # --- events ---------------------------------------------------------------------------------

    def _follow(self, stream: "EventStream") -> None:
        try:
            for envelope in stream:
                self._see(envelope.at_ms, envelope.event)
                self._typed.app.invalidate()
        except SessionNotAlive as ended:
            self._leave(str(ended))
        except CmdcError as error:
            self._leave(str(error))
        else:
            return

    def _leave(self, why: str) -> None:
        self._over = why
        app = self._typed.app
        if (loop := app.loop) is not None:
            with contextlib.suppress(Exception):  # it is being left already
                loop.call_soon_threadsafe(lambda: app.exit(result=""))

    def _see(self, at_ms: int, event: events.Event) -> None:
        shown = self.shown
        if special := _SEEN.get(type(event)):
            special(self, at_ms, event)
        elif event.notice:
            self._say(str(event), event.notice)
        if isinstance(event, _ENDS):
            self._print_partial()
            if not isinstance(event, events.AgentEnd):
                self._say(str(event), "bad")
            shown.state, shown.tool = "idle", ""
            self._look()

    def _begun(self, _at_ms: int, _event: events.AgentStart) -> None:
        self.shown.state = "running"

    def _prompted(self, _at_ms: int, event: events.PromptReceived) -> None:
        for number, line in enumerate(event.text.split("\n")):
            self._say(f"{'  ' if number else '> '}{line}", "quiet")

    def _text(self, _at_ms: int, event: events.MessageDelta) -> None:
        self.shown.state, self.shown.thinking = "streaming", False
        self.shown.partial += event.delta

    def _thinking(self, _at_ms: int, _event: events.ThinkingDelta) -> None:
        self.shown.state, self.shown.thinking = "streaming", True

    def _reset(self, _at_ms: int, _event: events.Event) -> None:
        self.shown.partial = ""

    def _complete(self, _at_ms: int, event: events.ResponseComplete) -> None:
        self.shown.partial = ""
        if event.message.content.strip():
            self._printer.markdown(event.message.content)

    def _print_partial(self) -> None:
        """Print what came of an answer that will not be completed."""
        partial, self.shown.partial = self.shown.partial, ""
        if partial.strip():
            self._printer.markdown(partial)

    def _tool_started(self, at_ms: int, event: events.ToolExecutionStart) -> None:
        self._started_ms[event.call_id] = at_ms
        self.shown.state, self.shown.tool = "executing_tools", one_line(event.name)
        self._say(f"→ {event}", "kind")

    def _tool_ended(self, at_ms: int, event: events.ToolExecutionEnd) -> None:
        took = duration(max(0, at_ms - self._started_ms.pop(event.call_id, at_ms)))
        self.shown.tool = ""
        lines = event.text.strip().split("\n")
        for line in lines[:TOOL_LINES_SHOWN]:
            self._say(f"  │ {one_line(line)}", "quiet")
        more = len(lines) - TOOL_LINES_SHOWN
        rest = f", {more} more lines" if more > 0 else ""
        style = "good" if event.ok else "warning"
        self._say(f"  {'done' if event.ok else 'failed'} after {took}{rest}", style)

    def _approval(self, _at_ms: int, event: events.ApprovalRequired) -> None:
        self._say(str(event), "warning")
        self._ask(event.id, event)

    def _decided(self, _at_ms: int, event: events.ToolApproved | events.ToolRejected) -> None:
        self._questions.pop(event.approval_id, None)
        self._say(str(event), event.notice or "quiet")

    def _question(self, _at_ms: int, event: events.AskUser) -> None:
        self._say(str(event), "warning")
        self._ask(event.ref, event)

    def _look(self) -> None:
        """Bring the status line up to date."""
        with contextlib.suppress(CmdcError):
            status = self._session.status()
            self.shown.model, self.shown.tokens = status.model, status.total_tokens
            self.shown.cost_usd, self.shown.state = status.cost_usd, status.state

    def _say(self, text: str, style: str = "plain") -> None:
        self._printer.say(text, style)


# Any: each takes the event of its own row.
_SEEN: Final[Mapping[type[events.Event], Callable[[ChatScreen, int, Any], None]]] = {
    events.AgentStart: ChatScreen._begun,  # noqa: SLF001 - its own table
    events.PromptReceived: ChatScreen._prompted,  # noqa: SLF001 - its own table
    events.MessageDelta: ChatScreen._text,  # noqa: SLF001 - its own table
    events.ThinkingDelta: ChatScreen._thinking,  # noqa: SLF001 - its own table
    events.StreamReset: ChatScreen._reset,  # noqa: SLF001 - its own table
    events.ResponseComplete: ChatScreen._complete,  # noqa: SLF001 - its own table
    events.ToolExecutionStart: ChatScreen._tool_started,  # noqa: SLF001 - its own table
    events.ToolExecutionEnd: ChatScreen._tool_ended,  # noqa: SLF001 - its own table
    events.ApprovalRequired: ChatScreen._approval,  # noqa: SLF001 - its own table
    events.ToolApproved: ChatScreen._decided,  # noqa: SLF001 - its own table
    events.ToolRejected: ChatScreen._decided,  # noqa: SLF001 - its own table
    events.AskUser: ChatScreen._question,  # noqa: SLF001 - its own table
}


def last_messages(session: Session, count: int) -> Iterator[tuple[str, str]]:
    """Yield role and text of the newest messages with a text, for who joins a session."""
    texts = [one for one in session.messages() if one.content and one.role in {"user", "assistant"}]
    yield from ((one.role, one.content) for one in texts[-count:])
