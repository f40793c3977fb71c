"""``cmdc chat``: line by line from a pipe, and with Ctrl-C and Ctrl-D on a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.testing import Error, Hold, ScriptedModel, ToolCalls, ToolUse
from tests.programs.terminals import RUN_S, typing

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")


def chat(model, daemon):
    """Return the command and the environment of a chat with a scripted model."""
    name, opts = model.model_source()
    pairs = (f"{key}={value}" for key, value in opts.items())
    options = ["--model", name, *(word for pair in pairs for word in ("--provider-opt", pair))]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return [CMDC, "chat", "--plain", *options], ours | {
        "CMDC_ADDRESS": str(daemon.address),
        "TERM": "xterm",
    }


def piped(model, daemon, stdin):
    """Run a chat with a pipe to its end."""
    command, environment = chat(model, daemon)
    return subprocess.run(
        command,
        input=stdin,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def test_chat_answers_a_pipe_line_by_line(cmdc_daemon):
    """Every line is a prompt of the same session, an empty one is none, and the end leaves."""
    with ScriptedModel(["One.", "Two."]) as model:
        done = piped(model, cmdc_daemon, "first\n\nsecond")
        before = [one["role"] for one in model.wait_request(2)["messages"]]

    assert (done.returncode, done.stdout) == (0, "One.\nTwo.\n"), done.stderr
    assert before[-3:] == ["user", "assistant", "user"]


def test_failed_line_does_not_end_the_chat(cmdc_daemon):
    """A line without an answer is reported and counts in the status; the next one is answered."""
    with ScriptedModel([Error(400, "refused"), "Two."]) as model:
        done = piped(model, cmdc_daemon, "first\nsecond\n")

    assert (done.returncode, done.stdout, "refused" in done.stderr) == (1, "Two.\n", True)


def test_interrupt_ends_the_answer_and_not_the_chat(cmdc_daemon):
    """On a terminal text shows as it comes, Ctrl-C aborts the answer, Ctrl-D leaves."""
    with (
        ScriptedModel([("Well, ", Hold()), "At once."]) as model,
        chatting(model, cmdc_daemon) as terminal,
    ):
        terminal.expect("> ")
        terminal.type("first\n")
        model.wait_held(RUN_S)
        terminal.expect("Well, ")
        terminal.type("\x03")
        terminal.expect("aborted: interrupted")
        terminal.expect("> ")
        terminal.type("second\n")
        terminal.expect("At once.")
        terminal.expect("> ")
        terminal.type("\x04")

        assert terminal.status() == 0


def test_question_is_asked_on_the_terminal(cmdc_daemon):
    """A person answers a tool's question with the number of an option, and the cycle goes on."""
    ask = ToolCalls(ToolUse("ask_user", {"question": "Which?", "options": ["red", "blue"]}))
    with (
        ScriptedModel([ask, "Blue it is."]) as model,
        chatting(model, cmdc_daemon, "--tool", "ask_user") as terminal,
    ):
        terminal.expect("> ")
        terminal.type("paint\n")
        terminal.expect("2. blue")
        terminal.expect("number, or your own words: ")
        terminal.type("2\n")
        terminal.expect("Blue it is.")
        terminal.expect("> ")
        answered = model.requests[-1]["messages"][-1]["content"]
        terminal.type("\x04")

        assert (answered, terminal.status()) == ("blue", 0)


def test_interrupted_question_is_the_end_of_the_answer(cmdc_daemon):
    """Ctrl-C in place of an answer aborts the cycle that waits for it, and keeps the chat."""
    ask = ToolCalls(ToolUse("ask_user", {"question": "Which?"}))
    with (
        ScriptedModel([ask]) as model,
        chatting(model, cmdc_daemon, "--tool", "ask_user") as terminal,
    ):
        terminal.expect("> ")
        terminal.type("paint\n")
        terminal.expect("your answer: ")
        terminal.type("\x03")
        terminal.expect("aborted: interrupted")
        terminal.expect("> ")
        terminal.type("\x04")

        assert terminal.status() == 0


def chatting(model, daemon, *more):
    """Run a chat on a pseudo-terminal."""
    command, environment = chat(model, daemon)
    return typing([*command, *more], environment)
