"""The clients against a peer that speaks the daemon's frames."""

import fcntl
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.client import connection, exchange
from cmdc_runtime.client.limits import LIST_ANSWER_S, READS_MAX
from cmdc_runtime.client.open_requests import OpenRequests
from cmdc_runtime.commands import (
    Abort,
    AwaitCycle,
    CycleResult,
    GetMessages,
    GetStatus,
    NextPage,
    Prompt,
    Status,
)
from cmdc_runtime.pages import Page
from cmdc_runtime.reasons import Normal, Signal
from cmdc_runtime.requests import FindSession, GetTree, StartSession, StopSession
from cmdc_runtime.runtime_dir import TOKEN_CHARS, TOKEN_FILE
from cmdc_runtime.wire.frames import MAGIC, WIRE_VERSION, PagedReply
from tests.integration.client.conftest import Peer

WAIT_S = 10.0
OLD, NEW = "a" * TOKEN_CHARS, "b" * TOKEN_CHARS


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


@pytest.mark.slow
def test_lost_request_is_sent_again_under_the_same_id(peer, client):
    """An open request is repeated until it is answered, and its id says that it is one."""
    said = []

    def answer(_request, frame):
        said.append(frame.again)
        return () if len(said) > 1 else None

    peer.answers[GetMessages] = answer

    assert client.messages("s1") == []
    assert len(set(peer.ids_of(GetMessages))) == 1
    assert said == [False, True]


@pytest.mark.slow
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


@pytest.mark.slow
def test_daemon_that_is_about_to_end_is_no_answer(peer, client):
    """What a daemon can't do any more is asked of the next one, under the same id."""

    def answer(request, frame):
        if peer.instance == "one":
            return cmdc.DaemonUnavailable("the daemon is stopping; the next one goes on with it")
        return receipt_of(request, frame)

    peer.answers[Prompt] = answer
    found = []
    prompting = threading.Thread(target=lambda: found.append(client.prompt("s1", "hi")))
    prompting.start()
    peer.wait_for(lambda: peer.of(Prompt))
    peer.restart("two")
    prompting.join(WAIT_S)

    assert [one.command_id for one in found] == peer.ids_of(Prompt)[:1]
    assert len(set(peer.ids_of(Prompt))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("call", ["status", "list_sessions"])
def test_session_is_not_unresponsive_because_its_daemon_was_away(
    peer, client, call, is_gone, monkeypatch
):
    """It is asked again where another daemon has taken over meanwhile."""
    for name in ("STATUS_ANSWER_S", "LIST_ANSWER_S"):
        monkeypatch.setattr(exchange, name, 0.3)
    peer.add("s1")
    peer.answers[GetStatus] = lambda _request, _frame: (
        None if peer.instance == "one" else Status(state="idle", session_id="s1", incarnation=1)
    )
    found = []
    asks = {
        "status": lambda: client.status("s1"),
        "list_sessions": lambda: client.list_sessions()[0],
    }
    asking = threading.Thread(target=lambda: found.append(asks[call]()))
    asking.start()
    peer.wait_for(lambda: peer.of(GetStatus))
    peer.answers[FindSession] = None  # it ends, and says only who it is
    if is_gone:
        fcntl.flock(peer._lock_file, fcntl.LOCK_UN)
    known = len(peer.of(FindSession))
    peer.wait_for(lambda: len(peer.of(FindSession)) > known)
    fcntl.flock(peer._lock_file, fcntl.LOCK_EX)
    del peer.answers[FindSession]
    peer.restart("two")
    asking.join(WAIT_S)

    assert [one.state for one in found] == ["idle"]


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


@pytest.mark.parametrize("call", ["run", "collect_reply"])
def test_a_wait_that_is_over_names_the_time_that_it_was_given(peer, client, call):
    """Not what was left of it for the part of the call that it ended in."""
    peer.answers[Prompt] = receipt_of
    peer.answers[AwaitCycle] = None
    given = ("s1", "2 + 2?") if call == "run" else ("s1",)

    with pytest.raises(cmdc.CollectTimeout, match=r"did not end within 0\.5 s; it goes on"):
        getattr(client, call)(*given, timeout=0.5)


def test_run_returns_the_whole_reply(peer, client):
    """``run`` waits for its own prompt and returns text, messages and usage."""
    peer.answers[Prompt] = receipt_of
    usage = cmdc.TokenUsage(total_tokens=3)
    peer.answers[AwaitCycle] = cycle("finished", text="4", usage=usage)

    assert client.run("s1", "2 + 2?") == cmdc.Reply(text="4", messages=(), usage=usage, output="4")
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


def test_silent_sessions_hold_a_list_up_once(peer, client):
    """However many there are, and the others are asked meanwhile; nonsense hides nobody either."""
    for number in range(300):
        peer.add(f"s{number}")
    peer.add("mad")

    def answer(_request, frame):
        if frame.session_id == "mad":
            return {"state": 7}
        if frame.session_id in {"s0", "s298"}:
            return cmdc.Status(state="idle", session_id=frame.session_id, incarnation=1)
        return None

    peer.answers[GetStatus] = answer
    started_s = time.monotonic()
    found = {one.session_id: one.state for one in client.list_sessions()}

    # One after another they would take 300 times as long.
    assert time.monotonic() - started_s < 4 * LIST_ANSWER_S
    assert (found["s0"], found["s298"], found["mad"]) == ("idle", "idle", "unresponsive")
    assert Counter(found.values()) == {"idle": 2, "unresponsive": 299}


def test_an_answer_of_pages_is_asked_for_anew_where_it_is_gone(peer, client):
    """Three times at most; each time it is another question."""
    peer.add("s1")
    peer.answers[GetMessages] = lambda _request, frame: PagedReply(
        id=frame.id, body=b"\x91", page_id="p"
    )
    peer.answers[NextPage] = lambda _request, _frame: Page(is_gone=True)
    with pytest.raises(cmdc.TransientError, match="GetMessages"):
        client.messages("s1")

    assert len(set(peer.ids_of(GetMessages))) == READS_MAX
    assert {one.offset for one in peer.of(NextPage)} == {1}


def test_ended_session_has_no_pid(peer, client):
    """What was and ended is kept apart from what never was, and from what is between two lives."""
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
        pytest.raises(cmdc.ProtocolError, match=rf"version 9 .* version {WIRE_VERSION}"),
        cmdc.Client(peer.directory),
    ):
        pass


def test_missing_daemon_is_reported(no_peer):
    """Where no daemon is, the first call says the place and the way out."""
    with (
        pytest.raises(cmdc.DaemonUnavailable, match=r"no daemon runs at .*cmdc serve"),
        cmdc.Client(no_peer),
    ):
        pass


def give_up_in_time(client):
    """Prompt with little patience."""
    client.run("s1", "hi", timeout=1.0)


def test_command_that_was_sent_is_not_reported_as_never_given(peer, client):
    """The daemon ends after it got it, and none comes: the next one may have it done."""
    peer.answers[Prompt] = None
    with ThreadPoolExecutor(1) as threads:
        prompting = threads.submit(give_up_in_time, client)
        peer.wait_for(lambda: peer.of(Prompt))
        peer.close()
        with pytest.raises(cmdc.CommandTimeout, match="no other one has come; the command"):
            prompting.result(WAIT_S)


def test_question_that_was_sent_has_no_effect(peer, client):
    """Where no daemon is left to answer it, that is all there is to say."""
    peer.answers[AwaitCycle] = None
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(client.collect_reply, "s1", timeout=1.0)
        peer.wait_for(lambda: peer.of(AwaitCycle))
        peer.close()
        with pytest.raises(cmdc.DaemonUnavailable, match="no daemon runs at"):
            asking.result(WAIT_S)


@pytest.mark.parametrize(
    ("is_there", "reported"), [(False, "no daemon runs at"), (True, "nothing was asked of it")]
)
def test_command_that_was_not_sent_is_never_given(peer, client, is_there, reported):
    """Its call has failed, so no daemon that comes later hears of it."""
    peer.add("s1")
    dealer = client._engine._link._connection._dealer

    async def is_cut():
        return not dealer._control._socket.getsockopt(zmq.EVENTS) & zmq.POLLOUT

    (peer.mute if is_there else peer.close)()
    deadline = time.monotonic() + WAIT_S
    while not client._engine.call(is_cut()):
        assert time.monotonic() < deadline
    with pytest.raises(cmdc.DaemonUnavailable, match=reported):
        give_up_in_time(client)
    if is_there:
        peer.restart("two")
    following = peer if is_there else Peer(peer.directory)
    try:
        following.add("s1")
        assert client.last_index("s1") == 0
        assert following.of(Prompt) == []
    finally:
        following.close()


def test_tcp_without_keys_is_refused():
    """An address that would be open to everybody is not connected to."""
    with pytest.raises(cmdc.InvalidOptions, match="CURVE"), cmdc.Client("tcp://127.0.0.1:5"):
        pass


def test_too_large_a_request_is_refused(peer, client):
    """A message beyond the bound of the sockets is refused where it is made."""
    with pytest.raises(cmdc.UsageError, match="bytes"):
        client.abort("s1", reason="x" * 17_000_000)

    assert peer.of(Abort) == []


def test_too_long_a_prompt_is_refused(peer, client):
    """A prompt has a bound of its own, and the error says what to do instead."""
    with pytest.raises(cmdc.InvalidText, match="let a tool read it"):
        client.prompt("s1", "x" * 1_000_001)

    assert peer.of(Prompt) == []


# --- the token of the next daemon --------------------------------------------------------------


def refusing(peer, refusals):
    """Return a daemon's answers: silent to the first copy, then so many refusals, then a tree.

    With the first refusal there is another token, as the next daemon has one.
    """
    shown, denied = [], cmdc.AccessDenied("the client has not shown this daemon's token")

    def answer(_request, frame):
        shown.append(frame.token)
        if len(shown) == 1:
            return None
        if len(shown) == 2:
            (peer.directory / TOKEN_FILE).write_text(NEW)
        return denied if len(shown) < 2 + refusals else cmdc.TreeNode(id="root", kind="supervisor")

    return answer, shown


@pytest.fixture
def hurried(peer, monkeypatch):
    """A client that sends again soon, and has read the token of an earlier daemon."""
    (peer.directory / TOKEN_FILE).write_text(OLD)
    monkeypatch.setattr(connection, "OpenRequests", partial(OpenRequests, resend_every_s=0.1))
    with cmdc.Client(peer.directory) as found:
        yield found


def test_call_whose_copies_were_all_refused_for_an_old_token_is_answered(peer, hurried):
    """Two copies showed it: the second refusal says nothing of the one that shows the new token."""
    peer.answers[GetTree], shown = refusing(peer, 2)

    assert hurried.tree().id == "root"
    assert (shown[:2], shown[-1]) == ([OLD, OLD], NEW)


def test_call_that_is_refused_with_the_right_token_is_refused(peer, hurried):
    """As soon as there are more refusals than copies that showed the old one."""
    peer.answers[GetTree], shown = refusing(peer, 100)

    with pytest.raises(cmdc.AccessDenied):
        hurried.tree()
    assert (shown[:2], shown[-1]) == ([OLD, OLD], NEW)
