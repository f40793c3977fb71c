"""The disk below a running daemon: full, failing, and with the journal gone from it."""

import contextlib
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import time

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.reasons import Normal
from cmdc_runtime.requests import FindSession, GetFacts
from cmdc_runtime.testing import Hold, Text
from cmdc_runtime.wire.codec import raw
from cmdc_runtime.wire.frames import Ask, ValueReply
from tests.fault.cases.storage_faults import FaultyDisk
from tests.fault.test_commands_once import Caller, durable
from tests.sent import sent

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
END_S = 30.0
DISK = "512m"
"""The last tests need room for the journal of the first ones twice."""
PAGE_BYTES = 4096
LEAF = 13
"""What a page of a table begins with that has no others below it."""
BLOCK = bytes(2**20)
LARGE_CHARS = 400_000
LARGE = "x" * LARGE_CHARS
LOOK_S = 2.0
"""For all that one call looks at; a session alone may take 3 s before it counts as unresponsive."""
SPEAKERS, ANSWER_CHARS = 5, 1_900_000
"""Together more than the reserve has; one may say 2,000,000 at most."""
FIND_NOBODY = Ask(id="find-1", body=raw(FindSession(session_id="nobody")))


@pytest.fixture(scope="module")
def shared_daemon(shared_daemon):
    """A daemon whose journal is on a small disk of its own."""
    state = shared_daemon.place / "state"
    state.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "none", str(state)],
        capture_output=True,
        text=True,
        check=False,
    )
    yield shared_daemon
    if mounted.returncode == 0:
        if shared_daemon.process is not None and shared_daemon.process.poll() is None:
            shared_daemon.process.send_signal(signal.SIGTERM)
            shared_daemon.process.wait(END_S)
        subprocess.run(["umount", str(state)], check=True)


@pytest.fixture
def disk(place, client):
    """Fill the disk, make room again, and wait until the daemon has noticed."""
    state = place.place / "state"
    if not os.path.ismount(state):
        pytest.skip("only root can mount a small disk")
    found = Disk(state)
    yield found
    found.empty()
    assert place.poll(lambda: facts(client).journal == "open")


class Disk:
    """A disk that somebody else fills."""

    def __init__(self, folder):
        self._ballast = folder / "ballast"

    def fill(self):
        """Leave no byte of it."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (2**20, 4096, 1):
                try:
                    while file.write(BLOCK[:size]) == size:
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 - the way out of the loop

    def empty(self):
        """Make room."""
        self._ballast.unlink(missing_ok=True)


def facts(client):
    """Return what the daemon says of itself."""

    async def ask(exchange):
        connection = await exchange._connector.connected()
        return await connection.ask(GetFacts())

    return client._engine.call(ask(client._engine.exchange))


def prompt_until_full(session):
    """Prompt until the daemon takes no more; return how many it took and what it said then."""
    for count in range(1_000):
        try:
            session.prompt(LARGE)
        except cmdc.CommandTimeout:
            continue  # it was taken, and what its agent says to it waits for room
        except cmdc.StorageFull as error:
            return count, str(error)
    raise AssertionError("the disk never was full")


@pytest.mark.fault_case("F34")
def test_full_disk_ends_nothing_and_heals(place, client, agent, disk, scripted):
    """What runs comes to its end, what would be new is refused, and room is enough to go on."""
    model = scripted((Hold(), "came through"), default="later")
    running, idle, watched = agent(model), agent(), agent()
    monitor = watched.monitor()
    running.prompt("Begin.")
    model.wait_held()
    disk.fill()
    count, said = prompt_until_full(idle)
    with pytest.raises(cmdc.StorageFull):
        client.create_agent(model=scripted(default="never"))
    model.release()
    reply = running.collect_reply(timeout=TURN_S)
    watched.stop()
    down = monitor.wait(TURN_S)
    is_readable = running.status().state, len(running.messages()), len(client.list_sessions())
    state = facts(client).journal
    disk.empty()
    healed = place.poll(lambda: facts(client).journal == "open")
    answer = running.run("Go on.", timeout=TURN_S).text

    assert "no room on the disk" in said
    assert "free some, no restart is needed" in said
    assert reply == "came through"
    assert down.reason == Normal()
    assert is_readable == ("idle", 3, 3)
    assert state.startswith("full: there is no room")
    assert (healed, answer) == (True, "later")
    assert count < 200


@pytest.mark.fault_case("F34")
@pytest.mark.parametrize("again", [False, True])
def test_a_command_that_was_taken_is_not_refused_for_want_of_room(
    place, client, agent, disk, again
):
    """Who sends it again while its agent stands still is answered when that goes on, and once."""
    session, other = agent(), agent()
    frame = durable(session.id, sent.prompt("Once."))
    pid = client.agent_pid(session.id)
    with contextlib.closing(Caller(place.address)) as caller:
        os.kill(pid, signal.SIGSTOP)
        try:
            caller.send(frame)
            caller.send(FIND_NOBODY)  # its answer has been through the journal, after the frame
            before = caller.answer()
            disk.fill()
            prompt_until_full(other)
            caller.send(msgspec.structs.replace(frame, again=again))
            caller.send(msgspec.structs.replace(FIND_NOBODY, id="find-2"))
            meanwhile = caller.answer()
        finally:
            os.kill(pid, signal.SIGCONT)
        answer = caller.answer()
    disk.empty()
    assert place.poll(lambda: session.status().state == "idle", TURN_S)
    heard = [one.content for one in session.messages() if one.role == "user"]

    assert (before.id, meanwhile.id, answer.id) == ("find-1", "find-2", frame.id)
    assert isinstance(answer, ValueReply)
    assert heard == ["Once."]


@pytest.mark.fault_case("F34")
def test_what_the_reserve_has_no_room_for_waits(place, agent, disk, scripted):
    """Answers larger than all that is kept back are held; their sessions live, and get them."""
    long = "y" * ANSWER_CHARS
    models = [scripted((Hold(), Text(long, chunk_chars=LARGE_CHARS))) for _ in range(SPEAKERS)]
    running, other = [agent(model) for model in models], agent()
    for session, model in zip(running, models, strict=True):
        session.prompt("Say much.")
        model.wait_held()
    before = len(place.log.read_text(errors="replace"))
    disk.fill()
    prompt_until_full(other)
    for model in models:
        model.release()
    assert place.poll(lambda: place.log.read_text()[before:].count("journal.full") > 1, TURN_S)
    states = [session.status().incarnation for session in running]
    disk.empty()
    replies = [session.collect_reply(timeout=TURN_S) for session in running]
    lived = [session.status().incarnation for session in running]

    assert (states, lived) == ([1] * SPEAKERS, [1] * SPEAKERS)
    assert [reply == long for reply in replies] == [True] * SPEAKERS


@pytest.mark.fault_case("F80")
def test_who_looks_while_the_disk_is_full_is_answered_at_once(place, client, agent, disk, scripted):
    """Also where the answer has what waits for room; that it does is said with it."""
    long = "y" * ANSWER_CHARS
    models = [scripted((Hold(), Text(long, chunk_chars=LARGE_CHARS))) for _ in range(SPEAKERS)]
    running, other = [agent(model) for model in models], agent()
    stream = running[0].subscribe(since=0)
    for session, model in zip(running, models, strict=True):
        session.prompt("Say much.")
        model.wait_held()
    before = len(place.log.read_text(errors="replace"))
    disk.fill()
    prompt_until_full(other)
    for model in models:
        model.release()
    assert place.poll(lambda: place.log.read_text()[before:].count("journal.full") > 1, TURN_S)
    assert place.poll(lambda: any(one.unsaved for one in client.list_sessions()), TURN_S)
    looks = {
        "status": lambda: [session.status().state for session in running],
        "messages": lambda: [len(session.messages()) for session in running],
        "list_sessions": client.list_sessions,
        "tree": client.tree,
        "last_index": running[0].last_index,
        "monitor": running[0].monitor,
        "subscribe": lambda: running[0].subscribe(since=0).get(LOOK_S),
    }
    took, found = {}, {}
    for name, look in looks.items():
        began = time.monotonic()
        found[name] = look()
        took[name] = time.monotonic() - began
    unsaved = [session.status().unsaved for session in running]
    disk.empty()
    replies = [session.collect_reply(timeout=TURN_S) for session in running]
    saved = [session.status().unsaved for session in running]
    stream.close()

    assert {name: took_s for name, took_s in took.items() if took_s > LOOK_S} == {}
    assert "unresponsive" not in found["status"]
    assert min(found["messages"]) >= 2
    assert any(unsaved)
    assert saved == [False] * SPEAKERS
    assert [reply == long for reply in replies] == [True] * SPEAKERS


@pytest.mark.fault_case("F34")
@pytest.mark.parametrize("reserve", ["left", "spent"])
def test_an_abort_needs_no_room(place, agent, disk, scripted, reserve):
    """It ends the cycle and is answered, with a reserve and without; what begins is refused."""
    long = "y" * ANSWER_CHARS
    speakers = [scripted((Hold(), Text(long, chunk_chars=LARGE_CHARS))) for _ in range(SPEAKERS)]
    costly = scripted((Text("so far"), Hold(), "and on"), default="later")
    running, other, session = [agent(model) for model in speakers], agent(), agent(costly)
    for one, model in zip((*running, session), (*speakers, costly), strict=True):
        one.prompt("Begin.")
        model.wait_held()
    before = len(place.log.read_text(errors="replace"))
    disk.fill()
    prompt_until_full(other)
    if reserve == "spent":
        for model in speakers:
            model.release()
        assert place.poll(lambda: place.log.read_text()[before:].count("journal.full") > 1, TURN_S)
    refused = [refuses(begin) for begin in beginnings(session)]
    began = time.monotonic()
    frame = durable(session.id, sent.abort(reason="it costs"))
    with contextlib.closing(Caller(place.address)) as caller:
        answers = []
        for again in (False, True):
            caller.send(msgspec.structs.replace(frame, ends=True, again=again))
            answers.append(caller.answer())
    took_s, state = time.monotonic() - began, session.status().state
    for one in running:
        one.abort()
    states = [one.status().state for one in running]
    disk.empty()
    assert place.poll(lambda: "journal.has_room" in place.log.read_text()[before:], TURN_S)
    answer = session.run("Go on.", timeout=TURN_S).text
    said = [one.content for one in session.messages()]

    assert [type(one) for one in answers] == [ValueReply, ValueReply]
    assert (state, states) == ("idle", ["idle"] * SPEAKERS)
    assert refused == [True] * len(refused)
    assert took_s < TURN_S / 2
    assert (said[-3:], answer) == (["so far", "Go on.", "later"], "later")


def beginnings(session):
    """Return what the page about a full disk says is refused."""
    return (
        lambda: session.prompt(LARGE),
        lambda: session.steer("There."),
        lambda: session.switch_model("openai/other"),
        lambda: session.attach_tool(idle_tool),
        session.checkpoint,
    )


@cmdc.tool(effects="read")
def idle_tool() -> str:
    """Do nothing."""
    return ""


def refuses(begin):
    """Say whether a call is refused for want of room."""
    try:
        begin()
    except cmdc.StorageFull:
        return True
    return False


@pytest.fixture
def faulty(own_daemon, tmp_path, monkeypatch):
    """A daemon of the test's own on a disk that fails when the test wants it to."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("a disk that fails needs a C compiler")
    found = FaultyDisk(compiler, tmp_path, own_daemon.place / "state")
    for name, text in found.variables.items():
        monkeypatch.setenv(name, text)
    return found


@pytest.mark.fault_case("F35")
@pytest.mark.parametrize("what", ["syncs", "writes"])
def test_failing_disk_ends_the_daemon_and_loses_nothing(own_daemon, faulty, scripted, what):
    """Nothing is acknowledged after the failure; the next daemon has all that was before."""
    own_daemon.start()
    taken, refusals = [], []
    with (
        own_daemon.client() as client,
        client.create_agent(model=scripted(default="fine")) as session,
    ):
        for number in range(20):
            session.prompt(f"before {number}")
            session.collect_reply(timeout=TURN_S)
        if what == "syncs":
            faulty.fail_syncs(errno.EIO)
        else:
            faulty.fail_writes(errno.EIO)
        for number in range(3_000):
            try:
                session.prompt(f"after {number}")
                taken.append(number)
                session.collect_reply(timeout=TURN_S)
            except (cmdc.TransientError, cmdc.SessionError) as error:
                refusals.append(error)
                break
            if own_daemon.process.poll() is not None:
                break
        status = own_daemon.process.wait(END_S)
        faulty.heal()
        own_daemon.start()
        heard = [one.content for one in session.messages() if one.role == "user"]
        answer = session.run("Still there?", timeout=TURN_S).text

    assert status == 1
    assert "the journal failed" in own_daemon.log.read_text()
    assert heard[:20] == [f"before {number}" for number in range(20)]
    assert [f"after {number}" for number in taken] == heard[20 : 20 + len(taken)]
    assert len(heard) <= 20 + len(taken) + 1  # what was not acknowledged may be there, once
    assert answer == "fine"


@pytest.mark.fault_case("F38")
def test_journal_deleted_under_a_running_daemon_is_back(place, client, agent, audit, scripted):
    """It goes on, and whoever comes after it finds everything."""
    audit.daemon_died = True
    session = agent(scripted(default="fine"))
    session.run("one", timeout=TURN_S)
    state = place.place / "state"
    for path in state.glob("journal.sqlite3*"):
        path.unlink()
    session.run("two", timeout=TURN_S)
    assert (state / "journal.sqlite3").exists()
    place.kill()
    place.start()
    heard = [one.content for one in session.messages() if one.role == "user"]

    assert heard == ["one", "two"]


@pytest.mark.fault_case("F37")
def test_sessions_that_a_ruined_page_hits_are_ended(own_daemon, scripted):
    """The others go on; those that are over say why, and what is left of them can be read."""
    own_daemon.start()
    state = own_daemon.place / "state"
    with own_daemon.client() as client:
        model = scripted(default="fine" * 300)
        sessions = [client.create_agent(model=model) for _ in range(6)]
        for session in sessions:
            session.run("Hello. " * 100, timeout=TURN_S)
        own_daemon.process.send_signal(signal.SIGTERM)
        own_daemon.process.wait(END_S)
        ruin(state / "journal.sqlite3", last_page_of(state / "journal.sqlite3", "commands"))
        own_daemon.start()
        ended, well = [], []
        for session in sessions:
            try:
                assert session.run("Still there?", timeout=TURN_S).text == "fine" * 300
                well.append(session)
            except cmdc.SessionNotAlive as error:
                ended.append(str(error))
        copies = list(state.glob("journal.sqlite3.damaged-*"))
        for session in well:
            session.stop()

    assert well
    assert ended
    assert all("the journal was damaged" in reason for reason in ended)
    assert len(copies) == 1


def last_page_of(path, table):
    """Return the number of the page with the newest rows of a table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
    data = path.read_bytes()[(root - 1) * PAGE_BYTES :]
    is_leaf = data[0] == LEAF
    return root if is_leaf else int.from_bytes(data[8:12], "big")


def ruin(path, page):
    """Overwrite a page as a disk does: the time of change stays."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(os.urandom(PAGE_BYTES))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
