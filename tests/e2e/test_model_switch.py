"""``switch_model``: the answer under way ends where it began, the next request goes elsewhere."""

import os
import signal
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.testing import Error, Hold, Text, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 20.0
POLL_S = 0.02
OTHER = "openai/another"


def noted(log):
    return log.read_text().split() if log.exists() else []


@cmdc.tool(effects="read")
def keep(log: str, end: str, *, context: cmdc.Context) -> str:
    """Note the model, and wait until the file ``end`` is there."""
    with Path(log).open("a") as file:
        file.write(f"{context.model} ")
    never = threading.Event()
    while not Path(end).exists():
        never.wait(POLL_S)
    return "kept"


def event_of(stream, kind):
    """Read a stream up to the first event of a kind and return it."""
    while True:
        event = stream.get(TURN_S).event
        if isinstance(event, kind):
            return event


def sent(model, number):
    """Return what request ``number`` held after the system prompt: roles and texts."""
    said = model.wait_request(number)["messages"]
    return [(one["role"], one.get("content")) for one in said if one["role"] != "system"]


def kill(session):
    os.kill(session.agent_pid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "case",
    [((Hold(), "One."), "running"), ((Text("On"), Hold(), "e."), "streaming")],
    ids=["running", "streaming"],
)
def test_answer_under_way_ends_on_the_old_model(agent, scripted, poll, case):
    """The switch is reported at once; the next cycle is the new model's, with all that was said."""
    answer, state = case
    first, second = scripted(answer), scripted("Two.")
    session = agent(first)
    stream = session.subscribe()
    session.prompt("Go.")
    first.wait_held()
    assert poll(lambda: session.status().state == state)
    session.switch_model(second)
    heard = event_of(stream, events.ModelSwitched)
    first.release()
    one = session.collect_reply(timeout=TURN_S)
    two = session.run("Again.", timeout=TURN_S).text

    assert (heard.from_, heard.to, heard.provider_opts_changed) == (
        "openai/scripted",
        "openai/scripted",
        True,
    )
    assert (one, two) == ("One.", "Two.")
    assert sent(second, 1) == [("user", "Go."), ("assistant", "One."), ("user", "Again.")]
    first.assert_complete()


def test_running_tools_go_on_and_their_results_go_to_the_new_model(agent, scripted, poll, tmp_path):
    """The next request of the very cycle is the new model's; the tools of the session are kept."""
    log, end = tmp_path / "log", tmp_path / "end"
    first = scripted(ToolCalls(ToolUse("keep", {"log": str(log), "end": str(end)})))
    second = scripted("Done.")
    session = agent(first, tools=[keep])
    session.prompt("Go.")
    assert poll(lambda: noted(log))
    session.switch_model(second)
    end.touch()

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert sent(second, 1)[-1] == ("tool", "kept")
    assert [one["function"]["name"] for one in second.requests[0]["tools"]] == ["keep"]
    first.assert_complete()


def test_name_alone_keeps_the_provider_options(agent, scripted):
    """The same server is asked for another model, and observers see both names."""
    model = scripted("One.", "Two.")
    session = agent(model)
    session.run("Go.", timeout=TURN_S)
    stream = session.subscribe()
    session.switch_model(OTHER)
    heard = stream.get(TURN_S).event
    session.run("Again.", timeout=TURN_S)

    assert (heard.kind, heard.from_, heard.to) == ("model_switched", "openai/scripted", OTHER)
    assert not heard.provider_opts_changed
    assert [one["model"] for one in model.requests] == ["scripted", "another"]
    assert session.status().model == OTHER


def test_options_alone_may_change(agent, scripted):
    """New options replace the old ones as a whole, and reach the provider with the next request."""
    model = scripted("One.", "Two.")
    session = agent(model)
    session.run("Go.", timeout=TURN_S)
    stream = session.subscribe()
    name, opts = model.model_source()
    session.switch_model(name, provider_opts={**opts, "temperature": 0.25})
    heard = stream.get(TURN_S).event
    session.run("Again.", timeout=TURN_S)

    assert (heard.from_, heard.to, heard.provider_opts_changed) == (name, name, True)
    assert [one.get("temperature") for one in model.requests] == [None, 0.25]


def test_switch_to_the_same_is_none(agent, scripted):
    """Neither the name alone nor the name with the options in force is reported."""
    model = scripted("One.")
    session = agent(model)
    before = session.last_index()
    name, opts = model.model_source()
    session.switch_model(name)
    session.switch_model(name, provider_opts=opts)
    session.switch_model(model)

    assert session.last_index() == before
    assert session.run("Go.", timeout=TURN_S).text == "One."


@pytest.mark.parametrize("name", ["", "scripted", "openai:", ":scripted", 7, None])
def test_name_that_is_none_is_refused(agent, scripted, name):
    """The session stays on its model."""
    session = agent(scripted("One."))
    with pytest.raises(cmdc.InvalidOptions, match="model"):
        session.switch_model(name)

    assert session.run("Go.", timeout=TURN_S).text == "One."
    assert session.status().model == "openai/scripted"


def test_options_that_cannot_travel_are_refused(agent, scripted):
    """The session stays on its model, and the error names the argument."""
    session = agent(scripted("One."))
    with pytest.raises(cmdc.InvalidOptions, match="provider_opts"):
        session.switch_model(OTHER, provider_opts={"key": object()})

    assert session.run("Go.", timeout=TURN_S).text == "One."


@pytest.mark.parametrize("when", ["idle", "streaming"])
def test_switch_outlives_the_process(agent, scripted, when):
    """The next process asks the new model, for an answer that was lost as well."""
    first, second = scripted("One.", (Text("Hal"), Hold(), "never")), scripted("Two.")
    session = agent(first)
    session.run("Go.", timeout=TURN_S)
    if when == "streaming":
        session.prompt("Again.")
        first.wait_held()
    session.switch_model(second)
    kill(session)
    if when == "idle":
        session.prompt("Again.")

    assert session.collect_reply(timeout=TURN_S) == "Two."
    assert session.status().incarnation == 2
    assert sent(second, 1) == [("user", "Go."), ("assistant", "One."), ("user", "Again.")]


def test_model_that_is_not_there_fails_the_cycle_and_not_the_session(agent, scripted):
    """Who switches back goes on."""
    model = scripted("One.", "Two.")
    session = agent(model, max_retries=0)
    session.run("Go.", timeout=TURN_S)
    name, opts = model.model_source()
    session.switch_model(name, provider_opts={**opts, "api_base": "http://127.0.0.1:9/v1"})
    with pytest.raises(cmdc.AgentFailed):
        session.run("Lost.", timeout=TURN_S)
    session.switch_model(model)

    assert session.run("Again.", timeout=TURN_S).text == "Two."


@pytest.mark.parametrize("is_killed", [False, True], ids=["same process", "next process"])
def test_a_key_that_was_switched_away_stays_secret(agent, scripted, poll, is_killed):
    """A server that still has it does not get it into events or errors, whichever process asks."""
    first = scripted("One.")
    second = scripted(Error(401, "who gave us first-of-us, second-of-us and third?"))
    opts = {"api_key": "first-of-us", "api_base": first.url}
    session = agent("openai/scripted", provider_opts=opts)
    session.run("Go.", timeout=TURN_S)
    opts = {"api_key": "none", "api_base": second.url, "organization": "second-of-us"}
    session.switch_model("openai/scripted", provider_opts=opts)
    if is_killed:
        before = session.agent_pid()
        kill(session)
        assert poll(lambda: session.agent_pid() not in (None, before))
    with session.subscribe() as stream:
        with pytest.raises(cmdc.AgentFailed) as caught:
            session.run("Again.", timeout=TURN_S)
        heard = [event_of(stream, kind) for kind in (events.StreamError, events.AgentError)]

    for text in (str(caught.value), *(event.reason for event in heard)):
        assert "of-us" not in text
        assert "who gave us [hidden], [hidden] and third?" in text
