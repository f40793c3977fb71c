"""What of its own journal a session dies of is set aside, named, and the session goes on."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.events import RecordSetAside
from cmdc_runtime.heartbeats import RESUME_STEP, SNAPSHOT_STEP
from cmdc_runtime.testing import Hold
from supervisor.adapters.journal.operations import AppendRecords
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from supervisor.core.exits import DEATHS_MAX
from tests.fault.cases.conftest import WARM_S, is_warm
from tests.fault.cases.journals import with_journal
from workers.core.snapshot import encode as encode_state
from workers.core.state import Memory, ToolFacts

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 60.0
DEEP = [970, 80]
"""Levels of arguments as an older program took them: one kills, one is only above what is taken."""
WRITTEN = "set_aside"
"""The kind of the record that names what is left out."""
OFTEN = 5
"""Deaths that a step would be good for."""
SAID = 2
"""The step of the first answer: the cycle's beginning is the first record."""


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Where the plans of sessions are."""
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def place(shared_daemon, plans):
    """A daemon whose agents die where a plan says so."""
    plain = shared_daemon.environment
    shared_daemon.environment = lambda: plain() | {"CMDC_FAULTS": str(plans)}
    shared_daemon.start()
    return shared_daemon


@pytest.fixture
def deadly(plans):
    """Have a step of rebuilding a session kill whoever takes it, behind the ``first`` deaths."""

    def plan(session_id, step, first=(), last=()):
        own = [f"agent.rebuild.{step}:1=agent"] * (DEATHS_MAX if last else OFTEN)
        lines = [*first, *own, *last]
        (plans / f"{session_id}.plan").write_text("".join(f"{line}\n" for line in lines))

    return plan


def kill(session):
    """Kill its agent."""
    os.kill(session.status().pid, signal.SIGKILL)


def replayed(session, address):
    """Have the session decided again by ``cmdc replay``; return how that ended."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return subprocess.run(
        [Path(sys.executable).with_name("cmdc"), "replay", session.id],
        env=ours | {"CMDC_ADDRESS": str(address)},
        capture_output=True,
        text=True,
        timeout=TURN_S,
        check=False,
    )


def set_aside(client, session):
    """Return what was reported as set aside since the session's beginning."""
    with client.subscribe(session, since=0, types=["record_set_aside"]) as stream:
        found = stream.get(TURN_S).event
        while not isinstance(found, RecordSetAside):  # a daemon that was killed loses events
            found = stream.get(TURN_S).event
        return found


def written(place, session):
    """Return how many records of the session's journal set something aside."""
    with contextlib.closing(ClientEngine(place.address)) as engine:
        past = engine.call(engine.exchange.past(session.id))
    return sum(record.kind == WRITTEN for record in past.records)


@pytest.fixture
def damaged(place, poll, audit, client):
    """Change single rows of the journal while there is no daemon, as nothing but a damage would."""
    audit.daemon_died = audit.bystander_died = True

    def change(statements):
        place.kill()
        assert poll(lambda: not place.left())
        with contextlib.closing(sqlite3.connect(place.place / "state" / JOURNAL_FILE)) as file:
            changed = [file.execute(*statement).rowcount for statement in statements]
            file.commit()
        place.start()
        assert poll(lambda: is_warm(client), WARM_S)  # what takes long from here on hangs
        assert changed == [1] * len(changed)

    return change


@pytest.mark.fault_case("F91")
def test_record_that_kills_its_readers_is_set_aside(agent, client, scripted, deadly, plans):
    """Two processes die of it; the third leaves it out, and so does every later one."""
    session = agent(scripted("one", default="fine"), max_restarts=2)
    session.run("First.", timeout=TURN_S)
    deadly(session.id, SAID)
    kill(session)
    result = session.run("Second.", timeout=TURN_S)
    reported = set_aside(client, session)
    said = [message.content for message in session.messages()[-3:]]
    restarts = session.status().restarts
    kill(session)
    again = session.run("Third.", timeout=TURN_S)

    assert result.text == "fine"
    assert (reported.what, reported.why) == ("said", "processes that read it have died of it")
    assert len(reported.digest) == 32
    assert said == ["First.", "Second.", "fine"]
    assert restarts == 1  # the processes that fell in between are no restarts
    assert again.text == "fine"
    # It has killed two, and nobody after them: what is set aside is written down.
    assert len((plans / f"{session.id}.plan").read_text().splitlines()) == OFTEN - DEATHS_MAX


@pytest.mark.fault_case("F91")
def test_who_plays_the_session_again_hears_of_the_hole(agent, scripted, deadly, place):
    """What was decided on the record can't be decided without it; the record is not read."""
    session = agent(scripted("one", default="fine"), max_restarts=2)
    session.run("First.", timeout=TURN_S)
    deadly(session.id, SAID)
    kill(session)
    session.run("Second.", timeout=TURN_S)
    played = replayed(session, place.address)

    assert played.returncode == 1
    assert "it is set aside, a record of 'said': processes that read it have died" in played.stdout


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_death_while_it_is_written_down_loses_nothing(  # noqa: PLR0913, PLR0917
    agent, client, scripted, plans, deadly, moment
):
    """What is known to kill is left out by the next process, whether that is recorded or not."""
    session = agent(scripted("one", default="fine"), max_restarts=5)
    session.run("First.", timeout=TURN_S)
    point = f"agent.{WRITTEN}*.{moment}:1=agent"
    deadly(session.id, SAID, last=[point])
    kill(session)

    assert session.run("Second.", timeout=TURN_S).text == "fine"
    assert set_aside(client, session).what == "said"
    assert [one.content for one in session.messages()[-3:]] == ["First.", "Second.", "fine"]
    assert (plans / f"{session.id}.plan").read_text() == ""  # all have died that were to


@pytest.mark.fault_case("F91")
def test_state_that_kills_its_readers_is_set_aside(agent, client, scripted, deadly, place):
    """A session that is resumed from it begins anew, and says so, where it could not begin.

    So does who plays it again.
    """
    model = scripted(default="fine")
    first = agent(model)
    first.run("First.", timeout=TURN_S)
    checkpoint = first.checkpoint()
    deadly("s-poison", SNAPSHOT_STEP)
    with client.resume_session(
        first, checkpoint_id=checkpoint.checkpoint_id, new_id="s-poison"
    ) as session:
        result = session.run("Second.", timeout=TURN_S)
        reported = set_aside(client, session)
        contents = [message.content for message in session.messages()]
        played = replayed(session, place.address)

    assert result.text == "fine"
    assert reported.what == "snapshot"
    assert "First." not in contents
    assert (played.returncode, played.stderr) == (1, "")
    assert played.stdout.startswith(f"the snapshot is set aside: {reported.why}\n")
    assert " records, the same; 1 were passed over\n" in played.stdout


@pytest.mark.fault_case("F91")
def test_cycle_that_kills_who_goes_on_with_it_is_dropped(agent, client, scripted, deadly):
    """Also where it dies before it can count its crashes; what waits behind it has its turn."""
    model = scripted((Hold(), "never"), default="fine")
    session = agent(model, max_restarts=5)
    session.prompt("First.")
    model.wait_held()
    stream = session.subscribe(types=["agent_abort"])
    session.prompt("Behind it.")
    deadly(session.id, RESUME_STEP)
    kill(session)
    aborted = stream.get(TURN_S).event

    assert "processes that read it have died" in aborted.reason
    assert session.collect_reply(timeout=TURN_S) == "fine"
    assert set_aside(client, session).what == "cycle"
    assert session.run("Second.", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F91")
def test_command_that_kills_who_takes_it_is_refused(agent, client, deadly):
    """Whoever sent it hears of it; nothing else of the session is lost."""
    session = agent(max_restarts=5)
    session.run("First.", timeout=TURN_S)
    deadly(session.id, RESUME_STEP + 1, first=["agent.cycle_started*.before:1=agent"])
    with pytest.raises(cmdc.UsageError, match="the command was set aside: processes that read it"):
        session.prompt("Second.")

    assert set_aside(client, session).what == "command"
    assert session.run("Third.", timeout=TURN_S).text == "fine"


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("levels", DEEP)
def test_record_of_an_older_program_is_set_aside_before_it_kills(  # noqa: PLR0913, PLR0917
    agent, client, audit, place, poll, levels
):
    """Arguments so deep were taken once; today's processes do not even try them."""
    audit.daemon_died = audit.bystander_died = True
    session = agent()
    session.run("First.", timeout=TURN_S)
    place.kill()
    assert poll(lambda: not place.left())
    call = {"call_id": "c", "name": "x"}
    call["arguments"] = msgspec.Raw(b"\x81\xa1a" * levels + b"\x01")
    deep = {"record": "said", "message": {"role": "assistant", "id": "m", "tool_calls": [call]}}

    async def poison(journal):
        body = msgspec.msgpack.encode(deep)
        await journal.write(AppendRecords(session.id, 1, [("said", body)], []))

    with_journal(place.place / "state", poison)
    place.start()
    result = session.run("Second.", timeout=TURN_S)

    assert result.text == "fine"
    assert set_aside(client, session).why == "it nests more than 64 levels deep"
    assert session.status().restarts <= 1


def packed(record, **fields):
    """Return the body of a record of this kind, well made or not."""
    return msgspec.msgpack.encode({"record": record, **fields})


DEEP_OPTIONS = {"a": msgspec.Raw(b"\x81\xa1a" * 200 + b"\x01")}
# fmt: off
BROKEN = [
    # kind           body                                           what      why
    ("said",          b"\xc1",                                       "said",   "cannot be read: "),
    ("said",          msgspec.msgpack.encode([1]),                   "said",   "cannot be read: "),
    ("said",          packed("said", message={"id": "m"})[:-3],      "said",   "cannot be read: "),
    ("said",          packed("said", message=5),                     "said",   "got `int`"),
    ("said",          b"\x81\xa6record\xa4s\xffid",                 "said",   "cannot be read: "),
    ("said",          packed("from_tomorrow"),                       "said",   "'from_tomorrow'"),
    ("\x1b[31m",      packed("\x1b[31m"),                            "record", "cannot be read: "),
    ("model_changed", packed("model_changed", model="x",
                             provider_opts=DEEP_OPTIONS),            "model_changed", "96 levels"),
]
# fmt: on
FIRST_ANSWER = """
    UPDATE records SET kind = ?, body = ? WHERE (session_id, seq) =
    (SELECT session_id, min(seq) FROM records WHERE session_id = ? AND kind = 'said')
"""


@pytest.mark.fault_case("F91")
def test_malformed_record_is_left_out(agent, client, damaged, place):
    """It kills nobody: the first process that meets it names it and goes on with the rest."""
    sessions = [agent() for _ in BROKEN]
    for session in sessions:
        session.run("First.", timeout=TURN_S)
        session.run("Second.", timeout=TURN_S)
    damaged(
        (FIRST_ANSWER, (kind, body, session.id))
        for (kind, body, *_), session in zip(BROKEN, sessions, strict=True)
    )
    for (_, _, what, why), session in zip(BROKEN, sessions, strict=True):
        result = session.run("Third.", timeout=TURN_S)
        reported = set_aside(client, session)
        said = [message.content for message in session.messages()[1:]]

        assert result.text == "fine"
        assert (reported.what, len(reported.digest)) == (what, 32)
        assert why in reported.why
        assert written(place, session) == 1
        assert said == ["First.", "Second.", "fine", "Third.", "fine"]
        assert session.status().restarts <= 1  # the daemon's own end


UNREADABLE = msgspec.msgpack.encode({"schema_version": 1})
ONLY_STATE = """
    INSERT INTO snapshots SELECT session_id, max(seq), ? FROM records WHERE session_id = ?
"""
CHECKPOINT = "UPDATE checkpoints SET body = ? WHERE session_id = ?"


@pytest.mark.fault_case("F91")
def test_state_that_cannot_be_read_is_left_out(agent, client, damaged, place):
    """What came after it is there; a session that would begin with it is refused with a reason."""
    session, other = agent(), agent()
    for one in (session, other):
        one.run("First.", timeout=TURN_S)
    checkpoint = other.checkpoint()
    damaged([(ONLY_STATE, (UNREADABLE, session.id)), (CHECKPOINT, (UNREADABLE, other.id))])
    result = session.run("Second.", timeout=TURN_S)
    reported = set_aside(client, session)
    with pytest.raises(cmdc.CmdcError, match="the snapshot is damaged"):
        client.resume_session(other, checkpoint_id=checkpoint.checkpoint_id, new_id="s-damaged")

    assert result.text == "fine"
    assert reported.what == "snapshot"
    assert written(place, session) == 1
    assert "the snapshot is damaged: Object missing required field `state`" in reported.why
    assert [message.content for message in session.messages()[1:]] == ["Second.", "fine"]


STATE_BETWEEN = """
    INSERT INTO snapshots SELECT session_id, min(seq), ? FROM records
    WHERE session_id = ? AND kind = 'cycle_ended'
"""
OLDEST_GONE = """
    DELETE FROM records
    WHERE session_id = ? AND seq = (SELECT min(seq) FROM records WHERE session_id = ?)
"""


@pytest.mark.fault_case("F91")
def test_who_plays_the_session_again_leaves_the_state_out_as_well(agent, client, damaged, place):
    """What was decided on it is passed over; what came after that is decided again."""
    session = agent()
    for text in ("First.", "Second."):
        session.run(text, timeout=TURN_S)
    pruned = [(OLDEST_GONE, (session.id, session.id))] * 4
    damaged([(STATE_BETWEEN, (UNREADABLE, session.id)), *pruned])
    session.run("Third.", timeout=TURN_S)
    reported = set_aside(client, session)
    played = replayed(session, place.address)
    shown = played.stdout.splitlines()

    assert (played.returncode, played.stderr) == (1, "")
    assert shown[0] == f"the snapshot is set aside: {reported.why}"
    assert shown[1] == "  passed over: 5 records, up to the one that says so"
    assert "stream_ended -> said, turn_spent, cycle_ended" in shown[-2]
    assert "can't be played" not in played.stdout
    assert shown[-1].endswith(" records, the same; 5 were passed over")


SECOND_BEGINNING = """
    (session_id, seq) = (SELECT session_id, max(seq) FROM records
                         WHERE session_id = ? AND kind = 'cycle_started')
"""
QUICK_S = 20.0
"""Less than a start may take: who only waits for that is late."""


@pytest.mark.fault_case("F72")
def test_rows_that_are_gone_are_named_and_the_session_goes_on(agent, client, damaged, place):
    """What leans on them is left out; what a fork has not, its origin's commands, is not missed."""
    no_record, no_command, sound = (agent() for _ in range(3))
    for session in (no_record, no_command, sound):
        session.run("First.", timeout=TURN_S)
        session.run("Second.", timeout=TURN_S)
    fork = client.resume_session(sound, new_id="s-fork")
    first = "SELECT session_id, min(seq) FROM commands WHERE session_id = ?"
    damaged(
        [
            (f"DELETE FROM records WHERE {SECOND_BEGINNING}", (no_record.id,)),
            (f"DELETE FROM commands WHERE (session_id, seq) = ({first})", (no_command.id,)),
        ]
    )
    for session in (no_record, no_command, sound, fork):
        assert session.run("Third.", timeout=QUICK_S).text == "fine"
        assert session.status().restarts <= 1  # the daemon's own end
    said = [message.content for message in no_record.messages()[1:]]
    gone = "the journal is damaged: of its rows, records and commands, these are gone: "

    assert said == ["First.", "fine", "fine", "Third.", "fine"]
    assert set_aside(client, no_record).why.startswith(gone)
    assert set_aside(client, no_command).why == f"{gone}1"
    counts = [written(place, one) for one in (no_record, no_command, sound, fork)]
    assert counts == [2, 1, 0, 0]  # with the record goes the end of its cycle
    assert place.log.read_text().count("rows.missing") == 2
    fork.stop()


@pytest.mark.fault_case("F72")
def test_record_that_contradicts_those_before_it_is_left_out(agent, client, damaged, place):
    """An end of a cycle that never began, with no row missing: no process dies of it."""
    session = agent()
    session.run("First.", timeout=TURN_S)
    session.run("Second.", timeout=TURN_S)
    other = ("noted", packed("noted", notes=[]), session.id)
    before = place.log.read_text().count("process.fell")
    damaged([(f"UPDATE records SET kind = ?, body = ? WHERE {SECOND_BEGINNING}", other)])
    result = session.run("Third.", timeout=QUICK_S)
    reported = set_aside(client, session)

    assert result.text == "fine"
    assert reported.what == "cycle_ended"
    assert reported.why.startswith(
        "the journal is damaged, since this cannot be after what is before"
    )
    assert reported.why.endswith(": a cycle ended, and none had begun")
    assert written(place, session) == 1
    assert place.log.read_text().count("process.fell") == before


@pytest.mark.fault_case("F91")
def test_agent_that_fails_over_what_it_reads_ends_at_once(agent, audit, client, damaged, place):
    """Whatever it raises: it is a death like any other, reported with what it was and where."""
    audit.log_says = ("Traceback (most recent call last)",)
    session = agent()
    session.run("First.", timeout=TURN_S)
    log = place.log.read_text()
    impossible = encode_state(Memory(tools=(ToolFacts("without packed code"),)))
    damaged([(ONLY_STATE, (impossible, session.id))])
    result = session.run("Second.", timeout=QUICK_S)
    reported = set_aside(client, session)
    fallen = [line for line in place.log.read_text()[len(log) :].splitlines() if session.id in line]

    assert result.text == "fine"
    assert (reported.what, reported.why) == ("snapshot", "processes that read it have died of it")
    falls = [line for line in fallen if "process.fell" in line]
    assert len(falls) == DEATHS_MAX
    assert all("exception: AssertionError" in line for line in falls)
    assert "in tools_of" in place.log.read_text()[len(log) :]


@pytest.mark.fault_case("F91")
def test_record_of_a_newer_program_is_not_left_out(agent, damaged):
    """Whatever it says may matter: who wants the session is asked to use the newer program."""
    session = agent()
    session.run("First.", timeout=TURN_S)
    newer = ("from_tomorrow", packed("from_tomorrow", more=[1]), session.id)
    damaged([(FIRST_ANSWER, newer)])

    with pytest.raises(cmdc.CmdcError, match="'from_tomorrow', which this program does not know"):
        session.run("Second.", timeout=TURN_S)
