"""Tools that change what they have captured: the warning, and what is no reason for one."""

import array
import collections
import functools
import logging
import sys
import types
import warnings

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.packing import pack

SEEN, TABLE, LOG = [], {}, logging.getLogger(__name__)
COUNT = 0


class Counter:
    """State of an application."""

    def __init__(self):
        self.count, self.names = 0, []

    def add(self):
        """Change it."""
        self.count += 1

    def add_twice(self):
        """Change it by another method."""
        self.add()
        self.add()

    def add_late(self):
        """Change it by a method of a method of its method: no look goes that deep."""
        self.add_twice()

    def again(self):
        """End never."""
        return self.again()

    def look(self):
        """Leave it alone."""
        return self.count


class Meta(type):
    """A class of classes."""


class Shared(metaclass=Meta):
    """A class, which is no object of the application."""


COUNTER = Counter()


def changing():
    """Return functions that change something, each with what it changes."""
    return changing_containers() | changing_others()


def changing_containers():
    """Return those that change what holds other things."""
    mine, numbers, both = [], {"n": 0}, collections.deque()
    names, raw = set(), bytearray()

    def appends(x: int) -> str:
        mine.append(x)
        return ""

    def sets(x: int) -> str:
        numbers["n"] += x
        return ""

    def deletes(x: int) -> str:
        del numbers[str(x)]
        return ""

    def pushes(x: int) -> str:
        both.appendleft(x)
        return ""

    def adds(x: int) -> str:
        names.add(x)
        return ""

    def grows(x: int) -> str:
        raw.append(x)
        return ""

    def after_own(x: int) -> str:
        own = {}
        own["x"] = x
        mine.append(x)
        return ""

    def of_module(x: int) -> str:
        SEEN.append(x)
        return ""

    return {
        appends: "'mine', a list",
        sets: "'numbers', a dict",
        deletes: "'numbers', a dict",
        pushes: "'both', a deque",
        adds: "'names', a set",
        grows: "'raw', a bytearray",
        after_own: "'mine', a list",
        of_module: "'SEEN', a list",
    }


def changing_others():
    """Return those that change an object or a number."""
    state = Counter()
    total = 0

    def after_own_object(x: int) -> str:
        own = Counter()
        own.count = x
        state.count = x
        return ""

    def assigns(x: int) -> str:
        state.count = x
        return ""

    def deep(x: int) -> str:
        state.names.append(str(x))
        return ""

    def calls(x: int) -> str:
        state.add_twice()
        return ""

    def counts(x: int) -> str:
        nonlocal total
        total += x
        return ""

    def of_module_number(x: int) -> str:
        global COUNT  # noqa: PLW0603 - what is shown
        COUNT += x
        return ""

    return {
        after_own_object: "'state', a Counter",
        assigns: "'state', a Counter",
        deep: "'state.names', a list",
        calls: "'state', a Counter",
        counts: "'total', an int",
        of_module_number: "'COUNT', an int",
    }


def harmless():  # noqa: C901 - one function for each kind
    """Return functions that change nothing which anybody else has."""
    mine, numbers = [1, 2], {"n": 0}
    state = Counter()

    def reads(x: int) -> str:
        return f"{mine[0]} {numbers.get('n')} {mine.count(x)} {state.count}"

    def own(x: int) -> str:
        found, table = [], {}
        found.append(x)
        table["x"] = x
        return str(found)

    def shadows(x: int) -> str:
        SEEN = []  # noqa: N806 - its own
        SEEN.append(x)
        return ""

    def shadows_an_attribute(x: int) -> str:
        SEEN, TABLE = [], {}  # noqa: N806 - its own, though a global has the name of each
        SEEN.append(x)
        TABLE["x"] = x
        return str(COUNTER.SEEN) + COUNTER.TABLE(lambda: TABLE)

    def begins_a_global(x: int) -> str:
        global NOT_YET  # noqa: PLW0603 - what is shown
        NOT_YET = x
        return ""

    def looks(x: int) -> str:
        return str(state.look())

    def endless(x: int) -> str:
        return str(state.again())

    def copies(x: int) -> str:
        return str(sorted(mine)) + str({**numbers, "x": x})

    def logs(x: int) -> str:
        LOG.info("x", extra={"x": x})
        return ""

    async def in_the_agent(x: int) -> str:
        mine.append(x)
        return ""

    of_objects = [looks, endless, logs]
    return [
        reads,
        own,
        shadows,
        shadows_an_attribute,
        begins_a_global,
        copies,
        in_the_agent,
        *of_objects,
    ]


def unseen():
    """Return functions that change what is no plain container or object of the script."""
    numbers, state = array.array("i", [0]), Counter()

    def of_another_kind(x: int) -> str:
        numbers[0] = x
        return ""

    def of_a_package(x: int) -> str:
        LOG.disabled = True
        LOG.handlers.append(x)
        return ""

    def of_a_module(x: int) -> str:
        collections.spare = x
        return ""

    def of_a_class(x: int) -> str:
        Shared.count = x
        return ""

    def too_deep(x: int) -> str:
        state.add_late()
        return ""

    return [of_another_kind, of_a_package, of_a_module, of_a_class, too_deep]


@pytest.mark.parametrize(
    ("function", "what"), changing().items(), ids=[one.__name__ for one in changing()]
)
def test_a_change_of_the_captured_is_warned_of(function, what):
    """With its name, its kind, and the way out."""
    tool = cmdc.tool(function)
    with pytest.warns(cmdc.CapturedStateWarning) as caught:
        pack(tool, "tools[0]")
    (one,) = caught

    assert f"tool {function.__name__!r} changes {what} of this program" in str(one.message)
    assert 'where="client"' in str(one.message)
    assert one.filename == __file__


def test_a_tool_is_warned_of_once():
    """However often it is attached."""
    tool = cmdc.tool(next(iter(changing())))
    with pytest.warns(cmdc.CapturedStateWarning):
        pack(tool, "tools[0]")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack(tool, "tools[0]")


@pytest.mark.parametrize("function", [*harmless(), *unseen()], ids=lambda one: one.__name__)
def test_what_is_no_such_change_is_let_pass(function):
    """Also an ``async def``, whose process keeps what it changes for the next call.

    Nor is what can't be seen for certain.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack(cmdc.tool(function), "tools[0]")


def test_a_tool_of_the_program_is_let_pass():
    """It is the way out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack(cmdc.tool(where="client")(next(iter(changing()))), "tools[0]")


def test_an_object_that_is_a_tool_is_looked_into():
    """What it keeps of its calls is gone with each of them."""

    class Counting(cmdc.Tool):
        name, description = "counting", "Count."

        def __init__(self):
            self.calls = []

        def execute(self, args, context):
            self.calls.append(args)
            return ""

    with pytest.warns(cmdc.CapturedStateWarning, match=r"changes 'self.calls', a list"):
        pack(Counting(), "tools[0]")


class Noting(cmdc.Tool):
    """A tool that changes a list of its module."""

    name, description = "noting", "Note."

    def execute(self, args, context):
        """Change it."""
        SEEN.append(args)
        return ""


def test_an_object_of_an_installed_class_is_let_pass(monkeypatch):
    """Whoever uses a package can't mend it; what a package's own code makes is installed too."""
    made = types.ModuleType("json.made")
    made.Noting = type("Noting", (Noting,), {"__module__": made.__name__})
    monkeypatch.setitem(sys.modules, made.__name__, made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack(made.Noting(), "tools[0]")

    with pytest.warns(cmdc.CapturedStateWarning, match="changes 'SEEN', a list"):
        pack(Noting(), "tools[0]")


def test_an_object_whose_work_is_no_plain_function_is_let_pass():
    """It has no source of its own."""

    class Partial(Noting):
        execute = functools.partial(Noting.execute, None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pack(Partial(), "tools[0]")
