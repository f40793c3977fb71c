"""What was packed comes back as a checked tool, or as one clear error."""

import ast
import inspect
import pickle
import pkgutil
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from cmdc_runtime import tools
from cmdc_runtime.errors import UsageError
from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.options import Options
from cmdc_runtime.packing import BuiltIn, Packed, built_ins, pack, pack_plugin, pack_strategy
from cmdc_runtime.spec import agent_spec
from workers.loader import PLUGINS, STRATEGIES, TOOLS, LoadError, load_tools

ROOT = Path(__file__).parents[3]


class Raiser:
    """Runs a function while it is unpickled."""

    def __init__(self, function, *args):
        """Keep what to call."""
        self.call = (function, args)

    def __reduce__(self):
        """Ask for the call."""
        return self.call


@tool
def echo(text: str, *, context: Context) -> str:
    """Echo."""
    return f"{text} from {context.session_id}"


def named_as(kind):
    """Return a tool that is called as a class."""
    return tool(name=kind.__name__)(lambda: None)


def by_value(thing, **changes):
    """Return packed code with plain pickle inside."""
    fields = {"kind": "value", "label": "odd", "data": pickle.dumps(thing)}
    return Packed(**{**fields, **changes})


def test_tool_comes_back_whole():
    """A tool that travelled as code has its schema, checks and code."""
    [loaded] = load_tools([pack(echo, "tools[0]")])
    context = Context(session_id="s-1", call_id="call_1")

    assert loaded is not echo
    assert loaded.spec() == echo.spec()
    assert loaded.execute(loaded.check({"text": "hi"}), context) == "hi from s-1"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("cmdc_runtime.extensions.kernel_emits", "UpdateSystemContext"),
        ("cmdc_runtime.events.client", "EventsLost"),
        ("cmdc_runtime.reasoning.tree_of_thoughts", "TreeOfThoughts"),
    ],
)
def test_code_may_be_older_than_the_place_of_what_it_uses(module, name):
    """A session goes on where a class of ours stands in another module than when it was packed."""
    old = f"c{__name__}\nnamed_as\n(c{module}\n{name}\ntR.".encode()

    [loaded] = load_tools([by_value(None, data=old)])

    assert loaded.name == name


def test_short_names_are_modules_of_the_built_ins():
    """The name of a file in the folder of built-in tools is a tool's name, in the given order."""
    packed = [pack(thing, "") for thing in (tools.Shell(timeout=20), tools.ReadFile, "list_dir")]
    loaded = load_tools(packed)

    assert [one.name for one in loaded] == ["shell", "read_file", "list_dir"]
    assert loaded[0].parameters["properties"]["timeout"]["maximum"] == 20


def test_two_tools_of_one_name_are_refused():
    """A model could not distinguish them."""
    with pytest.raises(LoadError, match="another tool is named 'read_file' too"):
        load_tools([pack(tools.ReadFile, ""), pack("read_file", "")])


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (
            by_value(None, data=b"cno_such_module\nx\n."),
            "No module named 'no_such_module'; install it where the daemon runs",
        ),
        (
            Packed(kind="ref", label="odd", ref="no_such_module:x"),
            "No module named 'no_such_module'; install it where the daemon runs",
        ),
        (
            Packed(kind="ref", label="odd", ref="json:nothing"),
            "module 'json' has no attribute 'nothing'; is another version installed where",
        ),
        (by_value(Raiser(sys.exit, 3)), "its code called sys.exit(3)"),
        (by_value(Raiser(signal.default_int_handler, 2, None)), "KeyboardInterrupt"),
        (by_value(Raiser(int, "x")), "ValueError: invalid literal for int() with base 10: 'x'"),
        (by_value(None, data=b"\x80"), "UnpicklingError: pickle data was truncated"),
        (by_value(7), "InvalidTool: 7 is no tool"),
        (
            Packed(kind="ref", label="odd", ref="nothing"),
            "there is no built-in tool 'nothing', only apply_patch, ask_user, ",
        ),
        (
            Packed(kind="ref", label="odd", ref="shell", data=msgspec.msgpack.encode({"x": 1})),
            "TypeError: create() got an unexpected keyword argument 'x'",
        ),
        (by_value(None, python=(3, 1)), "its code was packed by Python 3.1"),
    ],
    ids=[
        "missing module", "missing reference", "missing name", "exit", "interrupt", "exception",
        "torn", "no tool", "no built-in", "bad option", "other Python",
    ],
)  # fmt: skip
def test_whatever_goes_wrong_is_one_error(packed, message):
    """The error names the tool and what is missing, also when the code tries to end the process."""
    with pytest.raises(LoadError) as caught:
        load_tools([packed])

    assert caught.value.label == "odd"
    assert str(caught.value).startswith(f"tool 'odd' cannot be loaded: {message}")


@pytest.mark.parametrize(
    ("tool", "prefix"),
    [
        (tools.Reason(strategies=["no_such:Mine"]), "tool 'reason' cannot be loaded: "),
        ("own", "reasoning_strategy: "),
    ],
)
def test_a_strategy_that_is_not_there_is_reported_in_plain_words(tool, prefix):
    """By its name, without the classes of errors; a session's own is an option, and no tool."""
    if tool == "own":
        spec = agent_spec(Options(model="a:b", reasoning_strategy="no_such:Mine"))
        (packed,) = spec.tools
    else:
        packed = pack(tool, "")
    with pytest.raises(LoadError) as caught:
        load_tools([packed])

    assert str(caught.value) == (
        f"{prefix}strategy 'no_such:Mine' cannot be loaded: No module named 'no_such'; install it"
        " where the daemon runs"
    )


@pytest.mark.parametrize(
    ("kind", "packed_as"), [(TOOLS, pack), (STRATEGIES, pack_strategy), (PLUGINS, pack_plugin)]
)
def test_an_application_knows_the_names_of_all_built_ins(kind, packed_as):
    """Those that a worker has, each by the name of its module."""
    found = pkgutil.iter_modules(kind.built_in.__path__)
    names = {one.name for one in found if not one.name.startswith("_")}
    with pytest.raises(UsageError) as caught:
        packed_as("nosuch", "")
    *_, offered = str(caught.value).rpartition(f"there is no built-in {kind.noun} 'nosuch', only ")

    assert names == built_ins(kind.noun).keys()
    assert set(offered.split(", ")) == names - {"chain"}


def references():
    """Return every light reference that applications are given."""
    return [thing for thing in vars(tools).values() if isinstance(thing, type)]


NEEDED = {"fetch_url": ["allow"]}
"""What a reference has no default for."""


@pytest.mark.parametrize(
    "reference",
    [thing for thing in references() if issubclass(thing, BuiltIn) and thing is not BuiltIn],
)
def test_light_references_match_the_built_ins(reference):
    """The fields of a reference are the arguments of ``create``, with the same defaults."""
    module = __import__(f"workers.builtin.tools.{reference.short_name}", fromlist=["create"])
    arguments = inspect.signature(module.create).parameters
    needed = {name: ["example.org"] for name, one in arguments.items() if one.default is one.empty}
    made = reference(**needed)

    assert list(needed) == NEEDED.get(reference.short_name, [])
    assert list(arguments) == list(reference.__struct_fields__)
    for name, argument in arguments.items():
        if name not in needed:
            assert argument.default == (getattr(made, name) or None), name
    assert isinstance(module.create(**needed), Tool)


def test_only_the_loader_unpickles():
    """No other file of the product opens a pickle."""
    found = {
        str(path.relative_to(ROOT))
        for package in ("cmdc_runtime", "supervisor", "workers")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).endswith(("pickle.load", "pickle.loads", "pickle.Unpickler"))
    }

    assert found == {"workers/loader.py"}
