"""``cmdc chat`` on a terminal: what is typed stays apart from what is shown, and none is lost.

The person is played: bytes into a pseudo-terminal, and what the program writes to it.
"""

import os
import pty
import re
import signal
import sys
import termios
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel, ToolCalls, ToolUse
from tests.programs.terminals import RUN_S, typing

pytest.importorskip("prompt_toolkit")
from cmdc_runtime.cli.chat_screen import Keyboard

pytestmark = [pytest.mark.process, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\r")
READY = "tokens"
"""In the status line, which is there when the line is."""
LINE_IS_LEFT = "\x1b[?2004l"
"""What the line ends with: pastes are no longer marked."""
COOKED_S = 1.0
"""Within so long a terminal that is given back between two lines is seen to be."""


def environment(daemon, home):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return ours | {
        "CMDC_ADDRESS": str(daemon.address),
        "CMDC_STATE_DIR": str(home),
        "TERM": "xterm-256color",
    }


@pytest.fixture(name="chatting")
def _chatting(cmdc_daemon, tmp_path):
    """Return what runs a chat with a model, or one that joins a session."""

    def chat(model, *more):
        name, opts = model.model_source()
        pairs = (f"{key}={value}" for key, value in opts.items())
        options = ["--model", name, *(word for pair in pairs for word in ("--provider-opt", pair))]
        return typing([CMDC, "chat", *options, *more], environment(cmdc_daemon, tmp_path))

    return chat


@pytest.fixture(name="joining")
def _joining(cmdc_daemon, tmp_path):
    return lambda name: typing([CMDC, "attach", name], environment(cmdc_daemon, tmp_path))


def leave(terminal):
    terminal.type("\x04")
    return terminal.status()


def asked(model):
    """Return the texts of the user in the newest request."""
    return [one["content"] for one in model.requests[-1]["messages"] if one["role"] == "user"]


def test_an_answer_is_shown_as_markdown_and_the_status_line_counts(chatting):
    """Stars are bold letters in the end; model, tokens and state stand at the bottom."""
    with ScriptedModel(["A **bold** word."]) as model, chatting(model) as terminal:
        terminal.expect(READY)
        terminal.type("say it\r")
        terminal.expect("\x1b[1mbold\x1b[0m word.")
        terminal.expect("scripted")
        status = leave(terminal)

    assert (status, asked(model)) == (0, ["say it"])


def test_what_is_typed_while_an_answer_comes_is_kept_and_sent_behind_it(chatting):
    """It is neither lost nor inside the answer, and Enter is the only thing that sends it."""
    with ScriptedModel([("First, ", Hold(), "done."), "Second."]) as model:
        with chatting(model) as terminal:
            terminal.expect(READY)
            terminal.type("one\r")
            model.wait_held(RUN_S)
            terminal.expect("First,")
            terminal.type("tw")
            terminal.expect("w")
            model.release()
            terminal.expect("First, done.")
            terminal.type("o\r")
            terminal.expect("Second.")
            status = leave(terminal)

        assert (status, asked(model)) == (0, ["one", "two"])


def test_commands_never_reach_the_model(chatting):
    """/help, /cost, /tools, /model and a misspelt one are answered here; // begins a prompt."""
    with ScriptedModel(["Understood."]) as model:
        with chatting(model, "--tool", "list_dir") as terminal:
            terminal.expect(READY)
            for line, shown in [
                ("/help", "/approve"),
                ("/cost", "0 turns"),
                ("/tools", "list_dir"),
                ("/model", "model openai"),
                ("/hepl", "no command /hepl"),
            ]:
                terminal.type(f"{line}\r")
                terminal.expect(shown)
            terminal.type("//etc is a folder\r")
            terminal.expect("Understood.")
            terminal.type("/exit\r")
            status = terminal.status()

        assert (status, len(model.requests), asked(model)) == (0, 1, ["/etc is a folder"])


def test_a_prompt_may_have_several_lines(chatting):
    """Alt-Enter begins a new line, and Enter sends them all as one."""
    with ScriptedModel(["Both."]) as model, chatting(model) as terminal:
        terminal.expect(READY)
        terminal.type("first\x1b\rsecond\r")
        terminal.expect("Both.")
        status = leave(terminal)

    assert (status, asked(model)) == (0, ["first\nsecond"])


def test_a_key_typed_while_no_line_is_there_waits_for_the_next(chatting, cmdc_daemon, poll):
    """Between Enter and the daemon's answer the terminal takes no key for itself."""
    with ScriptedModel(["Taken."]) as model, chatting(model) as terminal:
        terminal.expect(READY)
        os.kill(cmdc_daemon.pid, signal.SIGSTOP)
        try:
            terminal.type("one\r")
            terminal.expect(LINE_IS_LEFT)
            is_cooked = poll(lambda: not terminal.is_raw(), COOKED_S)
            terminal.type("\x04")
        finally:
            os.kill(cmdc_daemon.pid, signal.SIGCONT)
        status = terminal.status()

    assert (status, is_cooked) == (0, False)


def test_the_terminal_stays_raw_while_something_is_printed():
    """For that, prompt_toolkit would give it back, and a Ctrl-D of that moment would be lost."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs) as terminal:
        keyboard = Keyboard(terminal)
        with keyboard.raw_mode(), keyboard.cooked_mode():
            local = termios.tcgetattr(theirs)[3]
        assert not local & (termios.ICANON | termios.ECHO)


def test_what_was_sent_comes_back_with_up_in_the_next_chat(chatting, tmp_path):
    """The history is a file of this user alone."""
    with ScriptedModel(["Once.", "Twice."]) as model:
        with chatting(model) as terminal:
            terminal.expect(READY)
            terminal.type("remember me\r")
            terminal.expect("Once.")
            leave(terminal)
        with chatting(model) as terminal:
            terminal.expect(READY)
            terminal.type("\x1b[A")
            terminal.expect("remember me")
            terminal.type("\r")
            terminal.expect("Twice.")
            leave(terminal)

        assert asked(model) == ["remember me"]
    assert (tmp_path / "chat-history").stat().st_mode & 0o777 == 0o600


def test_interrupt_aborts_the_answer_and_keeps_what_is_typed(chatting):
    """Ctrl-C is for the answer while one is made; the line stays, and so does the chat."""
    with ScriptedModel([("Well, ", Hold()), "At once."]) as model:
        with chatting(model) as terminal:
            terminal.expect(READY)
            terminal.type("first\r")
            model.wait_held(RUN_S)
            terminal.expect("Well,")
            terminal.type("sec")
            terminal.expect("c")
            terminal.type("\x03")
            terminal.expect("interrupted")
            terminal.type("ond\r")
            terminal.expect("At once.")
            status = leave(terminal)

        assert (status, asked(model)[-1]) == (0, "second")


def test_a_question_takes_the_line_and_gives_back_what_was_typed(chatting):
    """The answer is the person's, and the half of a prompt that stood there comes back."""
    ask = ToolCalls(ToolUse("ask_user", {"question": "Which?", "options": ["red", "blue"]}))
    with ScriptedModel([(Hold(), ask), "Blue it is.", "And more."]) as model:
        with chatting(model, "--tool", "ask_user") as terminal:
            terminal.expect(READY)
            terminal.type("paint\r")
            model.wait_held(RUN_S)
            terminal.type("and th")
            terminal.expect("h")
            model.release()
            terminal.expect("2. blue")
            terminal.expect("answer>")
            terminal.type("2\r")
            terminal.expect("Blue it is.")
            terminal.type("en\r")
            terminal.expect("And more.")
            status = leave(terminal)

        answered = [
            one["content"] for one in model.requests[-1]["messages"] if one["role"] == "tool"
        ]
        assert (status, answered, asked(model)) == (0, ["blue"], ["paint", "and then"])


@cmdc.tool(needs_approval=True)
def deploy(where: str) -> str:
    """Deploy."""
    return f"deployed to {where}"


def test_who_joins_sees_what_was_said_and_decides_what_waits(agent, scripted, joining):
    """A chat joins a session of others, shows what they ask it, and leaves it running."""
    call = ToolCalls(ToolUse("deploy", {"where": "production"}))
    model = scripted("Hello.", call, call, "It is out.")
    session = agent(model, tools=[deploy], session_id="shared")
    session.run("Good morning.", timeout=RUN_S)
    with joining("shared") as terminal:
        terminal.expect("Good morning.")
        terminal.expect(READY)
        session.prompt("Deploy.")
        terminal.expect("deploy(where='production')")
        terminal.expect("y, n or a>")
        terminal.type("y\r")
        terminal.expect("deployed to production")
        terminal.expect("It is out.")
        status = leave(terminal)

    assert (status, session.status().state) == (0, "idle")
