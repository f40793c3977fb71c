"""What gets away from a tool call, and calls that try to act as a person."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import ToolCalls, ToolUse
from tests.escapees import COMMAND, has_left, leave, storm, watched

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
GONE_S = 2.0
"""For all that a call has started to be gone, from the event of its end on: GONE_S of its agent."""


def escape(fifo: str) -> str:
    """Start what gets away, and wait."""
    Path(f"{fifo}.pid").write_text(str(os.getpid()))
    leave(fifo)
    signal.pause()
    return "never"


def calls(kind, fifo):
    if kind == "tool":
        return ToolCalls(ToolUse("escape", {"fifo": str(fifo)}))
    begin = COMMAND.format(fifo=fifo, disguise="env -i ")
    command = f"echo $$ > {fifo}.pid; {begin} sleep 60"
    return ToolCalls(ToolUse("shell", {"command": command}))


def end_by_abort(session, _fifo):
    session.abort()


def end_by_steering(session, _fifo):
    session.steer("Do something else.")


def end_by_signal(_session, fifo):
    os.kill(int(Path(f"{fifo}.pid").read_text()), signal.SIGKILL)


@pytest.fixture
def started(scripted, tmp_path):
    """Make a model whose call starts what gets away; the fifo of that, and if it is there."""
    fifo = tmp_path / "fifo"
    with watched(fifo) as is_held:
        yield lambda kind: (scripted(calls(kind, fifo), default="done"), fifo, is_held)


KINDS = ("tool", "shell")
ENDS = {
    "times out": lambda _session, _fifo: None,
    "aborted": end_by_abort,
    "steered": end_by_steering,
    "dies by a signal": end_by_signal,
}


@pytest.mark.fault_case("F86")
@pytest.mark.parametrize(("kind", "end"), [(kind, end) for kind in KINDS for end in ENDS])
def test_nothing_of_a_call_outlives_it(place, agent, started, kind, end):
    """Double forks, setsid, a cleared environment, forking on: all is gone; the session lives."""
    model, fifo, is_held = started(kind)
    timeout = 2.0 if end == "times out" else TURN_S
    tools = [cmdc.tool(timeout=timeout)(escape), cmdc.tools.Shell(timeout=timeout)]
    session = agent(model, tools=tools)
    session.prompt("Go.")
    assert place.poll(lambda: has_left(fifo))
    ENDS[end](session, fifo)
    assert place.poll(lambda: session.status().state == "idle")
    is_gone = place.poll(lambda: not is_held(), GONE_S)

    assert is_gone
    assert session.run("Still there?", timeout=TURN_S).text == "done"


# --- what takes the host of a call away, or outruns it ------------------------------------------

LATE_S = 6.0
"""The host gives a call up after a second, its agent gives the host up after two; then it ends."""


def kill_host():
    os.kill(os.getppid(), signal.SIGKILL)


def stop_host():
    os.kill(os.getppid(), signal.SIGSTOP)


def fork_on(fifo):
    leave(fifo)


def hide(fifo):
    """Start another program in another session, from which nobody reads whose it is."""
    held = os.open(fifo, os.O_WRONLY)
    os.set_inheritable(held, True)
    program = ["setsid", "setsid", "sleep", "60"]
    subprocess.Popen(program, env={}, close_fds=False).wait(LATE_S)


WHAT = {"forks on": fork_on, "hides": hide, "storms": storm}
HARM = {"is killed": kill_host, "is stopped": stop_host, "lives": lambda: None}


@cmdc.tool(timeout=TURN_S)
def escape_and_harm(fifo: str, what: str, harm: str) -> str:
    """Start what gets away, harm the host, and wait."""
    WHAT[what](fifo)
    Path(fifo).write_text("held")  # stays there: who is gone before anybody looks was seen
    HARM[harm]()
    os.mkfifo(f"{fifo}.done")
    signal.pause()
    return "never"


@pytest.mark.fault_case("F88")
@pytest.mark.parametrize(
    ("what", "harm"),
    [
        *((what, harm) for what in ("forks on", "hides") for harm in ("is killed", "is stopped")),
        ("storms", "lives"),
    ],
)
def test_nothing_of_a_call_outlives_it_whatever_becomes_of_its_host(  # noqa: PLR0913, PLR0917
    place, agent, scripted, tmp_path, what, harm
):
    """A host that cannot end a call is ended with all that its calls have started."""
    fifo = tmp_path / "fifo"
    arguments = {"fifo": str(fifo), "what": what, "harm": harm}
    with watched(fifo) as is_held:
        model = scripted(ToolCalls(ToolUse("escape_and_harm", arguments)), default="done")
        session = agent(model, tools=[escape_and_harm])
        session.prompt("Go.")
        assert place.poll(is_held)
        if harm != "is killed":
            assert place.poll((tmp_path / "fifo.done").exists, TURN_S)  # a storm leaves it little
            session.abort()
        assert place.poll(lambda: session.status().state == "idle")
        is_gone = place.poll(lambda: not is_held(), LATE_S)

        assert is_gone
        assert session.run("Still there?", timeout=TURN_S).text == "done"
        assert session.status().restarts == 0
