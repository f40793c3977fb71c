"""What an abort ends and what it leaves: processes, threads, immune calls, queues, late results."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Hold, Stall, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
POLL_S = 0.02
STALL_CHARS = 18


def note(log, text):
    with Path(log).open("a") as file:
        file.write(f"{text} ")


def noted(log):
    return log.read_text().split() if log.exists() else []


def wait_for(path):
    never = threading.Event()
    while not Path(path).exists():
        never.wait(POLL_S)


@cmdc.tool
def burn(log: str, end: str) -> str:
    """Note the process, burn its processor until ``end`` is there, note that it is over."""
    note(log, os.getpid())
    while not Path(end).exists():
        sum(range(10_000))
    note(log, "over")
    return "burnt"


@cmdc.tool(isolation="thread")
def burn_here(log: str, end: str) -> str:
    """Burn the agent's own processor in a thread."""
    note(log, os.getpid())
    while not Path(end).exists():
        sum(range(10_000))
    note(log, "over")
    return "burnt here"


@cmdc.tool
def keep(log: str, end: str) -> str:
    """Note the process, wait until ``end`` is there, note that it is over."""
    note(log, os.getpid())
    wait_for(end)
    note(log, "over")
    return "kept"


TOOLS = [burn, burn_here, keep]


def calling(folder, *names):
    """Return an answer that calls tools; each has a log of its own, and all end together."""
    logs = {name: {"log": str(folder / name), "end": str(folder / "end")} for name in names}
    return ToolCalls(*(ToolUse(name, arguments) for name, arguments in logs.items()))


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def history(session):
    return [(one.role, one.content) for one in session.messages()]


def test_burning_process_is_gone(agent, scripted, cycle_of, poll, tmp_path):
    """A call that never yields is ended like any other, and said to be before the cycle is."""
    model = scripted(calling(tmp_path, "burn"), "next")
    session = agent(model, tools=TOOLS)
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: noted(tmp_path / "burn"))
    process = psutil.Process(int(noted(tmp_path / "burn")[0]))
    session.abort(reason="enough")
    found = cycle_of(stream)
    (killed,) = [one.event for one in found if one.event.kind == "tool_killed"]
    _, left = psutil.wait_procs([process], TURN_S)

    assert (found[-1].event.kind, found[-1].event.reason) == ("agent_abort", "enough")
    assert (killed.name, killed.reason) == ("burn", "enough")
    assert left == []
    assert session.run("Next.", timeout=TURN_S).text == "next"


def test_burning_thread_is_abandoned(agent, scripted, poll, tmp_path):
    """It cannot be ended; the abort is reported while it burns, and its result changes nothing."""
    model = scripted(calling(tmp_path, "burn_here"), "next", "last")
    session = agent(model, tools=TOOLS)
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: noted(tmp_path / "burn_here"))
    session.abort()
    killed = event_of(stream, events.ToolKilled)
    session.run("Next.", timeout=TURN_S)
    before = history(session)
    (tmp_path / "end").touch()
    assert poll(lambda: len(noted(tmp_path / "burn_here")) == 2)
    reply = session.run("Last.", timeout=TURN_S)

    assert (killed.name, killed.reason) == ("burn_here", "abandoned")
    assert reply.text == "last"
    assert history(session) == [*before, ("user", "Last."), ("assistant", "last")]


@pytest.mark.parametrize(
    "case",
    [
        ("all", {"burn", "burn_here", "keep"}, {"burn_here"}),
        ("killable", {"burn", "burn_here"}, {"burn_here", "keep"}),
        ("none", set(), {"burn", "burn_here", "keep"}),
    ],
    ids=["all", "killable", "none"],
)
def test_abort_ends_the_calls_that_it_names(agent, scripted, poll, tmp_path, case):
    """Of the others none counts any more: they run on, and the conversation stays as it is."""
    kill_tools, killed, surviving = case
    names = ("burn", "burn_here", "keep")
    model = scripted(calling(tmp_path, *names), "next")
    session = agent(model, tools=TOOLS, interrupt_immune_tools=["keep"])
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: all(noted(tmp_path / name) for name in names))
    processes = {name: psutil.Process(int(noted(tmp_path / name)[0])) for name in names}
    session.abort(kill_tools=kill_tools)
    reported = [event_of(stream, events.ToolKilled).name for _ in killed]
    event_of(stream, events.AgentAbort)
    psutil.wait_procs([processes[name] for name in names if name not in surviving], TURN_S)
    alive = {name for name, process in processes.items() if process.is_running()}
    before = history(session)
    (tmp_path / "end").touch()
    assert poll(lambda: all(len(noted(tmp_path / name)) == 2 for name in surviving))
    session.run("Next.", timeout=TURN_S)

    assert alive == surviving
    assert set(reported) == killed
    assert len([text for role, text in before if role == "tool_result"]) == len(names)
    assert history(session) == [*before, ("user", "Next."), ("assistant", "next")]
    assert {name for name in names if len(noted(tmp_path / name)) == 2} == surviving


@pytest.mark.parametrize("kill_tools", ["all", "killable", "none"])
def test_call_that_has_not_begun_never_begins(agent, scripted, poll, tmp_path, kill_tools):
    """What an abort leaves running had begun; a call that waited for its turn is over with it."""
    model = scripted(calling(tmp_path, "burn", "keep"), "next")
    session = agent(
        model, tools=TOOLS, interrupt_immune_tools=["burn", "keep"], max_parallel_tools=1
    )
    stream = session.subscribe()
    session.prompt("Go.")
    assert poll(lambda: noted(tmp_path / "burn"))
    session.abort(kill_tools=kill_tools)
    killed = event_of(stream, events.ToolKilled)
    (tmp_path / "end").touch()
    if kill_tools != "all":
        assert poll(lambda: len(noted(tmp_path / "burn")) == 2)
    assert session.run("Next.", timeout=TURN_S).text == "next"

    assert killed.name == ("burn" if kill_tools == "all" else "keep")
    assert noted(tmp_path / "keep") == []


def test_second_abort_is_reported_and_changes_nothing(agent, scripted, cycle_of):
    """Who aborts twice gets two events; the reason of the cycle's end stays the first one."""
    model = scripted((Hold(), "never"), "next")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    session.abort(reason="first")
    before = history(session)
    session.abort(reason="second")
    reasons = [cycle_of(stream)[-1].event.reason for _ in range(2)]

    assert reasons == ["first", "second"]
    assert history(session) == before
    with pytest.raises(cmdc.AgentAborted, match="first"):
        session.collect_reply()
    assert session.run("Next.", timeout=TURN_S).text == "next"


def test_abort_of_a_stream_that_fell_silent(agent, scripted, cycle_of):
    """What came before the silence stays, marked, and the model sees it with the next request."""
    model = scripted(Stall(after_chars=STALL_CHARS), "next")
    session = agent(model, stall_after=0.05)
    stream = session.subscribe()
    session.prompt("Go.")
    event_of(stream, events.MessageDelta)  # on a busy machine silence comes before it, too
    event_of(stream, events.StreamStalled)
    session.abort(reason="enough")
    found = cycle_of(stream)
    partial = session.messages()[-1]
    session.run("Next.", timeout=TURN_S)
    sent = [(one["role"], one["content"]) for one in model.requests[-1]["messages"][-3:]]

    assert found[-1].event.reason == "enough"
    assert partial.content == Stall(after_chars=STALL_CHARS).text
    assert partial.metadata["interrupted"] is True
    assert sent == [("user", "Go."), ("assistant", partial.content), ("user", "Next.")]


def test_abort_drops_what_waits(agent, scripted, cycle_of):
    """Steering and prompts are dropped, each with its text, and the model never hears of them."""
    model = scripted((Hold(), "never"), "next")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    session.prompt("Waiting.")
    session.steer("Left.")
    session.abort()
    cycle_of(stream)
    dropped = [event_of(stream, events.PromptDropped).text for _ in range(2)]
    reply = session.run("Next.", timeout=TURN_S)

    assert dropped == ["Left.", "Waiting."]
    assert reply.text == "next"
    asked = [text for role, text in history(session) if role == "user"]
    assert asked == ["Go.", "Next."]
    assert session.status().queued_prompts == session.status().queued_steering == 0


def test_abort_may_leave_what_waits(agent, scripted, cycle_of):
    """Steering opens the next cycle, and the prompts come after it."""
    model = scripted((Hold(), "never"), "Left.", "Served.")
    session = agent(model)
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    session.prompt("Waiting.")
    session.steer("Left.")
    session.abort(clear_queue=False)
    ends = [cycle_of(stream)[-1].event.kind for _ in range(3)]

    assert ends == ["agent_abort", "agent_end", "agent_end"]
    said = [text for role, text in history(session) if role in {"user", "assistant"}]
    assert said == ["Go.", "Left.", "Left.", "Waiting.", "Served."]
    assert session.collect_reply(timeout=TURN_S) == "Served."


def test_abort_outlives_the_process(agent, scripted, poll, tmp_path):
    """A process that dies after an abort comes back idle: nothing is asked or run again."""
    model = scripted(calling(tmp_path, "keep"), "next")
    session = agent(model, tools=TOOLS, interrupt_immune_tools=["keep"])
    session.prompt("Go.")
    assert poll(lambda: noted(tmp_path / "keep"))
    session.prompt("Waiting.")
    session.abort()
    before = history(session)
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert poll(lambda: session.status().incarnation == 2)

    assert history(session) == before
    assert session.status().state == "idle"
    assert session.run("Next.", timeout=TURN_S).text == "next"
    assert len(model.requests) == 2
    assert len(noted(tmp_path / "keep")) == 1
