"""What comes from an application: looked at without the code of its classes."""

import asyncio
import inspect
from itertools import repeat

import pytest

from cmdc_runtime.client.edge import edge, guarded, parts_of, taken
from cmdc_runtime.errors import UsageError


class Named(str):
    """A text with a method of its own."""

    __slots__ = ()

    def strip(self, _chars=None, /):
        raise RuntimeError("no strip")


class Proxy:
    """What raises one error at every look."""

    def __init__(self, error):
        object.__setattr__(self, "error", error)

    def __getattribute__(self, name):
        raise object.__getattribute__(self, "error")


class Failing:
    """What fails when it is iterated over."""

    def __init__(self, error):
        self.error = error

    def __iter__(self):
        raise self.error


@edge
class Callee:
    """A class with calls of both kinds."""

    def __init__(self, address=None):
        self.address = address

    def call(self, name, /, *, flag=None, **options):
        return name, flag, options

    async def wait(self, name):
        return name

    def look(self):
        return self.address


def test_a_value_of_a_subclass_arrives_as_what_it_holds():
    """By place and by name, of a call, a coroutine and a constructor; options as given."""
    given = Named("a")
    one = Callee(given)
    name, flag, options = one.call(given, flag=given, option=given)

    assert {*map(type, (one.look(), name, flag, asyncio.run(one.wait(name=given))))} == {str}
    assert options["option"] is given


def test_a_guarded_call_reads_as_it_was_written():
    """For whoever looks at its signature, and where it is called wrongly."""
    assert str(inspect.signature(Callee.wait)) == "(self, name)"
    assert inspect.iscoroutinefunction(Callee.wait)
    assert not hasattr(Callee.look, "__wrapped__")
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        Callee().call("a", "b")


def test_what_cannot_be_looked_at_is_refused_by_the_arguments_name():
    """A proxy of what is not there."""
    with pytest.raises(UsageError, match=r"^name: .* can't be looked at: RuntimeError: unbound$"):
        Callee().call(Proxy(RuntimeError("unbound")))


def test_an_iterable_that_fails_is_refused_by_the_arguments_name():
    """With what it says."""
    with pytest.raises(UsageError, match=r"^names: .* failed: LookupError: gone$"):
        parts_of(Failing(LookupError("gone")), "names", 1)
    with pytest.raises(UsageError, match=r"^names\[1\]: "):
        parts_of(["a", Proxy(RuntimeError("unbound"))], "names", 2)


@pytest.mark.parametrize("things", [[Proxy(RuntimeError("unbound"))] * 3, repeat("a")])
def test_of_too_many_no_part_is_looked_at(things):
    """Nor is more read of them than it takes to know."""
    with pytest.raises(UsageError, match=r"^names: at most 2 are taken, got more$"):
        parts_of(things, "names", 2)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_goes_its_way(kind):
    """Nobody can know who is meant by it."""
    with pytest.raises(kind):
        parts_of(Failing(kind()), "names", 1)
    with pytest.raises(kind):
        taken(Proxy(kind()), "name")
    with pytest.raises(kind):
        guarded(Callee.call)(Callee(), Proxy(kind()))
