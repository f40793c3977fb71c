"""What an application declares of MCP servers, and what is wrong with it."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.child_spec import Parent, child_request
from cmdc_runtime.errors import InvalidFields, InvalidOptions
from cmdc_runtime.options import parse
from cmdc_runtime.spec import AgentSpec, agent_spec
from cmdc_runtime.subagent import SubagentSpec
from cmdc_runtime.wire.codec import decode_as

RIGHT = cmdc.McpServer("files", command=["a-server", "--all"], env={"LEVEL": "2"})


def problems_of(*servers):
    with pytest.raises(InvalidOptions) as refused:
        parse(None, {"model": "x:m", "mcp_servers": [*servers]})
    return refused.value.problems


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "a b"}, ".name: expected 1 to 32 of A-Z a-z 0-9 _ -, got 'a b'"),
        ({"name": 5}, ".name: Expected `str`, got `int`"),
        ({"command": []}, ': expected a command, as ["npx", "-y", "a-server"], or a url'),
        ({"headers": {"a": "b"}}, ".headers: a program has none; they are for a url"),
        ({"url": "https://a.org/mcp"}, ": a server has a url, or a command with its env"),
        ({"command": "npx"}, ".command: Expected `array`, got `str`"),
        ({"command": ["a\0b"]}, ".command[0]: it has a NUL"),
        ({"env": {"A=B": "1"}}, ".env: 'A=B' is no name of a variable for it"),
        ({"env": {"CMDC_SESSION_ID": "1"}}, ".env: 'CMDC_SESSION_ID' is no name"),
        ({"env": {"A": "\0"}}, ".env['A']: it has a NUL"),
        ({"timeout": 0}, ".timeout: Expected `float` > 0"),
        ({"timeout": float("nan")}, ".timeout: "),
        ({"allow": "add"}, ".allow: Expected `array | null`, got `str`"),
        ({"oauth": "me"}, ".oauth: a program logs in by itself; it is for a url"),
        ({"network": "on"}, ".network: Expected `bool`, got `str`"),
        ({"share": "all"}, ".share: Invalid enum value 'all'"),
    ],
)
def test_each_wrong_part_is_named(given, problem):
    """With its place in the options."""
    (reported,) = problems_of(cmdc.McpServer(**{"name": "files", "command": ["a"], **given}))

    assert reported.startswith(f"mcp_servers[0]{problem}")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": "ftp://a.org"}, ".url: expected http:// or https:// with a host"),
        ({"url": "http://user:pass@a.org/"}, ".url: expected http:// or https:// with a host"),
        ({"url": 5}, ".url: Expected `str | null`, got `int`"),
        ({"headers": {"a b": "1"}}, ".headers: 'a b' is no name of a header"),
        ({"headers": {"a": "1\r\nb: 2"}}, ".headers['a']: it has characters"),
        ({"oauth": ""}, ".oauth: Expected `str` of length >= 1"),
        ({"oauth": "me", "url": "http://a.org/mcp"}, ".oauth: tokens are shown to https:// alone"),
        ({"oauth": "me", "url": "http://localhost.a.org/"}, ".oauth: tokens are shown to https"),
        ({"oauth": "me", "headers": {"Authorization": "x"}}, ".oauth: headers have"),
        ({"network": True}, ".network: it is for a command"),
        ({"share": "daemon"}, ".share: it is for a command"),
        ({"headers": {"a": 1}}, ".headers: Expected `str`, got `int`"),
    ],
)
def test_each_wrong_part_of_an_address_is_named(given, problem):
    """A value of a header, which may be a key, is not shown."""
    (reported,) = problems_of(cmdc.McpServer(**{"name": "a", "url": "https://a.org/mcp", **given}))

    assert reported.startswith(f"mcp_servers[0]{problem}")


def test_a_name_is_good_for_one_server():
    """The second one of it is named."""
    assert [*problems_of(RIGHT, RIGHT)] == ["mcp_servers[1].name: 'files' is taken by [0]"]


def test_other_things_are_no_servers():
    """A dict or a text is named as what it is."""
    (reported,) = problems_of({"name": "files"}, RIGHT)

    assert reported.startswith("mcp_servers[0]: expected a cmdc.McpServer, got {")


def test_a_field_that_there_is_none_of_is_named():
    """As of every struct of an application."""
    with pytest.raises(InvalidFields, match="comand"):
        cmdc.McpServer("files", comand=["a"])


def test_servers_are_part_of_the_definition():
    """A subagent has those of its parent, unless it has tools of its own."""
    spec = agent_spec(parse(None, {"model": "x:m", "mcp_servers": [RIGHT]}))
    parent = Parent(
        session_id="s",
        spec=spec,
        model="x:m",
        provider_opts={},
        tools=(),
        plugins=(),
        group_id=None,
        mcp_servers=(RIGHT,),
    )
    kinds = (
        SubagentSpec(name="a", description="A."),
        SubagentSpec(name="b", description="B.", tools=()),
    )
    children = [decode_as(AgentSpec, child_request(parent, "s.1", kind).agent) for kind in kinds]

    assert spec.mcp_servers == (RIGHT,)
    assert [child.mcp_servers for child in children] == [(RIGHT,), ()]


def test_a_secret_of_the_environment_is_not_printed():
    """What has the name of a secret is hidden."""
    server = cmdc.McpServer("files", command=["a"], env={"API_KEY": "sk-very-secret-123"})

    assert "very-secret" not in repr(server)
