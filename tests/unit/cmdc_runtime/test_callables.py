"""What yields is refused where a function is called for what it returns."""

import functools

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.callables import yield_problem
from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.options import parse
from cmdc_runtime.spec import agent_spec

RETURN = "it yields, so that a call of it would run nothing: return the values as a list"


def generator(*_given):
    yield "a"


async def async_generator(*_given):
    yield "a"


class Yielding:
    def method(self, *_given):
        yield "a"

    async def async_method(self, *_given):
        yield "a"

    __call__ = method


class AsyncYielding:
    async def __call__(self, *_given):
        yield "a"


YIELDING = {
    "a generator": generator,
    "an async generator": async_generator,
    "a partial": functools.partial(generator, 1),
    "a partial of an object": functools.partial(Yielding(), 1),
    "a method": Yielding().method,
    "an async method": Yielding().async_method,
    "an object": Yielding(),
    "an async object": AsyncYielding(),
}


@pytest.mark.parametrize("function", YIELDING.values(), ids=YIELDING)
def test_what_yields_is_known_in_each_form(function):
    """By the words of its error."""
    assert yield_problem(function) == RETURN


@pytest.mark.parametrize("function", YIELDING.values(), ids=YIELDING)
@pytest.mark.parametrize(
    "options",
    [
        lambda one: {"redact": one},
        lambda one: {"input_guardrails": [one]},
        lambda one: {"output_guardrails": [one]},
        lambda one: {
            "handoffs": [cmdc.Handoff(to=cmdc.SubAgent(name="a", description="d"), history=one)]
        },
    ],
    ids=["redact", "input_guardrails", "output_guardrails", "handoffs"],
)
def test_what_yields_is_no_function_of_an_option(options, function):
    """Its body would never run."""
    with pytest.raises(InvalidOptions, match=RETURN):
        agent_spec(parse(None, {"model": "x:m", **options(function)}))


@pytest.mark.parametrize("where", ["agent", "client"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_what_yields_is_no_tool(where, is_async):
    """It is refused where it is decorated, with the way out."""

    def sync_counts():
        yield "a"

    async def async_counts():
        yield "a"

    with pytest.raises(InvalidTool, match=RETURN):
        cmdc.tool(where=where)(async_counts if is_async else sync_counts)


@pytest.mark.parametrize("execute", [generator, async_generator])
def test_a_class_whose_execute_yields_is_no_tool(execute):
    """It is refused before its session starts."""
    kind = type("Counts", (cmdc.Tool,), {"name": "counts", "execute": execute})

    with pytest.raises(InvalidTool, match=f"execute: {RETURN}"):
        agent_spec(parse(None, {"model": "x:m", "tools": [kind()]}))


async def waits():
    return 1


@pytest.mark.parametrize(
    "function",
    [len, functools.partial(len, "a"), str, Yielding, waits, lambda: [1], "a:b", None, 3, 5],
)
def test_what_returns_is_none_that_yields(function):
    """A class, a built-in, a partial of one, a coroutine function, what is not called."""
    assert yield_problem(function) is None
