"""What an MCP server and a session say to each other: by pipes and HTTP, in both eras."""

import os
import signal
import subprocess

import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import (
    SERVER,
    TURN_S,
    answers,
    call,
    declared,
    free_port,
    result_of,
    states,
    status_of,
)

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process


@pytest.fixture(name="over_http")
def _over_http(poll):
    """Start the server for tests so that it listens; a second start has the same port.

    One that ``waits`` for a file listens when that is there, at once.
    """
    started, port = [], free_port()

    def start(kind, waits=None):
        command = [*SERVER, kind, str(port)]
        env = os.environ | ({} if waits is None else {"SERVER_WAITS": str(waits)})
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env))
        assert waits is not None or poll(lambda: answers(port), TURN_S)
        return f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}", started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def declared_at(url, **given):
    return cmdc.McpServer("tests", url=url, timeout=TURN_S, **given)


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_server_by_http_is_called(agent, scripted, over_http, kind):
    """With the headers that are declared, whichever way it knows."""
    url, _ = over_http(kind)
    server = declared_at(url, headers={"x-team": "blue"})
    model = scripted(call("add", a=2, b=3), call("header", "c2", name="x-team"), "Done.")
    session = agent(model, mcp_servers=[server])
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == "5"
    assert result_of(session, "c2").content == "blue"


def test_a_server_by_http_that_goes_is_lost_and_found_again(agent, scripted, over_http, tmp_path):
    """The call is an error, and a later request has its tools when it is back."""
    url, process = over_http("http")
    over_http("http", waits=tmp_path / "now")  # one that is away for long has failed
    model = scripted(call("pid"), "Once.", call("pid", "c2"), "Lost.", call("pid", "c3"), "Again.")
    session = agent(model, mcp_servers=[declared_at(url)])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        process.kill()
        process.wait()
        session.run("go", timeout=TURN_S)
        heard = states(stream, "restarting")
        (tmp_path / "now").touch()
        heard += states(stream, "ready")
    session.run("go", timeout=TURN_S)

    assert "was lost during this call" in result_of(session, "c2").content
    assert int(result_of(session, "c3").content) not in {0, process.pid}
    assert heard[-1] == "ready"


def test_an_address_where_nobody_listens_fails(agent, scripted, poll):
    """The request waits for no longer than the server may take, and the status says why."""
    server = cmdc.McpServer("tests", url=f"http://127.0.0.1:{free_port()}/mcp", timeout=0.5)
    session = agent(scripted("Alone."), mcp_servers=[server])

    assert session.run("go", timeout=TURN_S).text == "Alone."
    assert poll(lambda: "does not answer" in status_of(session).problem, TURN_S)


def test_other_tools_are_there_from_the_next_request_on(agent, scripted):
    """A server announces that it has more, and the model can call it."""
    model = scripted(call("grow", name="bigger"), call("bigger", "c2"), "Done.", "More.")
    session = agent(model, mcp_servers=[declared()])
    session.run("go", timeout=TURN_S)

    assert result_of(session, "c2").content == "I am bigger"
    assert "mcp__tests__bigger" in status_of(session).tools


def test_a_question_of_a_server_goes_to_the_user(agent, scripted):
    """An answer that does not fit is asked for again."""
    session = agent(scripted(call("ask"), "Done."), mcp_servers=[declared()])
    with session.subscribe(types=["ask_user"]) as stream:
        session.prompt("go")
        first = stream.get(TURN_S).event
        session.user_respond(first.ref, {"name": "Ann"})
        second = stream.get(TURN_S).event
        session.user_respond(second.ref, {"name": "Ann", "age": "7"})
        session.collect_reply(timeout=TURN_S)

    assert first.question.startswith("The MCP server 'tests' asks: Who are you?\n- name: ")
    assert "age is missing" in second.question
    assert result_of(session).content == "accept name='Ann' age=7"


def test_a_question_that_is_declined_is_reported_as_that(agent, scripted):
    """The tool knows that the user did not want to answer."""
    session = agent(scripted(call("ask"), "Done."), mcp_servers=[declared()])
    with session.subscribe(types=["ask_user"]) as stream:
        session.prompt("go")
        session.user_respond(stream.get(TURN_S).event.ref, "decline")
        session.collect_reply(timeout=TURN_S)

    assert result_of(session).content == "decline None"


def test_a_question_outlives_the_agent_that_asked_it(agent, scripted):
    """It is answered by its name, and the next process goes on with the call where it was."""
    session = agent(scripted(call("ask"), "Done."), mcp_servers=[declared()])
    with session.subscribe(types=["ask_user"]) as stream:
        session.prompt("go")
        ref = stream.get(TURN_S).event.ref
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)
    monitor.wait(TURN_S)
    session.user_respond(ref, {"name": "Ann", "age": "7"})

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert result_of(session).content == "accept name='Ann' age=7"


def test_a_later_question_outlives_the_agent_with_what_was_said_before(agent, scripted):
    """The server gets its own state back, also where another process of it takes over."""
    session = agent(scripted(call("ask_twice"), "Done."), mcp_servers=[declared()])
    with session.subscribe(types=["ask_user"]) as stream:
        session.prompt("go")
        session.user_respond(stream.get(TURN_S).event.ref, "Ann")
        ref = stream.get(TURN_S).event.ref
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)
    monitor.wait(TURN_S)
    session.user_respond(ref, "seven")

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert result_of(session).content == "Ann seven"


def test_a_call_that_went_on_behind_its_question_is_not_made_again(agent, scripted, poll, tmp_path):
    """The server has got the answer, so nobody knows how far it came."""
    session = agent(
        scripted(call("ask_and_stick", path=str(tmp_path / "at")), "Done."),
        mcp_servers=[declared()],
    )
    with session.subscribe(types=["ask_user"]) as stream:
        session.prompt("go")
        session.user_respond(stream.get(TURN_S).event.ref, {"name": "Ann", "age": "7"})
    assert poll((tmp_path / "at").exists)
    os.kill(session.agent_pid(), signal.SIGKILL)

    assert session.collect_reply(timeout=TURN_S) == "Done."
    assert "the process died while this call ran" in result_of(session).content


def test_sampling_is_refused(agent, scripted):
    """No server asks the session's model."""
    session = agent(scripted(call("sample"), "Done."), mcp_servers=[declared()])
    session.run("go", timeout=TURN_S)

    assert result_of(session).is_error
    assert "sampling" in result_of(session).content


def test_a_server_that_is_stuck_in_an_aborted_call_is_ended(agent, scripted, tmp_path, poll):
    """It does not answer any more, so it is killed and started again."""
    file = tmp_path / "stuck"
    model = scripted(call("stick", path=str(file)), call("add", "c2", a=1, b=1), "Done.")
    session = agent(model, mcp_servers=[declared()])
    with session.subscribe() as stream:
        session.prompt("go")
        assert poll(file.exists, TURN_S)
        session.abort()
        with pytest.raises(cmdc.AgentAborted):
            session.collect_reply(timeout=TURN_S)
        heard = states(stream, "restarting")
    session.run("again", timeout=TURN_S)

    assert heard == ["connecting", "ready", "restarting"]
    assert result_of(session, "c2").content == "2"
