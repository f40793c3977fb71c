"""A session that is idle for long gives its process up; nobody else can notice."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.exchange import Exchange
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.client.sync.session import Session
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.reasons import Normal, Signal
from cmdc_runtime.testing import Hold, Text

TURN_S = 20.0
REAPED_S = 1.0
"""For the zygote to reap what has ended: its end is reported when the kernel reports it."""
SOON_S = 0.2


@pytest.fixture
def asleep(agent, scripted, poll):
    """Make sessions that have answered once and are hibernated, with their models."""

    def create(*answers, **options):
        model = scripted("hello", *answers)
        session = agent(model, hibernate_after=SOON_S, **options)
        session.run("Hi.", timeout=TURN_S)
        assert poll(lambda: sleeps(session))
        return session, model

    return create


def sleeps(session):
    return session.agent_pid() is None and session.status().state == "hibernated"


def texts(session):
    return [(one.role, one.content) for one in session.messages() if one.role != "system"]


def test_idle_process_ends_and_the_next_prompt_brings_a_new_one(agent, scripted, poll):
    """The conversation goes on where it was, as another incarnation that is no restart."""
    model = scripted((Hold(), "hello"), (Hold(), "again"))
    session = agent(model, hibernate_after=SOON_S)
    monitor = session.monitor()
    stream = session.subscribe(since=0)
    first = process_at(session, model, "Hi.")
    assert poll(lambda: sleeps(session))
    assert psutil.wait_procs([first], REAPED_S)[1] == []

    second = process_at(session, model, "And now?")
    assert texts(session) == [
        ("user", "Hi."),
        ("assistant", "hello"),
        ("user", "And now?"),
        ("assistant", "again"),
    ]
    assert poll(lambda: sleeps(session))
    status = session.status()
    indexes = [envelope.index for envelope in drained(stream, status.last_index)]
    assert second != first
    assert (status.restarts, status.incarnation > 1) == (0, True)
    assert indexes == [*range(1, status.last_index + 1)]
    with pytest.raises(TimeoutError):
        monitor.wait(0)
    session.stop()
    assert monitor.wait(TURN_S).reason == Normal()


def process_at(session, model, text):
    """Return the process that answers a prompt, once it has."""
    session.prompt(text)
    model.wait_held()
    process = psutil.Process(session.agent_pid())
    model.release()
    session.collect_reply(timeout=TURN_S)
    return process


def drained(stream, last):
    """Return the envelopes up to index ``last``."""
    found = [stream.get(TURN_S)]
    while found[-1].index < last:
        found.append(stream.get(TURN_S))
    return found


def test_subscribers_are_notified(asleep, poll):
    """Two events frame the time without a process."""
    session, _ = asleep("again")
    stream = session.subscribe(since=0, types=["agent_hibernated", "agent_woken"])
    session.prompt("Wake up.")

    assert [stream.get(TURN_S).event.kind for _ in range(2)] == ["agent_hibernated", "agent_woken"]


def test_looking_wakes_nobody(asleep, client, cmdc_daemon):
    """Whoever asks how a session stands, or what was said, gets an answer and leaves no trace."""
    session, _ = asleep()
    incarnation, last = session.status().incarnation, session.last_index()
    (listed,) = (one for one in client.list_sessions() if one.session_id == session.id)
    said = texts(session)
    with session.subscribe(since=0) as stream:
        drained(stream, last)
    tree = client.tree()

    assert said == [("user", "Hi."), ("assistant", "hello")]
    assert (listed.state, listed.pid, listed.restarts) == ("hibernated", None, 0)
    assert session.id in str(tree)
    assert (session.status().state, session.status().incarnation) == ("hibernated", incarnation)
    assert (session.agent_pid(), session.last_index()) == (None, last)


def test_a_sleeping_session_has_its_real_counters(agent, scripted, poll, client):
    """They are those that it had when it fell asleep; only the process is gone."""
    session = agent(scripted("hello", "again"), hibernate_after=SOON_S, group_id="sleepers")
    session.run("Hi.", timeout=TURN_S)
    session.run("Once more.", timeout=TURN_S)
    awake = session.status()
    assert poll(lambda: sleeps(session))
    asleep = session.status()
    (listed,) = (one for one in client.list_sessions() if one.session_id == session.id)

    assert (awake.state, awake.turns, awake.total_tokens > 0) == ("idle", 2, True)
    assert asleep.last_index == session.last_index() > awake.last_index
    assert asleep.uptime_ms >= awake.uptime_ms > 0
    assert shown(asleep) == shown(listed) == shown(awake)


def shown(status):
    """Return what of a status stays as it is while a session sleeps."""
    gone = ("state", "pid", "timestamp_ms", "uptime_ms", "last_index")
    return {
        name: value for name, value in msgspec.structs.asdict(status).items() if name not in gone
    }


def test_who_collects_a_reply_wakes_nobody(asleep, client, cmdc_daemon):
    """It is the reply of the cycle before; how that ended is reported as ever."""
    session, _ = asleep()
    incarnation = session.status().incarnation
    with cmdc.Client(cmdc_daemon.address) as other:
        texts_of = [one.collect_reply(session, timeout=TURN_S) for one in (client, other)]

    assert texts_of == ["hello", "hello"]
    assert (session.agent_pid(), session.status().incarnation) == (None, incarnation)


def test_who_collects_a_reply_to_no_prompt_is_refused_and_wakes_nobody(
    agent, scripted, client, cmdc_daemon, poll
):
    """There is no cycle to wait for; whoever asks again behind a prompt has its reply."""
    session = agent(scripted("hello"), hibernate_after=SOON_S)
    assert poll(lambda: sleeps(session))
    with cmdc.Client(cmdc_daemon.address) as other:
        for one in (client, other):
            with pytest.raises(cmdc.UsageError, match="no prompt was given yet"):
                one.collect_reply(session, timeout=TURN_S)
        incarnation, is_asleep = session.status().incarnation, sleeps(session)
        session.prompt("Hi.")
        found = other.collect_reply(session, timeout=TURN_S)

    assert (incarnation, is_asleep, found) == (1, True, "hello")


@pytest.mark.parametrize("look", ["status", "messages", "last_index", "list"])
def test_looking_keeps_nobody_awake(agent, scripted, poll, client, look):
    """However often somebody asks: the time is counted from the last thing that happened."""
    session = agent(scripted("hello"), hibernate_after=SOON_S)
    session.run("Hi.", timeout=TURN_S)
    looks = {
        "status": session.status,
        "messages": session.messages,
        "last_index": session.last_index,
        "list": client.list_sessions,
    }

    def looked():
        looks[look]()
        return session.agent_pid() is None

    assert poll(looked, 10 * SOON_S)


def test_long_conversations_of_sleeping_sessions_are_read_whole(agent, scripted, poll):
    """Page by page, by several at once, and while it is woken."""
    text = "long " * 200_000
    few = TokenUsage(prompt_tokens=10, completion_tokens=10)  # so nothing is compacted
    answers = [Text(text, chunk_chars=len(text), usage=few)] * 12
    session = agent(scripted(*answers), hibernate_after=SOON_S)
    for number in range(10):
        session.run(f"{number}?", timeout=TURN_S)
    assert poll(lambda: sleeps(session))
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(texts, session) for _ in range(4)]
        found = [one.result(TURN_S) for one in reads]
    assert session.agent_pid() is None
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(texts, session)
        session.prompt("Wake up.")
        last = read.result(TURN_S)

    assert [len(one) for one in found] == [20] * 4
    assert {part for one in found for _, part in one[1::2]} == {text}
    assert last[:20] == found[0]


def test_hibernated_session_can_be_stopped(asleep):
    """Its end is reported as that of any other, with the caller's reason."""
    session, _ = asleep()
    monitor = session.monitor()
    session.stop()

    assert monitor.wait(TURN_S).reason == Normal()
    with pytest.raises(cmdc.SessionNotAlive):
        session.status()


def test_busy_session_stays(agent, scripted, poll):
    """An answer under way for longer than the time to hibernate is not idle."""
    model = scripted((Hold(), "done"))
    session = agent(model, hibernate_after=0.05)
    session.prompt("Go.")
    model.wait_held()
    pid = session.agent_pid()
    assert not poll(lambda: session.agent_pid() != pid, 10 * 0.05)
    model.release()

    assert session.collect_reply(timeout=TURN_S) == "done"


def test_session_with_a_child_stays(agent, client, scripted, poll):
    """A child belongs to the process that it was started for."""
    model = scripted(default="fine")
    parent = agent(model, hibernate_after=SOON_S)
    request = start_request(None, {"model": model})
    request = msgspec.structs.replace(request, parent_id=parent.id)
    child = Session(client._run(Exchange.start, request), client)
    assert not poll(lambda: sleeps(parent), 3 * SOON_S)
    child.stop()

    assert poll(lambda: sleeps(parent))


def test_commands_at_the_edge_of_sleep_are_all_answered(agent, scripted, poll):
    """Whatever comes while the process goes is taken by the next one, once and in order."""
    rounds = 12
    session = agent(scripted(*map(str, range(rounds))), hibernate_after=0.01)
    monitor = session.monitor()
    answers = []
    for number in range(rounds):
        answers.append(session.run(f"{number}?", timeout=TURN_S).text)
        if number % 3 == 0:
            poll(lambda: sleeps(session))

    assert answers == [*map(str, range(rounds))]
    assert len(texts(session)) == 2 * rounds
    with pytest.raises(TimeoutError):
        monitor.wait(0)


def test_crash_after_waking_is_a_crash(asleep):
    """Having slept changes nothing about restarts."""
    session, model = asleep((Hold(), "never"), "later")
    session.prompt("Once more.")
    model.wait_held()
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)

    assert session.collect_reply(timeout=TURN_S) == "later"
    assert monitor.wait(TURN_S).reason == Signal(number=9, name="SIGKILL")
    assert session.status().restarts == 1
