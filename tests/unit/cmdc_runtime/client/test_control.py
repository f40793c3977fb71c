"""What a call sends, before it is sent."""

import re
import threading
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.commands import (
    Abort,
    AnswerToolCall,
    Approve,
    ClientAnswer,
    Command,
    Reject,
    Steer,
)
from cmdc_runtime.mcp_servers import McpServer
from cmdc_runtime.options import parse
from cmdc_runtime.wire import codec
from tests.sent import sent

LOCK = threading.Lock()


class Endpoint:
    """A model that knows where it is."""

    def model_source(self):
        return "openai:m", {"api_base": "http://here"}


@cmdc.tool
def local(text: str) -> str:
    """Return it."""
    return text


@cmdc.tool
def locked(text: str) -> str:
    """Use what cannot travel."""
    return f"{text}{LOCK}"


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"in": value}
    return value


def test_every_order_survives_the_wire():
    """What the agent decodes is what the call made, for each of the calls, or a tool's program."""
    commands = [
        sent.prompt("hi"),
        sent.abort(reason="enough", clear_queue=False, kill_tools="all", children=False),
        sent.steer("left", scope="tree"),
        sent.approve("a", auto_resume=False, kind="approve_always"),
        sent.reject("a", auto_resume=True),
        sent.user_respond("r", {"chosen": [1, None, "x"]}),
        sent.attach_tool("read_file"),
        sent.attach_tools(["read_file", "m:f"]),
        sent.replace_tools(()),
        sent.detach_tool("x"),
        sent.detach_tools(iter(["x", "y"])),
        sent.attach_mcp_server(McpServer("files", command=["files"], env={"A": "b"})),
        sent.detach_mcp_server("files"),
        sent.attach_plugin("cost_guard"),
        sent.update_plugin(("cost_guard", {"max_tokens": 9})),
        sent.detach_plugin("cost_guard"),
        sent.add_skills_dirs(["skills", ("team", Path("b"))]),
        sent.add_memory(["AGENTS.md", Path("b.md")]),
        sent.switch_model("a:b", provider_opts={"temperature": 0.1}),
        AnswerToolCall(ref="a:client-1", outcome=ClientAnswer(ok=True, value=[1, None, "x"])),
    ]

    assert [codec.decode(Command, codec.encode(command)) for command in commands] == commands
    assert {type(command) for command in commands} == {
        kind for kind in Command.__subclasses__() if kind.durable
    }


@pytest.mark.parametrize(
    "make",
    [sent.prompt, sent.steer],
    ids=["prompt", "steering"],
)
@pytest.mark.parametrize(
    "text", ["", " \n", None, 5, "x" * 1_000_001], ids=["none", "blank", "null", "int", "long"]
)
def test_text_is_text(make, text):
    """A prompt and a steering are a str that says something, of a bounded length."""
    with pytest.raises(cmdc.InvalidText):
        make(text)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: sent.steer("x", scope="world"), "steer: .*scope"),
        (lambda: sent.approve("a", kind="approve"), "approve: .*kind"),
        (lambda: sent.approve(5), "approve: .*approval_id"),
        (lambda: sent.reject("a", auto_resume=1), "reject: .*auto_resume"),
        (lambda: sent.abort(kill_tools="some"), "abort: .*kill_tools"),
        (lambda: sent.abort(reason=object()), "abort: .*object"),
        (lambda: sent.user_respond(5, "yes"), "a question is a str, got int"),
        (lambda: sent.user_respond("r", LOCK), "MessagePack takes.* got lock"),
        (lambda: sent.add_skills_dirs("skills"), "dirs: expected a list, got "),
        (lambda: sent.add_skills_dirs([5]), "dirs: Expected"),
        (lambda: sent.add_skills_dirs([("nobody", "b")]), "dirs: Invalid"),
        (lambda: sent.add_skills_dirs(["a"] * 65), "dirs: expected at most 64 folders"),
        (lambda: sent.add_memory(["a"] * 13), "files: expected at most 12 paths"),
        (lambda: sent.add_memory([""]), "files"),
        (lambda: sent.detach_tool(local), "by its name, a str; got"),
        (lambda: sent.detach_tools(["x", None]), "by its name, a str; got NoneType"),
        (lambda: sent.detach_tools("read_file"), "names: expected a list, got "),
        (lambda: sent.attach_tools("read_file"), "tools: expected a list, got "),
        (lambda: sent.replace_tools(local), "tools: expected a list"),
    ],
)
def test_wrong_argument_is_named(make, problem):
    """Nothing goes out that the agent could only call malformed."""
    with pytest.raises(cmdc.UsageError, match=problem):
        make()


def test_plain_forms_are_the_usual_ones():
    """What the caller leaves out is what the command has as its default."""
    assert sent.abort() == Abort()
    assert sent.steer("x") == Steer(text="x")
    assert sent.approve("a") == Approve(approval_id="a")
    assert sent.reject("a") == Reject(approval_id="a")


def test_one_tool_asks_for_the_errors_of_one():
    """A single call and a batch are kept apart by the agent, which has other errors for each."""
    assert sent.attach_tool(local).single
    assert sent.detach_tool("local").single
    assert not sent.attach_tools([local]).single
    assert not sent.detach_tools(["local"]).single


def test_tool_that_cannot_travel_is_invalid():
    """The error of one tool says what in it cannot travel."""
    with pytest.raises(cmdc.InvalidTool, match="'locked' cannot travel"):
        sent.attach_tool(locked)


@pytest.mark.parametrize("make", [sent.attach_tools, sent.replace_tools])
def test_batch_names_every_tool_that_cannot_travel(make):
    """Each is named as itself where it has a name and by its place where not; notes say why."""
    with pytest.raises(cmdc.ToolValidationFailed) as caught:
        make([local, locked, 7, "no tool"])

    assert caught.value.problems == [
        ("locked", "invalid_tool"),
        ("tools[2]", "invalid_tool"),
        ("no tool", "invalid_tool"),
    ]
    assert [note.partition(":")[0] for note in caught.value.__notes__] == [
        "tools[1]",
        "tools[2]",
        "tools[3]",
    ]


def test_model_source_brings_its_options():
    """A model object is its name and its options, unless the caller gives others."""
    own = sent.switch_model(Endpoint())
    given = sent.switch_model(Endpoint(), provider_opts={"temperature": 1})

    assert (own.model, own.provider_opts) == ("openai:m", {"api_base": "http://here"})
    assert (given.model, given.provider_opts) == ("openai:m", {"temperature": 1})
    assert sent.switch_model("a/b").provider_opts is None


@pytest.mark.parametrize(
    ("model", "opts", "names"),
    [
        ("gpt", None, ["model"]),
        (None, None, ["model"]),
        ("a:b", {"x": LOCK}, ["provider_opts['x']"]),
        ("a:b", {1: "x"}, ["provider_opts"]),
        ("a:", [], ["model", "provider_opts"]),
    ],
)
def test_what_is_no_model_is_named(model, opts, names):
    """Every wrong part is named at once, as in ``create_agent``."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        sent.switch_model(model, provider_opts=opts)

    assert [line.partition(":")[0] for line in caught.value.problems] == names


@pytest.mark.parametrize(
    "opts",
    [nested(100), {"x": nested(100)}, {1: "x"}, [], "text", {"x": float("nan")}, {"x": 2**80}],
    ids=["deep", "deep within", "a key", "list", "text", "not a number", "too large"],
)
def test_provider_options_are_refused_by_one_rule(opts):
    """``switch_model`` says of them what ``create_agent`` says, in the same words."""
    with pytest.raises(cmdc.InvalidOptions) as switched:
        sent.switch_model("a:b", provider_opts=opts)
    with pytest.raises(cmdc.InvalidOptions) as created:
        parse(None, {"model": "a:b", "provider_opts": opts})

    assert switched.value.problems == created.value.problems
    assert re.match(r"provider_opts(\[.+\])?: ", switched.value.problems[0])


@pytest.mark.parametrize(
    ("order", "field", "expected"),
    [
        (lambda word: sent.abort(kill_tools=word), "kill_tools", "all, killable, none"),
        (lambda word: sent.steer("Go.", scope=word), "scope", "session, tree"),
        (lambda word: sent.approve("a", kind=word), "kind", "approve_once"),
    ],
)
def test_a_long_word_is_not_echoed(order, field, expected):
    """It is refused by what there is, at a cost that does not grow with it."""
    with pytest.raises(cmdc.UsageError, match=rf"{field}: expected one of {expected}") as caught:
        order("w" * 30_000_000)

    assert str(caught.value).count("w") < 200
    assert "Invalid enum" not in str(caught.value)
