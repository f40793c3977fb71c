"""The clients against a peer that speaks the daemon's frames."""

import asyncio
import gc
import os
import subprocess
import sys
import threading

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client import default
from cmdc_runtime.client.limits import RESEND_S
from cmdc_runtime.commands import AwaitCycle, CycleResult, GetMessages, GetStatus, Prompt
from cmdc_runtime.frames import MAGIC
from cmdc_runtime.reasons import Normal, Signal
from cmdc_runtime.requests import GetFacts, GetTree, StartSession, StopSession

WAIT_S = 10.0


def receipt_of(request, frame):
    return cmdc.PromptReceipt(queued=False, command_id=frame.id)


def cycle(outcome, **fields):
    return CycleResult(outcome=outcome, **fields)


@pytest.fixture
def client(peer):
    with cmdc.Client(peer.directory) as found:
        yield found


def test_answer_comes_back(peer, client):
    """A call returns what the daemon answers, as its own type."""
    root = cmdc.TreeNode(
        id="root", kind="supervisor", children=(cmdc.TreeNode(id="n", kind="worker"),)
    )
    peer.answers[GetTree] = root

    assert client.tree() == root


def test_error_comes_back_as_its_own_class(peer, client):
    """What the daemon refuses is raised as the class it was there, with its attributes."""
    peer.answers[Prompt] = cmdc.SessionNotAlive(Normal())

    with pytest.raises(cmdc.SessionNotAlive) as caught:
        client.prompt("s1", "hi")
    assert caught.value.reason == Normal()


def test_lost_request_is_sent_again_under_the_same_id(peer, client):
    """An open request is repeated until it is answered, and its id tells that it is one."""
    peer.answers[GetMessages] = lambda _request, _frame: (
        () if len(peer.ids_of(GetMessages)) > 1 else None
    )

    assert client.messages("s1") == []
    assert len(set(peer.ids_of(GetMessages))) == 1


def test_open_request_is_sent_to_the_next_daemon_at_once(peer, client):
    """When another daemon answers, what is open does not wait for its next turn."""
    peer.answers[AwaitCycle] = None
    peer.add("s1")
    waiter = threading.Thread(target=lambda: client.collect_reply("s1"))
    waiter.start()
    peer.wait_for(lambda: peer.of(AwaitCycle))
    peer.answers[AwaitCycle] = lambda _request, _frame: cycle("finished", text="done")
    peer.restart("two")
    waiter.join(WAIT_S)

    assert not waiter.is_alive()
    assert len(set(peer.ids_of(AwaitCycle))) == 1


def test_collect_reply_waits_for_the_own_prompt(peer, client):
    """The cycle that is waited for is that of the latest prompt of this client."""
    peer.answers[Prompt] = receipt_of
    peer.answers[AwaitCycle] = cycle("finished", text="4")
    receipt = client.prompt("s1", "2 + 2?")

    assert client.collect_reply("s1") == "4"
    assert peer.of(AwaitCycle)[-1].prompt_id == receipt.command_id


@pytest.mark.parametrize(
    ("result", "kind", "reason"),
    [
        (cycle("aborted", reason="limit"), cmdc.AgentAborted, "limit"),
        (cycle("dropped"), cmdc.AgentAborted, "dropped"),
        (cycle("failed", reason="no key"), cmdc.AgentFailed, "no key"),
    ],
    ids=["aborted", "dropped", "failed"],
)
def test_cycle_without_a_reply_is_an_error(peer, client, result, kind, reason):
    """Each way in which a cycle ends without an answer has its error."""
    peer.answers[AwaitCycle] = result

    with pytest.raises(kind) as caught:
        client.collect_reply("s1")
    assert caught.value.reason == reason


def test_collect_reply_takes_its_time_only(peer, client):
    """A cycle that takes longer is CollectTimeout, which is a TimeoutError."""
    peer.answers[AwaitCycle] = None

    with pytest.raises(TimeoutError) as caught:
        client.collect_reply("s1", timeout=0.05)
    assert type(caught.value) is cmdc.CollectTimeout


def test_run_returns_the_whole_reply(peer, client):
    """``run`` waits for its own prompt and returns text, messages and usage."""
    peer.answers[Prompt] = receipt_of
    usage = cmdc.TokenUsage(total_tokens=3)
    peer.answers[AwaitCycle] = cycle("finished", text="4", usage=usage)

    assert client.run("s1", "2 + 2?") == cmdc.Reply(text="4", messages=(), usage=usage)
    assert [one.prompt_id for one in peer.of(AwaitCycle)] == peer.ids_of(Prompt)


@pytest.mark.parametrize("text", ["", " \n", None, 5])
def test_prompt_is_text(peer, client, text):
    """An empty prompt is refused before anything is sent."""
    with pytest.raises(cmdc.InvalidText):
        client.prompt("s1", text)

    assert peer.of(Prompt) == []


def test_wrong_options_are_all_named(client):
    """Nothing is sent while an option is wrong, and every wrong one is named."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        client.create_agent(max_turn=3, restart="always")

    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "max_turn",
        "model",
        "restart",
    ]


def test_user_data_must_be_plain(client):
    """What cannot travel in an option is an error that names the option."""
    with pytest.raises(cmdc.InvalidOptions, match="user_data"):
        client.create_agent(model="a:b", user_data={"lock": threading.Lock()})


def test_session_is_a_context(peer, client):
    """A session stops at the end of its block, and an ended one is no error there."""

    def started(request, _frame):
        peer.add(request.session_id)
        return peer.sessions[request.session_id]

    peer.answers[StartSession] = started
    peer.answers[StopSession] = cmdc.SessionNotAlive(Normal())
    with client.create_agent(model="a:b", session_id="mine") as session:
        assert session.id == "mine"

    assert [one.session_id for one in peer.of(StopSession)] == ["mine"]


def test_silent_session_is_listed(peer, client):
    """Every session is in the list, also one that is not up."""
    peer.add("up", pid=7)
    peer.add("again", phase="restarting", pid=None, restarts=2)
    peer.answers[GetStatus] = lambda _request, frame: cmdc.Status(
        state="idle", session_id=frame.session_id, incarnation=1, pid=7
    )
    found = {one.session_id: one for one in client.list_sessions()}

    assert (found["up"].state, found["again"].state) == ("idle", "restarting")
    assert found["again"].restarts == 2


def test_ended_session_has_no_pid(peer, client):
    """What was and ended is told apart from what never was, and from what is between two lives."""
    peer.add("s1", pid=None)
    peer.add("over", phase="ended", reason=Signal(number=9, name="SIGKILL"))

    assert client.agent_pid("s1") is None
    with pytest.raises(cmdc.SessionNotAlive, match="SIGKILL"):
        client.agent_pid("over")
    with pytest.raises(cmdc.InvalidSession):
        client.agent_pid("never")
    with pytest.raises(cmdc.InvalidSession):
        client.agent_pid("no id at all")


def test_daemon_of_another_version_is_named(peer):
    """A daemon that speaks another wire version is an error that says both versions."""
    peer.header = MAGIC + bytes([9])

    with (
        pytest.raises(cmdc.ProtocolError, match=r"version 9 .* version 1"),
        cmdc.Client(peer.directory),
    ):
        pass


def test_missing_daemon_is_told(no_peer):
    """Where no daemon is, the first call says the place and the way out."""
    with (
        pytest.raises(cmdc.DaemonUnavailable, match=r"no daemon runs at .*cmdc serve"),
        cmdc.Client(no_peer),
    ):
        pass


def test_tcp_without_keys_is_refused():
    """An address that would be open to everybody is not connected to."""
    with pytest.raises(cmdc.InvalidOptions, match="CURVE"), cmdc.Client("tcp://127.0.0.1:5"):
        pass


def test_too_large_a_request_is_refused(peer, client):
    """A message beyond the bound of the sockets is refused where it is made."""
    with pytest.raises(cmdc.UsageError, match="bytes"):
        client.prompt("s1", "x" * 17_000_000)

    assert peer.of(Prompt) == []


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


def test_interrupted_call_is_given_up(peer, client):
    """After Ctrl-C in a call nothing of it is sent again, and the client goes on."""
    peer.answers[AwaitCycle] = None
    code = f"""
import os, signal, threading, cmdc_runtime as cmdc
client = cmdc.Client({str(peer.directory)!r})
client.__enter__()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
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

    assert (done.stdout.strip(), done.stderr, done.returncode) == ("done", "", 0)


def test_coroutines_have_one_connection_for_each_loop(peer):
    """``aio`` works in one ``asyncio.run`` after the other, and each closes its own connection."""
    peer.add("s1")
    before = threading.active_count()

    async def main():
        first, second = await asyncio.gather(aio.last_index("s1"), aio.last_index("s1"))
        return first, second

    assert [asyncio.run(main()), asyncio.run(main())] == [(0, 0), (0, 0)]
    gc.collect()
    assert len(peer.of(GetFacts)) == 2
    assert threading.active_count() == before


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
