"""Plugins travel as tools do: by name, by name with options, or by value; or they are refused."""

import re
import sys
import threading

import msgspec
import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.packing import PACKED_BYTES_MAX, Packed, pack_plugin

HERE = sys.modules[__name__]


class Guard(Plugin):
    """Lives in a test module, which no worker can import."""

    class Config(msgspec.Struct, frozen=True):
        """Options."""

        denied: frozenset[str] = frozenset()
        pattern: re.Pattern | None = None

    def before_tool(self, event, context):
        """Let everything pass."""


class Filter(Guard):
    """Stands in an installed module for the time of a test."""


class Large(Guard):
    """Holds more than may travel."""

    blob = bytes(PACKED_BYTES_MAX)


class Locked(Guard):
    """Holds what no process can give to another."""

    def __init__(self):
        """Lock."""
        super().__init__()
        self.lock = threading.Lock()


@pytest.fixture
def installed(monkeypatch):
    """Return the name of an installed module that has the plugin ``Filter``."""
    monkeypatch.setattr(Filter, "__module__", "msgspec")
    monkeypatch.setattr(msgspec, "Filter", Filter, raising=False)
    return "msgspec"


def options_of(packed):
    """Return the options beside a reference."""
    return None if packed.data is None else msgspec.msgpack.decode(packed.data)


@pytest.mark.parametrize(
    ("thing", "reference", "options"),
    [
        (plugins.CostGuard, "cost_guard", None),
        (plugins.CostGuard(max_tokens=5), "cost_guard", {"max_tokens": 5}),
        ((plugins.CostGuard, {"max_tokens": 5}), "cost_guard", {"max_tokens": 5}),
        ("cost_guard", "cost_guard", None),
        (("cost_guard", {"max_tokens": 5}), "cost_guard", {"max_tokens": 5}),
        ("my.lib:Guard", "my.lib:Guard", None),
        (("my.lib:Guard", {"x": [1]}), "my.lib:Guard", {"x": [1]}),
    ],
    ids=[
        "class", "instance", "class and options", "short name", "short name and options", "name",
        "name and options",
    ],
)  # fmt: skip
def test_names_travel_as_names(thing, reference, options):
    """Nothing is imported to send a name, and options travel beside it."""
    packed = pack_plugin(thing, "plugins[0]")

    assert (packed.kind, packed.ref, options_of(packed)) == ("ref", reference, options)


def test_installed_class_travels_by_name(installed):
    """What any process can import is not sent as code, nor are its options."""
    assert pack_plugin(Filter, "") == Packed(kind="ref", label="filter", ref="msgspec:Filter")
    assert options_of(pack_plugin((Filter, {"denied": {"dd"}}), "")) == {"denied": ["dd"]}


@pytest.mark.parametrize(
    "thing",
    [Guard, Guard(denied={"dd"}), (Guard, {"denied": ["dd"]})],
    ids=["class", "instance", "class and options"],
)
def test_local_code_travels_by_value(thing):
    """What stands beside a script is sent as code, for the Python that packed it."""
    packed = pack_plugin(thing, "plugins[0]")

    assert (packed.kind, packed.label) == ("value", "guard")
    assert packed.python == sys.version_info[:2]


def test_options_that_are_code_travel_by_value(installed):
    """An option that MessagePack does not take makes an installed class travel with it."""
    assert pack_plugin((Filter, {"pattern": re.compile("x")}), "").kind == "value"
    assert pack_plugin(Filter(denied={"dd"}), "").kind == "value"


@pytest.mark.parametrize(
    ("thing", "problem"),
    [
        (7, "7 is no plugin: give a cmdc.Plugin class"),
        ("a b", "'a b' is no plugin: give \"module:name\", or the short name of a built-in plugin"),
        ((Guard, {"colour": 1}), "plugin 'guard': there is no option 'colour'"),
        ((Guard, 7), "is no plugin"),
        ((plugins.CostGuard, {"max_tokens": 0}), "plugin 'cost_guard': option 'max_tokens': Expec"),
        ((plugins.CostGuard, {"colour": 1}), "plugin 'cost_guard': there is no option 'colour'"),
        (("m:x", {"f": len}), "options of 'm:x'['f']: a builtin_function_or_metho"),
        (Locked, None),
        (Locked(), "plugin 'locked' cannot travel, because of attribute 'lock' (_thread.lock)"),
        (Large, "plugin 'large' takes 4,"),
    ],
    ids=[
        "number", "word", "option", "pair", "bound", "built-in option", "code by name",
        "class with a lock", "lock", "large",
    ],
)  # fmt: skip
def test_what_cannot_travel_is_reported(thing, problem):
    """The error says where the plugin was given, what is wrong and the way out."""
    if problem is None:
        assert pack_plugin(thing, "plugins[3]").kind == "value"
        return
    with pytest.raises(InvalidOptions) as caught:
        pack_plugin(thing, "plugins[3]")

    [reported] = caught.value.problems
    assert reported.startswith("plugins[3]: ")
    assert problem in reported


def test_every_problem_keeps_its_place():
    """Several problems of one plugin are several lines, each with the place."""
    with pytest.raises(InvalidOptions) as caught:
        pack_plugin((Guard, {"colour": 1, "denied": 7}), "plugins[3]")

    assert [problem[:12] for problem in caught.value.problems] == ["plugins[3]: "] * 2
