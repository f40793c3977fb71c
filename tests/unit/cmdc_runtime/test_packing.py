"""What travels by name, what by value, and what is refused before it leaves."""

import gc
import json
import sys
import threading
from typing import ClassVar

import cloudpickle
import msgspec
import pytest

from cmdc_runtime import tools
from cmdc_runtime.errors import InvalidTool
from cmdc_runtime.extensions import Tool, tool
from cmdc_runtime.packing import PACKED_BYTES_MAX, BuiltIn, Packed, pack
from cmdc_runtime.packing.origin import is_installed, is_local_import, local_modules
from workers.builtin.tools import read_file

HERE = sys.modules[__name__]


@tool
def local(text: str) -> str:
    """Live in a test module, which no worker can import."""
    return text


class Echo(Tool):
    """A tool that stands in an installed module for the time of a test."""

    name = "echo"

    def execute(self, args, context):
        """Echo."""
        return str(args)


class Needy(BuiltIn, frozen=True, kw_only=True):
    """A reference with an option that has no default."""

    short_name: ClassVar[str] = "needy"
    path: str


@pytest.mark.parametrize(
    ("thing", "packed"),
    [
        (tools.ReadFile, Packed(kind="ref", label="read_file", ref="read_file")),
        (tools.ListDir(), Packed(kind="ref", label="list_dir", ref="list_dir")),
        ("read_file", Packed(kind="ref", label="read_file", ref="read_file")),
        (
            "my.lib:Tools.find",
            Packed(kind="ref", label="my.lib:Tools.find", ref="my.lib:Tools.find"),
        ),
    ],
    ids=["class", "instance", "short name", "reference"],
)
def test_names_travel_as_names(thing, packed):
    """Nothing is imported to send a name: it may be installed at the other end only."""
    assert pack(thing, "tools[0]") == packed


def test_options_of_a_built_in_travel_along():
    """Only what differs from the default is sent, so that a newer worker's defaults hold."""
    packed = pack(tools.Shell(timeout=20.0), "tools[0]")

    assert msgspec.msgpack.decode(packed.data) == {"timeout": 20.0}


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (tools.Shell(timeout="x"), "options of Shell: Expected `float`, got `str`"),
        (tools.Shell(timeout=0), "options of Shell: Expected `float` > 0.0"),
        (Needy, "Needy needs options"),
        ("a b", "'a b' is no tool"),
        (len, "function 'len' is no tool"),
    ],
    ids=["type", "bound", "missing", "name", "function"],
)
def test_bad_tools_are_refused_with_their_place(thing, text):
    """The message says which of the tools, and what is wrong with it."""
    with pytest.raises(InvalidTool) as caught:
        pack(thing, "tools[3]")

    assert str(caught.value).startswith(f"tools[3]: {text}")


def test_installed_code_travels_by_name(monkeypatch):
    """A class, an instance and a function of an installed module are named, not copied."""
    echo = Echo()
    found = tool(read_file.read_file)
    monkeypatch.setattr(json, "Echo", Echo, raising=False)
    monkeypatch.setattr(json, "echo", echo, raising=False)
    monkeypatch.setattr(Echo, "__module__", "json")
    monkeypatch.setattr(read_file, "read_file", found)
    packed = [pack(thing, "tools[0]") for thing in (Echo, echo, found)]

    assert [(one.label, one.ref, one.data) for one in packed] == [
        ("echo", "json:Echo", None),
        ("echo", "json:echo", None),
        ("read_file", "workers.builtin.tools.read_file:read_file", None),
    ]


def test_shadowed_name_travels_by_value(monkeypatch):
    """A name that leads to another object elsewhere is no name for this one."""
    monkeypatch.setattr(Echo, "__module__", "json")

    assert pack(Echo(), "tools[0]").kind == "value"


def test_local_code_travels_by_value():
    """What lies beside a script goes as code, with the Python that its byte code is for."""
    packed = pack(local, "tools[0]")

    assert (packed.kind, packed.label, packed.ref) == ("value", "local", None)
    assert packed.python == sys.version_info[:2]


def test_packing_leaves_cloudpickle_as_it_was():
    """The application's own use of cloudpickle, and what it registered, is not disturbed."""
    cloudpickle.register_pickle_by_value(HERE)
    try:
        pack(local, "tools[0]")
        registered = cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(HERE)

    assert registered == {__name__}


def test_what_cannot_travel_is_named():
    """The message leads from the tool to the part, and says the way out."""
    lock = threading.Lock()
    holder = {"guard": [lock]}

    @tool
    def locked() -> str:
        """Use a lock."""
        return str(holder)

    with pytest.raises(InvalidTool) as caught:
        pack(locked, "tools[0]")

    assert str(caught.value) == (
        "tools[0]: tool 'locked' cannot travel, because of closure variable 'holder'"
        " (builtins.dict) → key 'guard' (builtins.list) → item 0 (_thread.lock): cannot pickle"
        " '_thread.lock' object; make it inside the tool when it is called, or install the tool as"
        ' a package and give "module:name"; with @cmdc.tool(where="client") it stays in this'
        " program"
    )


def test_attribute_that_cannot_travel_is_named():
    """The parts of an instance are looked through as well."""
    echo = Echo()
    echo.guard = threading.Lock()
    with pytest.raises(InvalidTool, match=r"because of attribute 'guard' \(_thread.lock\)"):
        pack(echo, "tools[0]")


def test_size_is_bounded():
    """A tool that drags a large value along is refused, with its size."""
    ballast = "x" * PACKED_BYTES_MAX

    @tool
    def heavy() -> str:
        """Carry much."""
        return ballast

    with pytest.raises(InvalidTool, match="tool 'heavy' takes 4,19"):
        pack(heavy, "tools[0]")


def test_local_import_within_a_function_is_refused(tmp_path, monkeypatch):
    """A module that would be looked for only when the tool runs would not be found there."""
    (tmp_path / "beside_it.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    @tool
    def late() -> str:
        """Import late."""
        import beside_it  # noqa: PLC0415

        return str(beside_it.x)

    with pytest.raises(InvalidTool, match="late imports 'beside_it' when it is called"):
        pack(late, "tools[0]")


def test_origin_is_known_by_the_file():
    """The standard library, packages and ours are installed; a script and a test are not."""
    names = ("json", "sys", "os.path", "msgspec", "cmdc_runtime.ids", "__main__", __name__, "none")
    found = [is_installed(name) for name in names]

    assert found == [True, True, True, True, True, False, False, False]


def test_modules_that_come_meanwhile_do_not_matter():
    """A thread may import while we look, or what the garbage collector calls."""
    before, threshold = set(sys.modules), gc.get_threshold()
    held = [(number, number) for number in range(5_000)]  # so that each new pair asks for memory

    def arrive(_phase, _info):
        sys.modules[f"late_{len(sys.modules)}"] = HERE

    gc.callbacks.append(arrive)
    gc.set_threshold(1)
    try:
        found = local_modules()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(arrive)
        for name in set(sys.modules).difference(before):
            del sys.modules[name]

    assert held
    assert __name__ in found


def test_local_modules_hold_this_test():
    """What another process could not import is found, and only that."""
    modules = local_modules()

    assert modules[__name__] is HERE
    assert not {"json", "msgspec", "cmdc_runtime"} & modules.keys()


def test_missing_module_is_not_local():
    """An import that would fail here as well is the tool's own business."""
    found = [is_local_import(name) for name in ("no_such_module", "json.decoder", "sys", "dill")]

    assert found == [False, False, False, False]
