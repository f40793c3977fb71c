"""Every public call with every kind of wrong argument: what comes out is one of our errors."""

import asyncio
import inspect
import math
import os
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.options import FIELDS
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

pytestmark = pytest.mark.process

TURN_S = 30.0
AT_ONCE_S = 1.0
SCRIPT_S = 90.0


class Sly:
    """An object whose text is an error."""

    def __repr__(self):
        raise RuntimeError("no text")


def nested(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


WRONG = {
    "object": object(),
    "sly": Sly(),
    "bytes": b"\xff",
    "surrogate": "a\ud800b",
    "control": "a\x1b[2J",
    "empty": "",
    "huge": 2**70,
    "negative": -1,
    "nan": math.nan,
    "endless": math.inf,
    "wide": 1e300,
    "deep": nested(980),
    "deep dict": {"x": nested(200)},
    "odd dict": {1: {2}},
    "class": int,
    "function": lambda: None,
    "true": True,
    "list": [object()],
}
RIGHT = {
    "text": "Hello.",
    "approval_id": "a-1",
    "ref": "r-1",
    "response": "yes",
    "tool": "shell",
    "server": cmdc.McpServer("files", command=["files"]),
    "tools": ["shell"],
    "dirs": ["skills"],
    "files": ["AGENTS.md"],
    "plugin": "m:P",
    "name": "n",
    "names": ["n"],
    "model": "openai:x",
    "group_id": "team",
    "stream": "s-none",
}
UNTRIED = {"close", "connect", "create_agent", "list_sessions", "tree", "subscribe_all", "stream",
           "stream_events"}  # fmt: skip
CALLS = sorted(
    name
    for name, function in inspect.getmembers(cmdc.Client, inspect.isfunction)
    if not name.startswith("_") and name not in UNTRIED
)


@pytest.fixture(scope="module")
def session(client):
    """A session that is asked wrongly."""
    with ScriptedModel([], default="fine") as model, client.create_agent(model=model) as found:
        yield found


def judged(call, *args, **kwargs):
    """Return what is wrong with how a call ends: an error that is none of ours, or a long wait."""
    begun_s = time.monotonic()
    try:
        call(*args, **kwargs)
    except CmdcError as error:
        str(error).encode()  # it can be printed
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}"
    return "waited" if time.monotonic() - begun_s > TURN_S else None


def parameters_of(name):
    """Return the parameters of a call, without the client."""
    found = list(inspect.signature(getattr(cmdc.Client, name)).parameters.values())[1:]
    return [one for one in found if one.kind is not one.VAR_KEYWORD]


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_an_error_of_the_project(client, session, name):
    """Each parameter in turn, with all others as they should be; nothing is waited for."""
    parameters = parameters_of(name)
    subject = "s-none" if name == "stop" else session.id
    right = RIGHT | {"session": subject, "session_id": subject}
    problems = {}
    for wrong in parameters:
        for kind, value in WRONG.items():
            if wrong.name in {"since", "timeout"} and kind == "empty":
                continue
            given = {
                one.name: right.get(one.name, one.default)
                for one in parameters
                if one.name in right or one.default is not one.empty
            } | {wrong.name: value}
            if name == "run" and wrong.name == "session":
                given["timeout"] = TURN_S
            places = [one for one in parameters if one.kind is one.POSITIONAL_ONLY]
            args = [given.pop(one.name) for one in places]
            found = judged(getattr(client, name), *args, **given)
            if found is not None:
                problems[wrong.name, kind] = found

    assert problems == {}


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_option_is_named(client, name):
    """All are InvalidOptions, which name the field, and none is sent."""
    for kind, value in WRONG.items():
        given = {"model": None, name: value}
        with pytest.raises(cmdc.InvalidOptions) as caught:
            client.create_agent(**given)
        str(caught.value).encode()
        if kind in {"nan", "endless", "sly"} and name != "blueprint":
            assert any(one.startswith(name) for one in caught.value.problems), kind


@pytest.mark.parametrize("address", [5, b"/run/x", "a\x00b", "/tmp/\ud800", "/x" * 4000, object()])
def test_a_wrong_address_is_an_error_of_the_project(address):
    """Whatever is given for one."""
    with pytest.raises(CmdcError), cmdc.Client(address):
        pass


def test_waiting_takes_no_wild_time(client, session):
    """Streams and monitors too, for threads and for coroutines."""
    monitor = session.monitor()
    with session.subscribe() as stream:
        for value in (math.nan, math.inf, 1e300, -1, "5", True):
            for wait in (stream.get, monitor.wait):
                with pytest.raises(cmdc.UsageError, match="timeout: "):
                    wait(value)
    session.demonitor(monitor)

    async def in_loop():
        async with cmdc.AsyncClient(client._address) as other:
            stream = await other.subscribe(session.id)
            with pytest.raises(cmdc.UsageError, match="timeout: "):
                await stream.get(math.inf)
            with pytest.raises(cmdc.UsageError, match="timeout: "):
                await other.collect_reply(session.id, timeout=1e300)

    asyncio.run(in_loop())


def test_what_nests_too_deep_is_refused_at_once(client, session):
    """It used to be sent again and again: the daemon could not read the frame that asked."""
    begun_s = time.monotonic()
    for given in (nested(980), nested(200), {"x": nested(500)}):
        with pytest.raises(cmdc.UsageError, match="nests more than 64 levels"):
            session.user_respond("r-1", given)
        with pytest.raises(cmdc.InvalidOptions, match=r"user_data\['x'\].*nests more than 64"):
            client.create_agent(model="openai:x", user_data={"x": given})
        with pytest.raises(cmdc.UsageError, match=r"metadata: .*nests more than 64"):
            session.checkpoint(metadata={"x": given})
    assert time.monotonic() - begun_s < AT_ONCE_S


@pytest.mark.parametrize(
    ("call", "error", "problem"),
    [
        (lambda one: one.prompt("a\ud800"), cmdc.InvalidText, "a prompt .*half a surrogate pair"),
        (lambda one: one.steer("a\ud800"), cmdc.InvalidText, "a steering .*half a surrogate pair"),
        (lambda one: one.checkpoint(label="a\ud800"), cmdc.UsageError, "label: .*surrogate"),
        (lambda one: one.checkpoint(label="a\x1b"), cmdc.UsageError, r"label: .*U\+001B"),
        (lambda one: one.approve("a\x1b"), cmdc.UsageError, r"approval_id: .*U\+001B"),
        (lambda one: one.client.subscribe_group("a\x1b"), cmdc.UsageError, r"group_id: .*U\+001B"),
        (lambda one: one.subscribe(since=2**70), cmdc.UsageError, "since: "),
        (lambda one: one.stop(timeout=math.nan), cmdc.UsageError, "timeout: nan"),
        (lambda one: one.stop(reason="\ud800"), cmdc.UsageError, "reason: .*surrogate"),
    ],
)
def test_text_and_numbers_are_refused_by_name(session, call, error, problem):
    """Before anything is sent."""
    with pytest.raises(error, match=problem):
        call(session)


# --- values that arrive as they are -------------------------------------------------------------

GIVEN = {
    "tuple": (1, (2, "x")),
    "set": {1, 2},
    "frozen": frozenset({("a", 1)}),
    "at": datetime(2026, 11, 23, 1, 2, 3, 4),  # noqa: DTZ001 - without a zone on purpose
    "when": datetime(2026, 11, 23, tzinfo=UTC),
    "day": date(2026, 11, 23),
    "span": timedelta(days=-1, microseconds=5),
    "price": Decimal("1.50"),
    "raw": b"\x00\xff",
    "id": UUID(int=7),
    "list": [1.5, None, True, {"k": ("v",)}],
}


@cmdc.tool(effects="read")
def data_of(*, context: cmdc.Context) -> str:
    """Return what the application gave, in a process of its own."""
    return repr(sorted(context.user_data.items()))


@cmdc.tool(effects="read")
async def data_here(*, context: cmdc.Context) -> str:
    """Return what the application gave, in the agent."""
    return repr(sorted(context.user_data.items()))


class Reporter(cmdc.Plugin):
    """Publishes what plugins see of it."""

    def before_prompt(self, event, context):
        return cmdc.Emit(
            "seen", {"_no_user_data": True, "data": repr(sorted(context.user_data.items()))}
        )


def results_of(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def test_user_data_arrives_as_it_was_given(agent, scripted, client):
    """In tools of both kinds and in plugins; after a crash, in a fork and in a resumed session."""
    call = ToolCalls(ToolUse("data_of", {}), ToolUse("data_here", {}))
    right = repr(sorted(GIVEN.items()))
    model = scripted(call, "one", call, "two", call, "three", call, "four")
    tools = [data_of, data_here]
    session = agent(model, tools=tools, plugins=[Reporter], user_data=GIVEN)
    with session.subscribe(types=["plugin_event"]) as stream:
        session.run("What is there?", timeout=TURN_S)
        assert stream.get(TURN_S).event.payload["data"] == right
    assert results_of(session) == [right] * 2

    monitor = session.monitor()
    os.kill(session.agent_pid(), 9)
    monitor.wait(TURN_S)
    session.run("And now?", timeout=TURN_S)
    assert results_of(session) == [right] * 4
    with session.resume_session(new_id=f"{session.id}.f") as fork:
        fork.run("And here?", timeout=TURN_S)
        assert results_of(fork) == [right] * 6
    session.stop()
    with client.resume_session(session.id) as again:
        again.run("And again?", timeout=TURN_S)
        assert results_of(again) == [right] * 6


# --- surroundings of the caller -----------------------------------------------------------------

GONE = """
import os, sys, tempfile
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
here = tempfile.mkdtemp()
os.chdir(here)
os.rmdir(here)
with ScriptedModel([], default="fine") as model, cmdc.Client(sys.argv[1]) as client:
    try:
        client.create_agent(model=model)
    except cmdc.InvalidOptions as error:
        print(error)
    with client.create_agent(model=model, working_dir="/") as session:
        print(session.run("Hello.", timeout=30.0).text)
    try:
        cmdc.Client("run").list_sessions()
    except cmdc.InvalidOptions as error:
        print(error)
"""


def script(text, *arguments, **environ):
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=os.environ | environ,
        capture_output=True,
        timeout=SCRIPT_S,
        check=False,
    )


def test_a_working_directory_that_was_removed_is_reported(cmdc_daemon):
    """An absolute path is the way out; a relative address is none."""
    done = script(GONE, str(cmdc_daemon.address))

    assert done.returncode == 0, done.stderr
    first, answer, last = done.stdout.decode().splitlines()
    assert first.startswith("working_dir: '.' is nowhere, give an absolute path")
    assert answer == "fine"
    assert last.startswith("address: 'run' is nowhere")


OWN = """
import cmdc_runtime as cmdc
from cmdc_runtime.testing import ScriptedModel
with ScriptedModel([], default="fine") as model, cmdc.create_agent(model=model) as session:
    print(session.run("Hello.", timeout=60.0).text)
"""


def test_a_temporary_directory_that_is_no_text_is_passed_over(tmp_path):
    """The daemon of one's own is made elsewhere."""
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    place.mkdir()
    ours = dict.fromkeys(("CMDC_ADDRESS",), "")
    done = script(OWN, TMPDIR=str(place), CMDC_RUNTIME_DIR=str(tmp_path / "none"), **ours)

    assert done.returncode == 0, done.stderr
    assert done.stdout == b"fine\n"
