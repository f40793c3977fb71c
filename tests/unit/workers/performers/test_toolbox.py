"""The session's tools: described anew for each request, opened in a thread, exchanged whole."""

import asyncio
import threading

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from cmdc_runtime.commands import AttachTools
from cmdc_runtime.extensions import Context, Tool, ToolContext, tool
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.packing import pack
from workers.core.inputs import ToolsLoaded
from workers.core.state import ToolFacts
from workers.core.step import ChangeTools
from workers.loader import LoadError
from workers.performers import toolbox
from workers.performers.toolbox import LoadedTool, Toolbox

NOWHERE = Packed(kind="ref", label="gone", ref="no_such_module:x")


@tool(effects="read")
def look(path: str) -> str:
    """Look."""
    return path


@tool
async def wait(*, context: Context) -> str:
    """Wait."""
    return context.call_id


class Tailored(Tool):
    """A tool that describes itself by where it runs."""

    name = "tailored"

    def describe(self, tool_context):
        return f"In {tool_context.working_dir}"

    def execute(self, args, context):
        return ""


def loaded(found):
    return LoadedTool(found, pack(found, found.name))


def load(box, *packed):
    """Open packed code as the command ``c``."""
    asyncio.run(box.load("c", AttachTools(tools=tuple(packed))))


def names(box):
    return [spec.name for spec in box.specs(ToolContext())]


def test_facts_are_what_the_tables_need():
    """In the tools' order, each with the packed code it came in."""
    parts = [loaded(look), loaded(wait)]

    first, second = (one.facts() for one in parts)

    assert replace(first, chars=0) == ToolFacts(
        "look", is_repeatable=True, isolation="process", packed=parts[0].packed
    )
    assert replace(second, chars=0) == ToolFacts(
        "wait", is_repeatable=False, isolation="task", packed=parts[1].packed
    )


def test_facts_say_how_much_the_model_reads():
    """What a request costs is known before it is sent, its tools included."""
    facts = loaded(look).facts()
    (spec,) = Toolbox([loaded(look)], print).specs(ToolContext())

    assert facts.chars == len(msgspec.json.encode(spec))


def test_a_description_is_made_for_the_request():
    """It may depend on where the session works."""
    box = Toolbox([loaded(Tailored())], print)
    described = [box.specs(ToolContext(working_dir=place))[0].description for place in "ab"]

    assert described == ["In a", "In b"]


@pytest.mark.parametrize(
    ("options", "shell"), [({"shell": "zsh"}, "zsh"), ({"timeout": 3.0}, "bash"), (None, "bash")]
)
def test_a_description_knows_the_shell(options, shell):
    """That of the shell tool, or the one that commands are read by without a word."""

    class Describing(Tailored):
        def describe(self, tool_context):
            return tool_context.shell

    data = None if options is None else msgspec.msgpack.encode(options)
    commands = LoadedTool(look, Packed(kind="ref", label="shell", ref="shell", data=data))
    box = Toolbox([commands, loaded(Describing())], print)

    assert box.specs(ToolContext(shell="bash"))[1].description == shell


@pytest.mark.parametrize("error", [KeyError("where"), SystemExit("where")], ids=repr)
def test_a_description_that_fails_is_replaced(error):
    """The tool stays usable, and the log says why its text is another."""

    class Broken(Tailored):
        description = "as written"

        def describe(self, tool_context):
            raise error

    with capture_logs() as logs:
        (spec,) = Toolbox([LoadedTool(Broken(), NOWHERE)], print).specs(ToolContext())

    assert spec.description == "as written"
    assert [entry["event"] for entry in logs] == ["tool.not_described"]


def test_what_a_command_brings_is_reported_in_its_order():
    """One answer for each tool: its facts, or what is wrong with it."""
    posted = []
    packed = (pack(look, "look"), NOWHERE)
    load(Toolbox([], posted.append), *packed)
    (reported,) = posted

    assert isinstance(reported, ToolsLoaded)
    assert reported.id == "c"
    found = reported.found[0].tool
    assert found == ToolFacts("look", is_repeatable=True, packed=packed[0], chars=found.chars)
    assert (reported.found[1].label, reported.found[1].tool) == ("gone", None)
    assert "No module named" in reported.found[1].problem


def test_tools_are_exchanged_by_the_change_that_comes_of_loading():
    """What is not taken is forgotten; a detached tool is handed back to be let go."""
    gone = []

    def answer(reported):
        change = ChangeTools(reported.id, ("wait",), ("tailored",))
        gone.extend(box.change(change))

    box = Toolbox([loaded(Tailored()), loaded(look)], answer)
    load(box, pack(wait, "wait"))

    assert names(box) == ["look", "wait"]
    assert [one.tool.name for one in gone] == ["tailored"]
    assert box._loaded == {}


def test_tools_are_detached_without_loading():
    """The next request does not name them any more."""
    box = Toolbox([loaded(look), loaded(wait)], print)
    box.change(ChangeTools("d", (), ("look",)))

    assert names(box) == ["wait"]
    assert box.find("look") is None


def test_tools_that_take_too_long_are_a_problem(monkeypatch):
    """The command is refused; the session goes on."""
    monkeypatch.setattr(toolbox, "LOAD_S", 0.01)
    go, posted = threading.Event(), []

    def stuck(_packed):
        go.wait(10.0)
        raise LoadError("gone", "too late anyway")

    monkeypatch.setattr(toolbox, "load_tools", stuck)
    load(Toolbox([], posted.append), NOWHERE)
    go.set()

    assert [found.problem for found in posted[0].found] == ["gone: not loaded within 0.01 s"]
