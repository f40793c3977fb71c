"""What waits of a client do in a process that was forked from the one that made it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT_S = 120.0
REFUSED = "UsageError: this client was made before the fork: make one in each process"
PREAMBLE = """
import asyncio, json, os, signal, cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel

def in_child(call):
    read, write = os.pipe()
    if not (child := os.fork()):
        signal.alarm(10)
        try:
            said = f"returned {call()!r}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said or "waited"
"""
THREADS = (
    PREAMBLE
    + """
found = {}
with ScriptedModel([(Hold(), "fine")], default="again") as model, cmdc.Client() as client:
    session = client.create_agent(model=model, group_id="forked")
    pieces, shared = session.stream("Go."), cmdc.subscribe(session.id)
    model.wait_held()
    one, monitor = session.subscribe(), session.monitor()
    read, of_all = session.subscribe(since=0), client.subscribe_all()
    of_group = client.subscribe_group("forked", since=0)
    first = read.get(10)
    events = session.stream_events("More.")
    waits = {
        "next": lambda: next(one),
        "get": one.get,
        "get in time": lambda: one.get(timeout=5),
        "get of what waits": lambda: read.get(timeout=5),
        "for": lambda: [each for each in one],
        "all": lambda: next(of_all),
        "group": lambda: next(of_group),
        "group in time": lambda: of_group.get(timeout=5),
        "the shared client's": lambda: next(shared),
        "pieces": lambda: list(pieces),
        "next piece": lambda: next(pieces),
        "events": lambda: list(events),
        "monitor": monitor.wait,
        "monitor in time": lambda: monitor.wait(timeout=5),
        "reply": session.collect_reply,
        "reply in time": lambda: session.collect_reply(timeout=5),
        "run": lambda: session.run("Never.", timeout=5),
        "removal": lambda: session.demonitor(monitor),
    }
    found = {name: in_child(wait) for name, wait in waits.items()}
    closed = in_child(lambda: [each.close() for each in (one, pieces, events, of_all, client)])
    model.release()
    text, kinds = "".join(pieces), [type(each).__name__ for each in events]
    ends = [type(each.get(20).event).__name__ for each in (one, read, of_all, of_group, shared)]
    session.stop()
    down = monitor.wait(20)
    print(json.dumps([found, closed, text, kinds[-1], len(ends), type(down).__name__]))
"""
)
COROUTINES = (
    PREAMBLE
    + """
async def main():
    with ScriptedModel([(Hold(), "fine")]) as model:
        async with cmdc.AsyncClient() as client:
            session = await client.create_agent(model=model, group_id="forked")
            pieces = session.stream("Go.")
            begun = asyncio.ensure_future(anext(pieces))
            await asyncio.to_thread(model.wait_held)
            one, monitor = await session.subscribe(), await session.monitor()
            of_group = await client.subscribe_group("forked")
            waits = {
                "next": lambda: anext(one),
                "get": lambda: one.get(),
                "get in time": lambda: one.get(timeout=5),
                "group": lambda: anext(of_group),
                "pieces": lambda: anext(pieces),
                "monitor": lambda: monitor.wait(),
                "monitor in time": lambda: monitor.wait(timeout=5),
                "reply": lambda: session.collect_reply(),
                "run": lambda: session.run("Never.", timeout=5),
            }
            async def made(wait):
                return await wait()
            found = {
                name: in_child(lambda: asyncio.run(made(wait))) for name, wait in waits.items()
            }
            async def close_all():
                for each in (one, pieces, of_group, client):
                    await each.close()
            closed = in_child(lambda: asyncio.run(close_all()))
            model.release()
            text = await begun + "".join([each async for each in pieces])
            heard = type(await one.get(20)).__name__
            await session.stop()
            down = type(await monitor.wait(20)).__name__
            print(json.dumps([found, closed, text, heard, down]))
asyncio.run(main())
"""
)


WHERE = (
    PREAMBLE
    + """
import subprocess, sys

with ScriptedModel([], default="fine") as model, cmdc.create_agent(model=model) as session:
    before = in_child(lambda: session.run("Go.", timeout=20).text)
    served = subprocess.Popen([sys.executable, "-P", "-m", "supervisor"], stderr=subprocess.DEVNULL)
    try:
        place = os.environ["CMDC_RUNTIME_DIR"]
        while not os.path.exists(os.path.join(place, "control.sock")):
            assert served.poll() is None
        found = [in_child(lambda: session.run("Go.", timeout=20).text)]
        found.append(in_child(lambda: [one.session_id for one in cmdc.list_sessions()]))
    finally:
        served.terminate()
        served.wait(20)
    print(json.dumps([before, *found, session.id]))
"""
)


def printed(code, daemon):
    """Run a program and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"CMDC_ADDRESS": str(daemon.address)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_wait_of_a_thread_goes_on_in_a_fork(cmdc_daemon):
    """Each kind is refused at once, in the words of every call; the parent reads on."""
    found, closed, text, last, heard, down = printed(THREADS, cmdc_daemon)

    assert {name: said for name, said in found.items() if said != REFUSED} == {}
    assert closed == "returned [None, None, None, None, None]"
    assert (text, last, heard, down) == ("fine", "AgentEnd", 5, "Down")


def test_no_wait_of_a_coroutine_goes_on_in_a_fork(cmdc_daemon):
    """The same, in a loop of the child's own."""
    found, closed, text, heard, down = printed(COROUTINES, cmdc_daemon)

    assert {name: said for name, said in found.items() if said != REFUSED} == {}
    assert closed == "returned None"
    assert (text, heard, down) == ("fine", "Envelope", "Down")


def test_a_fork_goes_where_the_sessions_of_its_parent_are(tmp_path):
    """In its parent's private daemon, also when another one is served in the default place."""
    kept = {name: one for name, one in os.environ.items() if not name.startswith("CMDC_")}
    places = {"CMDC_RUNTIME_DIR": str(tmp_path / "run"), "CMDC_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", WHERE],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
        cwd=Path(__file__).parents[2],
        env=kept | places,
    )
    assert done.returncode == 0, done.stderr
    before, during, listed, session_id = json.loads(done.stdout)

    assert (before, during) == ("returned 'fine'", "returned 'fine'")
    assert listed == f"returned {[session_id]!r}"
