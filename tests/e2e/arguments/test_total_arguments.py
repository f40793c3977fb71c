"""The public calls, walked by their signatures, with values that nobody means.

A value is taken as it is meant, or refused at once by an error of ours that names the argument.
"""

import asyncio
import inspect
import math
import re
import time
import traceback
from itertools import repeat

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.client.stream import AsyncCycleStream
from cmdc_runtime.client.sync.session import Client
from cmdc_runtime.client.sync.stream import CycleStream
from cmdc_runtime.commands import TOOLS_MAX
from cmdc_runtime.errors import TEXT_CHARS_MAX, CmdcError
from cmdc_runtime.options import FIELDS
from cmdc_runtime.testing import ScriptedModel

pytestmark = pytest.mark.process

AT_ONCE_S = 5.0
"""For a refusal, on a machine that does much else."""
TURN_S = 30.0
HOSTILE = {
    "5": 5,
    "None": None,
    "empty": "",
    "nul": "\0",
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [],
    "dict": {},
    "object": object(),
    "nan": math.nan,
    "-1": -1,
    "2**70": 2**70,
    "true": True,
    "nope": "nope",
}


def kept(base):
    """Return the methods without which there would be no object."""
    made = {"__new__", "__init__", "__init_subclass__", "__subclasshook__", "__getattribute__"}
    return made | {name for name in dir(base) if not callable(getattr(base, name))} | {"__class__"}


def _broken(_self, *_args, **_given):
    raise RuntimeError("a stranger's method")


def foreign(base, *content):
    """Return a value of a user's own subclass, every method of which fails."""
    names = {*dir(base), "__bool__", "__index__", "__str__"} - kept(base)
    return type(f"Foreign{base.__name__.title()}", (base,), dict.fromkeys(names, _broken))(*content)


class Unbound:
    """What stands for an object that is not there: nothing of it can be looked at."""

    __getattribute__ = _broken


class Lazy:
    """What finds out at its first use that it is not there."""

    __getattr__ = _broken


class Uncountable:
    """What can be iterated over, and then fails."""

    def __iter__(self):
        yield "nope"
        _broken(self)


FOREIGN = {
    "foreign nope": foreign(str, "nope"),
    "foreign 5": foreign(int, 5),
    "foreign nan": foreign(float, math.nan),
    "foreign bytes": foreign(bytes, b"x"),
    "foreign list": foreign(list, ["nope"]),
    "foreign tuple": foreign(tuple, ("nope", {})),
    "foreign set": foreign(set, {"nope"}),
    "foreign dict": foreign(dict, {"nope": math.nan}),
    "foreign object": foreign(object),
    "unbound": Unbound(),
    "lazy": Lazy(),
    "uncountable": Uncountable(),
    "of strangers": [foreign(str, "nope"), foreign(list), foreign(object), Unbound()],
    "of the lazy": [Lazy()],
    "of the unbound": [Unbound()],
    "to a stranger": {"nope": foreign(str, "\ud800")},
    "to the unbound": {"nope": Unbound()},
    "pair": ("m:P", foreign(dict, {"nope": foreign(float, math.nan)})),
}
"""Of classes of the application's own, whose methods fail: their content may be taken."""
LARGE = "x" * (4 * TEXT_CHARS_MAX)
LARGE_VALUES = {
    "large str": LARGE,
    "large lines": "\n" * len(LARGE),
    "large bytes": LARGE.encode(),
    "large list": [LARGE],
    "large dict": {LARGE: LARGE},
    "large int": 10**5_000,
    "large name": type(LARGE, (), {})(),
    "large pair": (LARGE, {LARGE: LARGE}),
}
"""What no error may show whole."""


class Watched:
    """What counts how often it, or another one, is looked at."""

    looks = 0

    def __getattribute__(self, name):
        Watched.looks += 1
        return super().__getattribute__(name)

    def __repr__(self):
        Watched.looks += 1
        return "watched"


MANY = 100_000
LOOKS_MAX = 4 * TOOLS_MAX
"""At what a call is given: far below the parts that are too many for it."""
MANY_VALUES = {
    "many": [Watched()] * MANY,
    "many of a tuple": (Watched(),) * MANY,
    "many of a dict": dict.fromkeys(range(MANY), Watched()),
    "many of a pair": ("m:P", {"nope": [Watched()] * MANY}),
    "many names": ("m:P", dict.fromkeys(map(str, range(MANY)), Watched())),
    "many in one": [[Watched()] * MANY],
    "without end": repeat(Watched()),
}
"""Of which no call looks at all, to refuse it or to show it."""
STRANGE = FOREIGN | LARGE_VALUES | MANY_VALUES
VALUES = HOSTILE | STRANGE
TRACED_CHARS_MAX = 3 * TEXT_CHARS_MAX
"""Of an error with its traceback."""
LISTS = {"tuple", "set", "of strangers", "large list", "large pair", "pair", "foreign list"}
"""Of what is not there, which is reported by its own name."""
MEANT = {
    "timeout": {"5", "None"},
    "since": {"5", "None"},
    "types": {"list", "None"},
    "text": {"nope", "nul", "large str", "list", *LISTS},
    "session": {"nope"},
    "session_id": {"nope"},
    "stream": {"nope"},
    "callback": {"None"},
    "persistent": {"true"},
    "auto_resume": {"true"},
    "clear_queue": {"true"},
    "children": {"true"},
    "ended": {"true"},
    "checkpoint_id": {"None", "nope"},
    "label": {"None", "nope", "empty"},
    "metadata": {"None", "dict"},
    "provider_opts": {"None", "dict"},
    "group_id": {"nope"},
    "new_id": {"None", "nope"},
    "tools": {"list", *LISTS},
    "names": {"list", *LISTS},
    "dirs": {"list"},
    "sessions": {"None", "list"},
    "size": {"5"},
    "files": {"list"},
    "approval_id": {"nope"},
    "name": {"nope"},
    "address": {"None", "nope"},
    "id_": {"nope"},
    "connector": {"None"},
    "options": {"None"},
    "result": {"None"},
    "response": {*VALUES} - {"surrogate", "object", "nan", "2**70"},
}
"""What may be taken; an argument that is not named here takes none. A monitor takes an id that
nobody has, and says so."""
ANYTHING = {"reason"}
"""Plain data of any kind, or one line of text; the call says which."""
CALLED = {
    "ref": "ref|question",
    "text": "prompt|steering|text",
    "id_": "session|id_",
    "stream": "session|stream",
    "names": "name|tool",
}
"""Arguments that an error calls by another word."""
RIGHT = {
    "text": "Hello.",
    "approval_id": "a-1",
    "ref": "r-0123456789abcdef",
    "response": "yes",
    "tool": "shell",
    "server": cmdc.McpServer("files", command=["files"]),
    "tools": ["shell"],
    "plugin": "m:P",
    "dirs": ["skills"],
    "files": ["AGENTS.md"],
    "name": "n",
    "names": ["n"],
    "model": "openai:x",
    "group_id": "team",
    "stream": "s-none",
    "new_id": "nope",
    "timeout": TURN_S,
}
NOT_CALLS = {"close", "connect", "wait", "create_agent"}
"""Without arguments, covered by other tests, or (``create_agent``) options, which have a test."""


def calls_of(kind):
    """Return the public calls of a class that take something."""
    found = inspect.getmembers(kind, inspect.isfunction)
    names = [name for name, _ in found if not name.startswith("_") and name not in NOT_CALLS]
    return [name for name in names if parameters_of(getattr(kind, name))]


def parameters_of(call):
    found = list(inspect.signature(call).parameters.values())
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [one for one in found if one.kind not in kinds and one.name != "self"]


def arguments(parameters, wrong, value, right):
    """Return what a call gets: one wrong value, and for the rest what it should have."""
    given = {
        one.name: right.get(one.name, one.default)
        for one in parameters
        if one.name in right or one.default is not one.empty
    } | {wrong: value}
    places = [one.name for one in parameters if one.kind is one.POSITIONAL_ONLY]
    return [given.pop(name) for name in places], given


async def outcome(call, args, given):
    """Return what a call of either kind ends with; a stream is closed, or read where it is lazy."""
    answer = call(*args, **given)
    if inspect.isawaitable(answer):
        answer = await asyncio.wait_for(answer, TURN_S)
    if isinstance(answer, cmdc.EventStream | CycleStream):
        answer.close()
    elif isinstance(answer, cmdc.AsyncEventStream | AsyncCycleStream):
        await answer.close()


async def problem_of(call, name, kind, parameters, right):
    """Return what is wrong with how a value is taken or refused."""
    args, given = arguments(parameters, name, VALUES[kind], right)
    begun_s = time.monotonic()
    Watched.looks = 0
    try:
        await outcome(call, args, given)
    except CmdcError as error:
        reported, is_refused = str(error), True
        if len(reported) > TEXT_CHARS_MAX or len(traced(error)) > TRACED_CHARS_MAX:
            return f"reports {len(reported)} characters, {len(traced(error))} with its traceback"
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}: {error}"[:80]
    else:
        reported, is_refused = "", False
    took_s = time.monotonic() - begun_s
    if Watched.looks > LOOKS_MAX:
        return f"looks {Watched.looks:,} times at it"
    if name in ANYTHING or {kind, kind.removeprefix("foreign ")} & MEANT.get(name, {""}):
        return "waited" if took_s > TURN_S else None
    if not is_refused:
        return "taken" if kind in HOSTILE else None
    words = CALLED.get(name, "session" if name.startswith("session") else name)
    return (
        None if re.search(words, reported) and took_s < AT_ONCE_S else f"{took_s:.1f} s: {reported}"
    )


def traced(error):
    """Return an error as Python shows it, with what it comes from."""
    return "".join(traceback.format_exception(error))


async def problems_of(call, right, kinds=VALUES):
    """Return all that is wrong with a call, by argument and value."""
    parameters = parameters_of(call)
    found = {}
    for one in parameters:
        for kind in kinds:
            if problem := await problem_of(call, one.name, kind, parameters, right):
                found[one.name, kind] = problem
    return found


def rights(session_id, name):
    """Return the arguments as they should be; who stops is given nobody to stop."""
    subject = "s-none" if name == "stop" else session_id
    return RIGHT | {"session": subject, "session_id": subject}


@pytest.fixture(scope="module")
def own():
    """A client with a daemon of its own, which ends with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CMDC_ADDRESS", raising=False)
        with Client() as found:
            yield found


@pytest.fixture(scope="module")
def session(own):
    """A session that has answered once.

    Its process has litellm, as for an option that only litellm takes: a switch to a model that
    needs it makes no idle session move to another process, whose start a refusal would wait for.
    """
    with ScriptedModel([], default="fine") as model:
        name, opts = model.model_source()
        with own.create_agent(model=name, provider_opts={**opts, "drop_params": True}) as found:
            found.run("Hello.", timeout=TURN_S)
            yield found


@pytest.fixture(autouse=True)
def _no_fork_is_left(own):
    """A state that was resumed under another id is a session, too."""
    yield
    for status in own.list_sessions():
        if status.session_id == "nope":
            own.stop("nope")


@pytest.mark.parametrize("name", calls_of(cmdc.Client))
def test_a_call_of_the_client_takes_what_is_meant(own, session, name):
    """For threads."""
    found = asyncio.run(problems_of(getattr(own, name), rights(session.id, name)))

    assert found == {}


@pytest.mark.parametrize("name", [one for one in calls_of(cmdc.Session) if one != "stop"])
def test_a_call_of_the_session_takes_what_is_meant(session, name):
    """For threads; it hands on what it gets to the client."""
    found = asyncio.run(problems_of(getattr(session, name), rights(session.id, name), HOSTILE))

    assert found == {}


@pytest.mark.parametrize("name", calls_of(cmdc.AsyncClient))
def test_a_call_of_the_async_client_takes_what_is_meant(own, session, name):
    """For coroutines; a stream is refused before it is read."""

    async def asked():
        async with cmdc.AsyncClient(address_of(own)) as other:
            return await problems_of(getattr(other, name), rights(session.id, name))

    assert asyncio.run(asked()) == {}


@pytest.mark.parametrize("name", [one for one in calls_of(cmdc.AsyncSession) if one != "stop"])
def test_a_call_of_the_async_session_takes_what_is_meant(own, session, name):
    """For coroutines; it hands on what it gets to the client."""

    async def asked():
        async with cmdc.AsyncClient(address_of(own)) as other:
            one = cmdc.AsyncSession(session.id, other)
            return await problems_of(getattr(one, name), rights(session.id, name), HOSTILE)

    assert asyncio.run(asked()) == {}


def address_of(own):
    """Return where a client's daemon is."""
    return own._engine.exchange._connector._connection.place.directory


@pytest.mark.parametrize("kind", [cmdc.Client, cmdc.AsyncClient])
def test_an_address_is_refused_where_it_is_given(kind):
    """Not by the first call."""
    assert asyncio.run(problems_of(kind, {})) == {}


@pytest.mark.parametrize("kind", [cmdc.Session, cmdc.AsyncSession])
def test_a_session_object_is_of_an_id_and_a_client(own, kind):
    """Not what fails at the first call."""
    asked = own if kind is cmdc.Session else cmdc.AsyncClient("nowhere")

    assert asyncio.run(problems_of(kind, {"id_": "s-1", "client": asked})) == {}


@pytest.mark.parametrize("name", FIELDS)
def test_an_option_is_taken_or_refused_by_its_name(name):
    """Before anything is sent."""

    def asked(**given):
        start_request(None, {"model": "openai:x"} | given)

    async def problems():
        one = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        found = {kind: await problem_of(asked, name, kind, [one], {}) for kind in STRANGE}
        return {kind: problem for kind, problem in found.items() if problem}

    assert asyncio.run(problems()) == {}


def test_the_waits_take_what_is_meant(own, session):
    """Of streams and monitors of both kinds."""

    async def asked():
        found = {}
        async with cmdc.AsyncClient(address_of(own)) as other:
            waits = [session.subscribe().get, session.monitor().wait]
            waits += [(await other.subscribe(session.id)).get]
            waits += [(await other.monitor(session.id)).wait]
            for at, wait in enumerate(waits):
                (timeout,) = parameters_of(wait)
                for kind in {*VALUES} - MEANT["timeout"] - {"foreign 5"}:
                    if problem := await problem_of(wait, timeout.name, kind, [timeout], {}):
                        found[at, kind] = problem
        return found

    assert asyncio.run(asked()) == {}


@pytest.mark.parametrize(("module", "kind"), [(cmdc, cmdc.Client), (aio, cmdc.AsyncClient)])
def test_a_function_of_the_module_is_the_clients_method(module, kind):
    """So it takes what that takes: every one of them."""
    names = set(module.__all__) & {name for name, _ in inspect.getmembers(kind, inspect.isfunction)}

    assert {*calls_of(kind)} <= names
    for name in names:
        call = inspect.unwrap(getattr(module, name), stop=inspect.ismethod)
        assert call.__func__ is getattr(kind, name)
