"""A server of the older era, end to end: changes, progress, cancellations, and questions."""

import json
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import TURN_S, call, result_of, states, status_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process

OLDER = [sys.executable, str(Path(__file__).parents[1] / "mcp" / "older.py")]
SERVER = cmdc.McpServer("tests", command=OLDER, timeout=TURN_S)


def test_other_tools_take_the_place_of_the_former_with_the_next_request(agent, scripted):
    """The server says so by itself, as that era has it."""
    model = scripted(
        call("era"), call("grow", "c2", name="bigger"), "Done.", call("bigger", "c3"), "More."
    )
    session = agent(model, mcp_servers=[SERVER])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        states(stream, "ready")
        states(stream, "ready")
    session.run("again", timeout=TURN_S)

    assert result_of(session).content == "2025-11-25"
    assert result_of(session, "c3").content == "I am bigger"
    assert "mcp__tests__bigger" in status_of(session).tools


def test_a_request_has_what_was_announced_before_it(agent, scripted):
    """It waits for a list that is on its way, and for no pause between two of them."""
    slowly = call("grow", name="slow", list_after_s=0.5)
    again = (call("grow", "c3", name="later"), call("later", "c4"))
    session = agent(scripted(slowly, call("slow", "c2"), *again, "Done."), mcp_servers=[SERVER])
    session.run("go", timeout=TURN_S)

    assert result_of(session, "c2").content == "I am slow"
    assert result_of(session, "c4").content == "I am later"


def test_progress_comes_as_events_in_order(agent, scripted):
    """Each with the call that it is of."""
    session = agent(scripted(call("steps"), "Done."), mcp_servers=[SERVER])
    with session.subscribe(types=["plugin_event"]) as stream:
        session.prompt("go")
        heard = [stream.get(TURN_S).event for _ in range(3)]
        session.collect_reply(timeout=TURN_S)

    assert {one.name for one in heard} == {"mcp_progress"}
    assert [one.payload["message"] for one in heard] == ["s1", "s2", "s3"]
    assert [(one.payload["progress"], one.payload["total"]) for one in heard] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    assert {(one.payload["server"], one.payload["call_id"]) for one in heard} == {("tests", "c1")}


def test_sampling_is_refused_by_name(agent, scripted):
    """The session's model is asked nothing for a server; the server hears what it can't have."""
    model = scripted(call("sample"), "Done.")
    session = agent(model, mcp_servers=[SERVER])
    session.run("go", timeout=TURN_S)

    assert "sampling" in json.loads(result_of(session).content)["message"].lower()
    assert len(model.requests) == 2


def test_an_aborted_call_is_cancelled_on_the_wire(agent, scripted, tmp_path, poll):
    """The server hears of it, and goes on."""
    files = {"started": str(tmp_path / "started"), "cancelled": str(tmp_path / "cancelled")}
    model = scripted(call("wait", **files), call("pid", "c2"), "Done.")
    session = agent(model, mcp_servers=[SERVER])
    session.prompt("go")
    assert poll((tmp_path / "started").exists, TURN_S)

    session.abort()

    with pytest.raises(cmdc.AgentAborted):
        session.collect_reply(timeout=TURN_S)
    assert poll((tmp_path / "cancelled").exists, TURN_S)
    session.run("again", timeout=TURN_S)
    assert result_of(session, "c2").content.isdecimal()
    assert status_of(session).state == "ready"
