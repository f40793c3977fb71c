"""How clients end: closed, interrupted, forked, forgotten; nothing hangs and nothing is left."""

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client import default
from cmdc_runtime.client.limits import RESEND_S
from cmdc_runtime.commands import AwaitCycle, GetMessages
from cmdc_runtime.requests import GetFacts, GetTree

WAIT_S = 10.0
SLOW = re.compile(r"Executing <.*> took [\d.]+ seconds$")
"""What asyncio's debug mode says of a busy machine."""


@pytest.fixture
def client(peer):
    with cmdc.Client(peer.directory) as found:
        yield found


def test_closed_client_says_so(peer):
    """A call after ``close`` is an error, and closing twice is none."""
    client = cmdc.Client(peer.directory)
    client.__enter__()
    client.close()
    client.close()

    with pytest.raises(cmdc.UsageError, match="closed"):
        client.tree()


def test_close_ends_open_calls(peer, client):
    """A call that waits in another thread ends when the client is closed."""
    peer.answers[AwaitCycle] = None
    caught = []

    def wait():
        try:
            client.collect_reply("s1", timeout=None)
        except cmdc.UsageError as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    peer.wait_for(lambda: peer.of(AwaitCycle))
    client.close()
    waiter.join(WAIT_S)

    assert [str(error) for error in caught] == ["the client is closed"]


@pytest.mark.process
@pytest.mark.parametrize("kill", ["os.kill, (os.getpid()", "signal.pthread_kill, (other.ident"])
def test_interrupted_call_is_given_up(peer, client, kill):
    """After Ctrl-C in a call nothing of it is sent again, and the client goes on.

    The signal may find a thread that does not wait: the one that does is then not woken by it.
    """
    peer.answers[AwaitCycle] = None
    code = f"""
import os, signal, threading, cmdc_runtime as cmdc
client = cmdc.Client({str(peer.directory)!r})
client.__enter__()
other = threading.Thread(target=threading.Event().wait, daemon=True)
other.start()
threading.Timer(0.3, {kill}, signal.SIGINT)).start()
try:
    client.collect_reply("s1", timeout=None)
except KeyboardInterrupt:
    print(client.list_sessions(), len(client._engine._link._connection._mailbox))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout.strip(), done.stderr) == ("[] 0", "")


def test_module_functions_share_one_client(peer):
    """The functions of the module find their daemon by the environment, from any thread."""
    peer.add("s1")
    threads = [threading.Thread(target=lambda: cmdc.last_index("s1")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    try:
        assert cmdc.last_index("s1") == 0
        assert len(peer.of(GetFacts)) == 1
    finally:
        default.client.close()


@pytest.mark.process
def test_fork_gets_a_default_client_of_its_own(peer):
    """A forked child neither hangs on the parent's connection nor breaks it."""
    peer.add("s1")
    code = """
import gc, os, cmdc_runtime as cmdc
cmdc.last_index("s1")
explicit = cmdc.Client()
explicit.last_index("s1")
child = os.fork()
if not child:
    found = cmdc.last_index("s1")
    try:
        explicit.last_index("s1")
    except cmdc.UsageError as error:
        assert "fork" in str(error)
    del explicit
    gc.collect()
    raise SystemExit(7 + found)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cmdc.last_index("s1"))
explicit.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"CMDC_ADDRESS": str(peer.directory)},
    )

    assert (done.stdout.strip(), done.stderr) == ("7 0", "")


@pytest.mark.process
def test_exit_without_close_is_quiet(peer):
    """A program that closes nothing ends at once and without a word."""
    peer.add("s1")
    code = """
import asyncio, cmdc_runtime as cmdc
cmdc.subscribe("s1")
kept = cmdc.Client()
kept.monitor("s1", print)
async def main():
    await cmdc.aio.subscribe("s1")
    other = cmdc.AsyncClient()
    await other.tree()
asyncio.run(main())
loop = asyncio.new_event_loop()
loop.run_until_complete(cmdc.aio.last_index("s1"))
loop.close()
print("done")
"""
    peer.answers[GetTree] = cmdc.TreeNode(id="root", kind="supervisor")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    said = [line for line in done.stderr.splitlines() if not SLOW.match(line)]
    assert (done.stdout.strip(), said, done.returncode) == ("done", [], 0)


def test_coroutines_have_one_connection_for_each_loop(peer):
    """``aio`` works in one ``asyncio.run`` after the other, and each closes its own connection."""
    peer.add("s1")
    before = set(threading.enumerate())

    async def main():
        first, second = await asyncio.gather(aio.last_index("s1"), aio.last_index("s1"))
        return first, second

    assert [asyncio.run(main()), asyncio.run(main())] == [(0, 0), (0, 0)]
    gc.collect()
    assert len(peer.of(GetFacts)) == 2
    assert set(threading.enumerate()) <= before


def test_client_belongs_to_one_loop(peer):
    """A client for coroutines that is used in a second loop says so instead of hanging."""
    client = cmdc.AsyncClient(peer.directory)
    peer.answers[GetTree] = cmdc.TreeNode(id="root", kind="supervisor")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.tree())
    try:
        with pytest.raises(cmdc.UsageError, match="loop"):
            asyncio.run(client.tree())
    finally:
        loop.run_until_complete(client.close())
        loop.close()


def test_cancelled_call_leaves_nothing_open(peer):
    """A coroutine that is cancelled is not sent again."""
    peer.answers[GetMessages] = None

    async def main():
        async with cmdc.AsyncClient(peer.directory) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.messages("s1")
            peer.add("s1")
            await client.last_index("s1")

    asyncio.run(main())

    assert len(peer.ids_of(GetMessages)) == 1
    assert RESEND_S > 0.05
