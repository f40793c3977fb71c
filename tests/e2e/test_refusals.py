"""What is refused: at once, by an error of its own class that names the thing and the way out."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import reasons
from cmdc_runtime.events import ModelSwitched
from cmdc_runtime.testing import Hold

TURN_S = 20.0


@cmdc.tool(effects="read")
def fine(text: str) -> str:
    """Say it again."""
    return text


class Absent(cmdc.Tool):
    """What is packed here and opened nowhere: its code begins with a module that is not there."""

    name = "absent"
    description = "Needs a module that no worker has."

    def __reduce__(self):
        return (__import__, ("absent_module",))

    def execute(self, args, context):
        return "never"


def test_unknown_session_is_reported_by_every_call(client):
    """An id that was never seen is a mistake of the caller, whatever is asked."""
    for call in (client.status, client.messages, client.agent_pid, client.stop, client.subscribe):
        with pytest.raises(cmdc.InvalidSession, match="no-such"):
            call("no-such")
    for call in (client.prompt, client.run):
        with pytest.raises(cmdc.InvalidSession, match="no-such"):
            call("no-such", "Hello?")
    with pytest.raises(cmdc.InvalidSession):
        client.collect_reply("no-such")
    with pytest.raises(cmdc.InvalidSession):
        client.abort("no-such")


@pytest.mark.parametrize("session", [None, 7, "", "a b", "x" * 129, "über", "a/b", "a\0b"])
def test_what_is_no_session_is_refused(client, session):
    """Nothing but a session or an id of the right form is taken for one."""
    with pytest.raises(cmdc.InvalidSession):
        client.status(session)


def test_all_wrong_options_are_reported_at_once(client):
    """One error has a line for each wrong field."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        client.create_agent(
            model="no-provider",
            max_turns="5",
            tool_timeout=-1,
            restart="sometimes",
            working_dir="/no/such/place",
            maxturns=3,
            tools="fine",
            session_id="a b",
        )
    fields = [problem.partition(":")[0] for problem in caught.value.problems]

    assert fields == [
        "max_turns",
        "maxturns",
        "model",
        "restart",
        "session_id",
        "tool_timeout",
        "tools",
        "working_dir",
    ]
    assert client.list_sessions() == []


def test_object_that_is_no_tool_is_refused(client, scripted):
    """The error for a plain function says how it becomes a tool."""
    with pytest.raises(cmdc.InvalidTool, match=r"decorate it with @cmdc\.tool"):
        client.create_agent(model=scripted(default="fine"), tools=[lambda: "x"])


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        pytest.param("absent_module:tool", ("absent_module",), id="by-name"),
        pytest.param("cmdc_runtime.tools:absent", ("cmdc_runtime.tools", "absent"), id="no-name"),
    ],
)
def test_tool_by_name_that_is_not_there_fails_the_start(client, scripted, tool, words):
    """The error of ``create_agent`` names the tool and the module that the worker lacks."""
    with pytest.raises((cmdc.StartFailed, cmdc.InvalidTool)) as caught:
        client.create_agent(model=scripted(default="fine"), tools=[tool])

    assert all(word in str(caught.value) for word in words)
    assert client.list_sessions() == []


@pytest.mark.parametrize(
    "given",
    [
        {"plugins": ["nosuch"]},
        {"plugins": [("cost_guard", {"nosuch": 1})]},
        {"reasoning_strategy": "nosuch"},
        {"tools": ["nosuch"]},
    ],
    ids=["plugin", "option of a plugin", "strategy", "tool"],
)
def test_name_that_no_built_in_has_starts_nothing(client, scripted, given):
    """It is known before: the daemon never hears of the session."""
    with pytest.raises((cmdc.InvalidOptions, cmdc.InvalidTool), match="'nosuch'"):
        client.create_agent(model=scripted(default="fine"), session_id="never", **given)
    with pytest.raises(cmdc.InvalidSession):
        client.status("never")


def test_strategy_that_only_the_worker_can_miss_is_reported_in_plain_words(client, scripted):
    """As the option that it is, by the module that is not there."""
    with pytest.raises(cmdc.StartFailed) as caught:
        client.create_agent(model=scripted(default="fine"), reasoning_strategy="absent_module:Mine")
    reason = caught.value.reason

    assert isinstance(reason, reasons.StartFailed)
    assert reason.message.startswith(
        "reasoning_strategy: strategy 'absent_module:Mine' cannot be loaded: No module named"
    )


def test_code_that_cannot_be_opened_fails_the_start(client, scripted):
    """What is packed here and cannot be opened there is named by tool, module and way out."""
    with pytest.raises(cmdc.StartFailed) as caught:
        client.create_agent(model=scripted(default="fine"), tools=[fine, Absent()])
    reason = caught.value.reason

    assert isinstance(reason, reasons.StartFailed)
    assert reason.stage == "load"
    assert all(word in reason.message for word in ("'absent'", "absent_module", "install it"))


def test_failed_start_leaves_its_id_free(client, scripted, agent):
    """A session that never was up is not in the way of the next one of its id."""
    model = scripted(default="fine")
    with pytest.raises(cmdc.StartFailed):
        client.create_agent(model=model, session_id="again", tools=[Absent()])
    with pytest.raises(cmdc.SessionNotAlive):
        client.status("again")
    session = agent(model, session_id="again")

    assert session.run("Hello?", timeout=TURN_S).text == "fine"


def test_two_tools_of_one_name_fail_the_start(client, scripted):
    """Which of two tools of one name was meant cannot be known."""
    with pytest.raises((cmdc.StartFailed, cmdc.InvalidTool), match="fine"):
        client.create_agent(model=scripted(default="fine"), tools=[fine, fine])


def test_live_session_id_is_taken(client, scripted, agent):
    """A second session of the same id is refused, and the first one goes on."""
    model = scripted(default="fine")
    session = agent(model, session_id="twice")
    with pytest.raises(cmdc.SessionExists, match="twice"):
        client.create_agent(model=model, session_id="twice")

    assert session.run("Hello?", timeout=TURN_S).text == "fine"


def test_of_many_starts_of_one_id_one_succeeds(client, scripted, agent):
    """Who comes second is refused, also while the first one is still starting."""
    model = scripted(default="fine")

    def start(_number):
        try:
            return agent(model, session_id="raced")
        except cmdc.SessionExists as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(start, range(4)))

    assert sum(isinstance(one, cmdc.Session) for one in found) == 1
    assert client.run("raced", "Hello?", timeout=TURN_S).text == "fine"


def test_stopped_session_says_its_reason_and_its_id_can_be_used_again(scripted, agent):
    """A call to an ended session says why it ended, ``messages`` reads; the id may begin anew."""
    model = scripted(default="fine")
    session = agent(model, session_id="once-more")
    session.run("Hello?", timeout=TURN_S)
    session.stop()
    for call in (session.status, session.collect_reply, session.abort):
        with pytest.raises(cmdc.SessionNotAlive) as caught:
            call()
        assert caught.value.reason == reasons.Normal()
    kept = [message.role for message in session.messages()]
    again = agent(model, session_id="once-more")

    assert kept == ["system", "user", "assistant"]
    assert again.last_index() == 0
    assert [message.role for message in again.messages()] == ["system"]


def test_a_mistyped_provider_is_refused_with_the_one_that_is_meant(scripted, agent, client):
    """At the start and at a switch, before anything is loaded for it; other names are free."""
    session = agent(scripted(default="fine"))
    with pytest.raises(cmdc.StartFailed, match=r"model: .* did you mean openai:gpt-4o\?"):
        client.create_agent(model="opnai:gpt-4o")
    scout = cmdc.SubAgent(name="scout", description="d", model="gemni:m")
    with pytest.raises(cmdc.StartFailed, match=r"subagent 'scout': .* did you mean gemini:m\?"):
        client.create_agent(model="openai:m", subagents=[scout])
    with pytest.raises(cmdc.UsageError, match=r"model: .* did you mean anthropic:claude\?"):
        session.switch_model("antropic:claude")
    with session.subscribe(types=[ModelSwitched]) as stream:
        session.switch_model("acme:one")
        switched = stream.get(TURN_S).event

    assert switched.to == "acme:one"


def test_a_session_that_never_was_up_can_be_looked_at(scripted, agent, client):
    """It has no conversation; what is asked of it says that it ended, and why."""
    keep = agent(scripted(default="fine"))
    with pytest.raises(cmdc.StartFailed):
        client.create_agent(model="openai:scripted", session_id="broken", tools=["nosuch:f"])

    assert client.messages("broken") == []
    with pytest.raises(cmdc.SessionNotAlive, match="start failed at load: tool 'nosuch:f'"):
        client.status("broken")
    assert keep.messages() != []


def test_an_ended_session_whose_folder_is_gone_says_what_to_mend(agent, scripted, client, tmp_path):
    """It is no failure that passes by itself, and the session does not sleep."""
    work = tmp_path / "work"
    work.mkdir()
    session = agent(scripted(default="fine"), working_dir=str(work))
    session.run("Hello?", timeout=TURN_S)
    session.stop()
    work.rmdir()
    with pytest.raises(cmdc.SessionError, match="has ended, and cannot be read until") as caught:
        client.messages(session.id)

    assert not isinstance(caught.value, cmdc.TransientError)


@pytest.mark.parametrize("text", ["", "   \n\t", None, 5, b"bytes"])
def test_prompt_without_text_is_refused(scripted, agent, text):
    """A prompt is a str with something in it; nothing else reaches the conversation."""
    session = agent(scripted(default="fine"))
    with pytest.raises(cmdc.InvalidText):
        session.prompt(text)

    assert [message.role for message in session.messages()] == ["system"]


def test_full_queue_refuses_and_keeps_what_it_has(scripted, agent):
    """The prompt beyond the bound is refused; those within it are answered."""
    model = scripted((Hold(), "one"), "two")
    session = agent(model, max_queued_prompts=1)
    session.prompt("1")
    model.wait_held()
    assert session.prompt("2").queued
    with pytest.raises(cmdc.QueueFull):
        session.prompt("3")
    assert session.status().queued_prompts == 1
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "two"
    model.assert_complete()


def test_reply_that_takes_too_long_is_reported_and_goes_on(scripted, agent):
    """``CollectTimeout`` ends the waiting and not the cycle."""
    model = scripted((Hold(), "late"))
    session = agent(model)
    session.prompt("1")
    with pytest.raises(cmdc.CollectTimeout):
        session.collect_reply(timeout=0.1)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "late"


def test_closed_client_says_so(cmdc_daemon):
    """A client that was closed is not connected again by accident."""
    client = cmdc.Client(cmdc_daemon.address)
    client.close()

    with pytest.raises(cmdc.UsageError, match="closed"):
        client.list_sessions()


def test_address_without_a_daemon_is_unavailable(tmp_path):
    """Where nobody listens the error says so, and what to do."""
    with pytest.raises(cmdc.DaemonUnavailable, match="cmdc serve"), cmdc.Client(tmp_path):
        pass
