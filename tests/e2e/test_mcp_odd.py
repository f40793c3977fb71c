"""MCP servers that answer what the protocol does not have: what is good of it is used."""

import json
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from tests.e2e.mcp_servers import TURN_S, call, result_of, states, status_of

pytest.importorskip("mcp", reason="the extra mcp is not installed")
pytestmark = pytest.mark.process

ODD = str(Path(__file__).parents[1] / "mcp" / "odd.py")
FINE = {"name": "fine", "inputSchema": {"type": "object"}}
TOOLS = {"tools": [FINE]}
TEXT = {"content": [{"type": "text", "text": "yes"}]}


def server(**given):
    share = given.pop("share", "session")
    answers = {"tools/list": TOOLS, "tools/call fine": TEXT}
    answers.update({name.replace("__", "/"): answer for name, answer in given.items()})
    command = [sys.executable, ODD, json.dumps(answers)]
    return cmdc.McpServer("tests", command=command, timeout=TURN_S, share=share)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"name": "broken"}, "tool 'mcp__tests__broken': inputSchema: Field required"),
        ({"name": "broken", "inputSchema": None}, "tool 'mcp__tests__broken': inputSchema: "),
        ({"name": "broken", "inputSchema": {"type": "string"}}, "inputSchema.type: Input should"),
        (
            {"name": "broken", "inputSchema": {"type": "object", "required": "a"}},
            "inputSchema.required: Input should",
        ),
        ({"inputSchema": {"type": "object"}}, "name: Field required"),
        ("broken", "tool 'mcp__tests__number_1': "),
        (
            {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": 1}}}},
            "parameters are no JSON Schema",
        ),
    ],
)
def test_a_malformed_tool_is_left_out_and_named(agent, scripted, broken, problem):
    """The others work, and status and event have what the model has, and what is wrong."""
    odd = server(tools__list={"tools": [broken, FINE]})
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        while (event := stream.get(TURN_S).event).kind != "mcp_server_changed" or (
            event.state == "connecting"
        ):
            pass

    assert result_of(session).content == "yes"
    assert status_of(session).tools == ("mcp__tests__fine",)
    assert status_of(session).problem.startswith("it is left out: ")
    assert problem in status_of(session).problem
    assert (event.state, event.tools, event.problem) == ("ready", 1, status_of(session).problem)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"tools": "none"},
        {"tools": [FINE], "nextCursor": 5},
        '{"jsonrpc": "2.0", "id": "@id", "result": "none"}',
    ],
)
def test_a_list_that_cannot_be_read_is_why_a_server_has_failed(agent, scripted, answer):
    """It is not started again, since it would list the same."""
    session = agent(scripted("Alone."), mcp_servers=[server(tools__list=answer)])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        found = states(stream, "failed")

    assert found == ["connecting", "failed"]
    assert status_of(session).problem.startswith("it lists tools that can't be read: ")
    assert "https://" not in status_of(session).problem


def test_a_version_that_nobody_speaks_is_why_a_server_has_failed(agent, scripted):
    """It is not tried again, and its process ends for that, not the other way round."""
    opened = {"capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}
    odd = server(initialize={**opened, "protocolVersion": "1999-01-01"})
    session = agent(scripted("Alone."), mcp_servers=[odd])
    with session.subscribe() as stream:
        session.run("go", timeout=TURN_S)
        found = states(stream, "failed")

    assert found == ["connecting", "failed"]
    assert "1999-01-01" in status_of(session).problem
    assert "exited" not in status_of(session).problem


@pytest.mark.parametrize("share", ["session", "daemon"])
@pytest.mark.parametrize(
    ("text", "shown"), [(r"y\ud800z", "y�z"), (r"\udc00", "�"), (r"\ud83d\ude00", "😀")]
)
def test_half_a_surrogate_is_replaced(agent, scripted, share, text, shown):
    """The call has its answer, with what can be said of it."""
    line = '{"jsonrpc": "2.0", "id": "@id", "result": {"content": [{"type": "text", "text": "@"}]}}'
    odd = server(**{"tools__call fine": line.replace('"@"', f'"{text}"')}, share=share)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd])
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == shown


@pytest.mark.parametrize("share", ["session", "daemon"])
@pytest.mark.parametrize(
    "answer",
    [
        {"content": "yes"},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "nothing"}]},
        '{"jsonrpc": "2.0", "id": "@id", "result": "yes"}',
        '{"jsonrpc": "2.0", "id": "@id", "error": "no"}',
        '{"jsonrpc": "2.0", "id": "@id"}',
        '{"jsonrpc": "2.0", "id": "@id", "error": {"code": 1}}',
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_call_at_once(agent, scripted, share, answer):
    """The model reads what is wrong with it, in one line; the server goes on."""
    odd = server(**{"tools__call fine": answer}, share=share)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd])
    session.run("go", timeout=TURN_S)
    found = result_of(session)

    assert found.is_error
    assert "the MCP server 'tests' answered what can't be read: " in found.content
    assert "https://" not in found.content
    assert "\n" not in found.content.strip()
    assert status_of(session).state == "ready"


HEAD = '{"jsonrpc": "2.0", "id": "@id", "result": {"content": '


@pytest.mark.parametrize("share", ["session", "daemon"])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f'{HEAD}[{{"type": "text", "text": "half', "EOF while parsing a string"),
        (f'{HEAD}[], "a": {"9" * 5000}}}}}', "number out of range"),
        (f'{HEAD}[], "a": {"[" * 3000}{"]" * 3000}}}}}', "recursion limit exceeded"),
    ],
)
def test_an_answer_that_is_no_json_fails_its_call_at_once(agent, scripted, share, line, problem):
    """Its id is found all the same."""
    odd = server(**{"tools__call fine": line}, share=share)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd], tool_timeout=3 * TURN_S)
    session.run("go", timeout=TURN_S)
    found = result_of(session)

    assert "the MCP server 'tests' answered what can't be read: " in found.content
    assert problem in found.content
    assert status_of(session).state == "ready"


@pytest.mark.parametrize("share", ["session", "daemon"])
def test_an_answer_with_what_is_no_number_is_one(agent, scripted, share):
    """Many languages write it so."""
    line = f'{HEAD}[{{"type": "text", "text": "yes"}}], "_meta": {{"a": NaN}}}}}}'
    odd = server(**{"tools__call fine": line}, share=share)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd], tool_timeout=3 * TURN_S)
    session.run("go", timeout=TURN_S)

    assert result_of(session).content == "yes"


@pytest.mark.parametrize("share", ["session", "daemon"])
@pytest.mark.parametrize("method", ["tools/call fine", "tools/list"])
def test_who_says_too_much_at_once_is_lost_for_that(agent, scripted, share, method):
    """The call says so where it was one, and the status; what it has said is not waited for."""
    odd = server(**{method: f'{HEAD}[{{"type": "text", "text": "@fill"}}]}}}}'}, share=share)
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd])
    with session.subscribe(types=["mcp_server_changed"]) as stream:
        session.run("go", timeout=TURN_S)
        while not (event := stream.get(TURN_S).event).problem:
            pass

    assert event.problem.startswith("it says more than 16777216 bytes at once")
    if method == "tools/call fine":
        assert "during this call: it says more than 16777216 bytes" in result_of(session).content


def test_a_result_against_the_schema_of_its_tool_cannot_be_read(agent, scripted):
    """The tool says what it returns, and returns something else."""
    output = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    odd = server(
        tools__list={"tools": [{**FINE, "outputSchema": output}]},
        **{"tools__call fine": {**TEXT, "structuredContent": {"a": "no"}}},
    )
    session = agent(scripted(call("fine"), "Done."), mcp_servers=[odd])
    session.run("go", timeout=TURN_S)

    assert "answered what can't be read: " in result_of(session).content
    assert "\n" not in result_of(session).content.strip()


@pytest.mark.parametrize(
    ("listed", "own"),
    [
        (["x.y", "x_y", "fine"], []),
        (["twice", "fine", "twice"], []),
        (["own", "fine"], ["mcp__tests__own"]),
    ],
)
def test_tools_that_would_be_called_alike_are_not_among_the_tools(agent, scripted, listed, own):
    """Status and event have what the model has."""

    def named(name):
        @cmdc.tool(name=name)
        def one() -> str:
            """Be there."""
            return "own"

        return one

    odd = server(tools__list={"tools": [{**FINE, "name": name} for name in listed]})
    model = scripted("Done.")
    session = agent(model, tools=[named(name) for name in own], mcp_servers=[odd])
    with session.subscribe(types=["mcp_server_changed"]) as stream:
        session.run("go", timeout=TURN_S)
        while (event := stream.get(TURN_S).event).state != "ready":
            pass

    assert status_of(session).tools == ("mcp__tests__fine",)
    assert "is left out" in status_of(session).problem
    assert event.tools == 1
