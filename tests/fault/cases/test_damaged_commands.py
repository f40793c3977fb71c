"""Rows of a journal that no process could be given: looked at first, reported, and left out."""

import contextlib
import signal
import sqlite3

import msgspec
import pytest

from cmdc_runtime.commands import Prompt
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.wire.codec import decode, encode, raised, raw
from cmdc_runtime.wire.frames import FailedReply, Send, ToClient, ValueReply
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from tests.fault.cases.test_poison import set_aside
from tests.fault.cases.test_starts import Wire
from tests.fault.conftest import poll_for

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 20.0
"""Less than a start may take: who only waits for that is late."""
END_S = 15.0
# fmt: off
DAMAGED_IDS = {
    "bytes":     "command_id = x'63ff00'",
    "utf8":      "command_id = CAST(x'63ff' AS TEXT)",
    "nul":       "command_id = CAST(x'630078' AS TEXT)",
    "long":      "command_id = printf('%.1025c', 'c')",
    "endless":   "command_id = hex(zeroblob(9000000))",
}
"""Nobody could be answered: such a command is given to no process."""
DAMAGED_BODIES = {
    "text":      "body = 'prompt'",
    "number":    "body = 7",
    "empty":     "body = x''",
    "torn":      "body = substr(body, 1, length(body) - 3)",
    "no-pack":   "body = x'c1'",
    "no-utf8":   "body = x'81a474797065a3ffffff'",
    "huge":      "body = zeroblob(17825792)",
}
"""Whoever sent it can have an answer: it is refused."""
HARMLESS = {
    "control":   "command_id = 'c' || char(27) || '[31m'",
    "seq":       "seq = 'late'",
    "at_ms":     "at_ms = x'ff'",
}
"""Nothing that anybody needs to carry it out."""
# fmt: on
ROWS = DAMAGED_IDS | DAMAGED_BODIES | HARMLESS
ADD = "INSERT INTO commands (session_id, command_id, seq, at_ms, body) VALUES (?, ?, ?, 5, ?)"
SNAPSHOT = "INSERT INTO snapshots VALUES (?, 0, {})"


def end(place):
    """Stop the daemon as an operator does."""
    place.process.send_signal(signal.SIGTERM)
    place.process.wait(END_S)


@contextlib.contextmanager
def journal(place):
    """Lend the journal of a daemon that has ended, and keep what was changed in it."""
    with contextlib.closing(sqlite3.connect(place.place / "state" / JOURNAL_FILE)) as db:
        yield db
        db.commit()


def leave_unanswered(db, session, damage):
    """Add a command that is damaged, and behind it one that is not."""
    for number, name in enumerate(("Damaged", "Sound")):
        row = (session.id, name, 10_000 + number, encode(Prompt(text=f"{name}.")))
        db.execute(ADD, row)
    changed = f"UPDATE commands SET {damage} WHERE session_id = ? AND command_id = 'Damaged'"
    assert db.execute(changed, (session.id,)).rowcount == 1


def said_to(session):
    """Return what users have said to a session, in its order, once the sound command is taken."""

    def taken():
        said = [one.content for one in session.messages() if one.role == "user"]
        return said if "Sound." in said else None

    return poll_for(taken, TURN_S)


def check(place, sessions):
    """Check that each session has done what its row says, and that the others were reported."""
    for name, session in sessions.items():
        said = said_to(session)
        assert said is not None, name
        assert session.run("And you?", timeout=TURN_S).text == "fine", name
        assert ("Damaged." in said) is (name in HARMLESS), name
        assert session.status().restarts <= 1, name  # the daemon's own end
    log = place.log.read_text()
    reported = {
        name for name, session in sessions.items() if f"{session.id}" in given_to_nobody(log)
    }
    assert reported == DAMAGED_IDS.keys()
    end(place)
    with journal(place) as db:
        for name, session in sessions.items():
            query = "SELECT command_id, answer FROM commands WHERE session_id = ?"
            db.text_factory = lambda data: data.decode(errors="replace")
            found = db.execute(query, (session.id,)).fetchall()
            assert sum(answer is None for _, answer in found) == (name in DAMAGED_IDS), name
            if name in DAMAGED_BODIES:
                answer = decode(ToClient, dict(found)["Damaged"])
                assert isinstance(answer, FailedReply)
                assert "not a Command" in str(raised(answer))
    place.start()


def given_to_nobody(log):
    """Return the lines of the log that name commands which are given to nobody."""
    return "".join(line for line in log.splitlines() if "command.set_aside" in line)


@pytest.mark.fault_case("F72")
def test_damaged_row_of_a_command_stops_neither_its_session_nor_another(place, audit, agent):
    """Whoever can get an error gets it, the rest is logged; what is behind it is done."""
    audit.daemon_died = True
    sessions = {name: agent() for name in ROWS}
    for session in sessions.values():
        session.run("First.", timeout=TURN_S)
    end(place)
    with journal(place) as db:
        for name, session in sessions.items():
            leave_unanswered(db, session, ROWS[name])
    place.start()
    check(place, sessions)


@pytest.mark.fault_case("F72")
def test_damaged_row_of_a_command_is_not_given_to_an_agent_that_outlived_its_daemon(
    own_daemon, scripted
):
    """What an earlier daemon accepted is looked at before the next one passes it on."""
    own_daemon.grace = 60.0
    own_daemon.start()
    with own_daemon.client() as client:
        sessions = {name: client.create_agent(model=scripted(default="fine")) for name in ROWS}
        for session in sessions.values():
            session.run("First.", timeout=TURN_S)
        pids = {session.id: session.agent_pid() for session in sessions.values()}
        own_daemon.kill()
        with journal(own_daemon) as db:
            for name, session in sessions.items():
                leave_unanswered(db, session, ROWS[name])
        own_daemon.start()
        for session in sessions.values():
            assert said_to(session) is not None
        assert {session.id: session.agent_pid() for session in sessions.values()} == pids
        check(own_daemon, sessions)
        for session in sessions.values():
            session.stop()


@pytest.mark.fault_case("F91")
@pytest.mark.parametrize("value", ["'text'", "7", "CAST(x'ff' AS TEXT)"])
def test_snapshot_of_another_type_is_set_aside(place, audit, agent, client, value):
    """It is sent as bytes, so that who reads it can say what is wrong."""
    audit.daemon_died = True
    session = agent()
    session.run("First.", timeout=TURN_S)
    end(place)
    with journal(place) as db:
        db.execute("DELETE FROM snapshots WHERE session_id = ?", (session.id,))
        db.execute(SNAPSHOT.format(value), (session.id,))
    place.start()

    assert session.run("Second.", timeout=TURN_S).text == "fine"
    assert set_aside(client, session).what == "snapshot"


# fmt: off
DAMAGED_ANSWERS = {
    "text":     "answer = 'done'",
    "number":   "answer = 7",
    "empty":    "answer = x''",
    "torn":     "answer = substr(answer, 1, length(answer) - 1)",
    "no pack":  "answer = x'c1'",
    "another":  "answer = replace(CAST(answer AS TEXT), 'again', 'other')",
}
# fmt: on


@pytest.mark.fault_case("F72")
@pytest.mark.parametrize("damage", DAMAGED_ANSWERS.values(), ids=DAMAGED_ANSWERS)
def test_damaged_answer_is_reported_to_whoever_asks_again_and_the_command_not_done_twice(
    place, audit, agent, damage
):
    """It is filed under the id of what was carried out; no client gets what lies there."""
    audit.daemon_died = True
    session = agent()
    body = raw(Prompt(text="Once."))
    asked = Send(session_id=session.id, id="again", durable=True, body=body)
    with Wire(place.address / "control.sock") as wire:
        wire.send(msgspec.structs.replace(asked, token=read_token(place.address)))
        assert isinstance(decode(ToClient, wire.receive()), ValueReply)
    end(place)
    with journal(place) as db:
        changed = f"UPDATE commands SET {damage} WHERE session_id = ? AND command_id = 'again'"
        assert db.execute(changed, (session.id,)).rowcount == 1
    place.start()
    with Wire(place.address / "control.sock") as wire:
        wire.send(msgspec.structs.replace(asked, token=read_token(place.address)))
        answer = decode(ToClient, wire.receive())

    assert (type(answer), answer.id) == (FailedReply, "again")
    assert "the answer to command 'again' is damaged in the journal" in str(raised(answer))
    assert session.run("Twice.", timeout=TURN_S).text == "fine"
    said = [one.content for one in session.messages() if one.role == "user"]
    assert said == ["Once.", "Twice."]


@pytest.mark.fault_case("F72")
@pytest.mark.parametrize("value", ["'late'", "x'ff'"])
def test_record_without_a_number_is_set_aside_and_reported(place, audit, agent, client, value):
    """Its place among the others is not known, so it is not applied, and not dropped in silence."""
    audit.daemon_died = True
    session = agent()
    session.run("First.", timeout=TURN_S)
    end(place)
    with journal(place) as db:
        last = "SELECT max(seq) FROM records WHERE session_id = ? AND kind = 'said'"
        ((seq,),) = db.execute(last, (session.id,)).fetchall()
        found = db.execute(
            f"UPDATE records SET seq = {value} WHERE session_id = ? AND seq = ?", (session.id, seq)
        )
        assert found.rowcount == 1
    place.start()
    found = set_aside(client, session)

    assert "its number is damaged" in found.why
    assert session.run("Second.", timeout=TURN_S).text == "fine"
    assert place.log.read_text().count("Traceback") == 0


# fmt: off
DAMAGED_CHECKPOINTS = {
    "no map":   "metadata = x'2a'",
    "no pack":  "metadata = x'c1'",
    "empty":    "metadata = x''",
    "text":     "metadata = 'text'",
    "label":    "label = x'ff'",
    "no utf8":  "label = CAST(x'63ff' AS TEXT)",
    "saved":    "saved_ms = 'late'",
    "version":  "schema_version = -7",
}
# fmt: on


@pytest.mark.fault_case("F72")
def test_damaged_checkpoint_hides_no_other(place, audit, agent, client):
    """It is listed with its problem, resumed from and deleted; one without an id is in the log."""
    audit.daemon_died = True
    session = agent()
    session.run("First.", timeout=TURN_S)
    made = {name: session.checkpoint().checkpoint_id for name in ["sound", *DAMAGED_CHECKPOINTS]}
    nameless = session.checkpoint().checkpoint_id
    end(place)
    with journal(place) as db:
        for name, damage in {**DAMAGED_CHECKPOINTS, None: "checkpoint_id = x'ff'"}.items():
            found = nameless if name is None else made[name]
            db.execute(f"UPDATE checkpoints SET {damage} WHERE checkpoint_id = ?", (found,))
    place.start()
    listed = {one.checkpoint_id: one.problem for one in session.list_checkpoints()}
    fork = client.resume_session(session, checkpoint_id=made["no map"], new_id="fork")

    assert {name for name, one in made.items() if listed[one] is None} == {"sound"}
    assert len(listed) == len(made)
    assert "checkpoint_id: no checkpoint can be called" in place.log.read_text()
    assert fork.messages() == session.messages()
    fork.stop()
    for name in DAMAGED_CHECKPOINTS:
        session.delete_checkpoint(made[name])
    assert [one.checkpoint_id for one in session.list_checkpoints()] == [made["sound"]]
