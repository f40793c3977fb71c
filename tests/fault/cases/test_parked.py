"""One session or one file that nobody can go on with: it is set aside, and hinders no other."""

import contextlib
import io
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.engine import ClientEngine
from cmdc_runtime.errors import SessionNotAlive, SessionParked
from cmdc_runtime.transfer import MAGIC, Header, Seal, frame_of, part_of, read_frames
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from supervisor.sessions.assignment import spec_bytes, spec_of
from tests.fault.cases.conftest import WARM_S, is_warm

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
CLI_S = 60.0
TURN_S = 30.0
END_S = 15.0
STRANGE = b"\x1b[2J\xff"
"""No text, no number and no MessagePack."""
COLUMNS = {
    "session_id": STRANGE,
    "created_ms": "late",
    "spec": STRANGE,
    "parent_id": STRANGE,
    "group_id": STRANGE,
    "incarnation": -1,
    "restarts": 2**62,
}
"""A value for each column of a live session's row that a daemon reads and never writes."""
BESIDE = {
    "body": "INSERT INTO downs VALUES ({seq}, {id}, 1, 0, 5, x'ff')",
    "written": "INSERT INTO marks VALUES ({id}, 'all', 0)",
    "first": "INSERT INTO events VALUES ({id}, 'one', 'two', x'90')",
    "index": "INSERT INTO events VALUES ({id}, 4611686018427387904, 1, x'90')",
}
"""Rows in other tables that it looks at when it takes a session over."""
ENDS = {
    "seq": "(9223372036854775807, {id}, 1, 1, 5, x'c0')",
    "incarnation": "(2, {id}, 'many', 1, 5, x'c0')",
    "restarting": "(3, {id}, 1, 'y', 5, x'c0')",
    "at_ms": "(4, {id}, 1, 1, 'late', x'c0')",
    "body": "(5, {id}, 1, 1, 5, 'text')",
}
"""An end for each column of one that no daemon has written so."""


def run(place, *arguments):
    """Run the command line at the daemon."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return subprocess.run(
        [CMDC, *arguments],
        env=ours | {"CMDC_ADDRESS": str(place.address)},
        capture_output=True,
        timeout=CLI_S,
        check=False,
    )


@contextlib.contextmanager
def stopped(place):
    """Lend the journal of a daemon that has ended; the next one is warm behind it."""
    place.process.send_signal(signal.SIGTERM)
    place.process.wait(END_S)
    try:
        with contextlib.closing(sqlite3.connect(place.place / "state" / JOURNAL_FILE)) as db:
            yield db
            db.commit()
    finally:
        place.start()
        with place.client() as client:
            assert place.poll(lambda: is_warm(client), WARM_S)


def copied(db, origin, names=None, below=None, **values):
    """Add a row that is that of ``origin``, but for some columns.

    Its definition ``names`` it, and is ``below`` that parent.
    """
    cursor = db.execute("SELECT * FROM sessions WHERE session_id = ?", (origin,))
    columns = [one[0] for one in cursor.description]
    row = dict(zip(columns, cursor.fetchone(), strict=True))
    spec = msgspec.structs.replace(
        spec_of(row["spec"]), session_id=names or str(values["session_id"]), parent_id=below
    )
    row |= {"spec": spec_bytes(spec)} | values
    places = ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO sessions VALUES ({places})", [row[one] for one in columns])


def forget(place, names):
    """Take sessions out of the journal that never had a process: nobody misses their ends."""
    with stopped(place) as db:
        db.executemany("DELETE FROM sessions WHERE session_id = ?", [(name,) for name in names])


@pytest.mark.fault_case("F72")
def test_rows_damaged_by_hand_park_their_sessions_and_no_other(place, audit, bystander, client):
    """Each column in turn: the daemon starts, says why, and lets go of them when it is asked to."""
    audit.daemon_died = True
    audit.log_says = ("Traceback (most recent call last)",)  # of a value of another type
    with stopped(place) as db:
        before = [row for row in db.iterdump() if "INSERT" in row]
        for column, value in COLUMNS.items():
            copied(db, bystander.id, **{"session_id": f"row-{column}", column: value})
        copied(db, bystander.id, session_id="row-text", spec="text")
        copied(db, bystander.id, session_id="row-utf8")
        db.execute("UPDATE sessions SET group_id = CAST(x'ff' AS TEXT) WHERE session_id='row-utf8'")
        for number, (column, insert) in enumerate(BESIDE.items()):
            copied(db, bystander.id, session_id=f"beside-{column}")
            db.execute(insert.format(id=f"'beside-{column}'", seq=number + 1))
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    parked = {one["session_id"]: one["reason"] for one in reported if one["state"] == "parked"}
    damaged = {name for name in parked if name.startswith("damaged-")}
    names = {f"row-{one}" for one in (*COLUMNS, "text", "utf8") if one != "session_id"}
    assert parked.keys() - damaged == names | {f"beside-{one}" for one in BESIDE}
    assert len(damaged) == 1
    assert "incarnation: -1 is not between 0" in parked["row-incarnation"]
    assert "expected bytes, got str" in parked["row-text"]
    table = run(place, "ps", "--all").stdout
    assert b"row-incarnation" in table
    assert b"\x1b" not in table
    assert {one.session_id for one in client.list_sessions()} == {bystander.id}
    for call in (client.status, client.messages, client.last_index):
        with pytest.raises(SessionParked, match="-1 is not between"):
            call("row-incarnation")
    with pytest.raises(SessionParked, match="-1 is not between"):
        client.prompt("row-incarnation", "Are you there?")
    for name in names | {f"beside-{one}" for one in BESIDE}:
        client.stop(name)
    with pytest.raises(SessionNotAlive, match="normal"):
        client.status("row-incarnation")

    with stopped(place):  # the next daemon knows what ended before it from the journal
        pass
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    ended = {one["session_id"]: one["reason"] for one in reported if one["state"] == "ended"}
    shown = names | {f"beside-{one}" for one in BESIDE}
    assert {name: ended.get(name) for name in shown} == dict.fromkeys(shown, "normal")
    with stopped(place) as db:
        rows = db.execute(
            "SELECT count(*), count(ended_ms) FROM sessions WHERE typeof(session_id) = 'text'"
            " AND (session_id GLOB 'row-*' OR session_id GLOB 'beside-*')"
        ).fetchone()
        assert rows == (len(COLUMNS) + 1 + len(BESIDE),) * 2
        for table in ("sessions", "downs", "marks", "events"):
            ours = "session_id GLOB 'row-*' OR session_id GLOB 'beside-*'"
            db.execute(f"DELETE FROM {table} WHERE {ours} OR typeof(session_id) = 'blob'")
        assert len([row for row in db.iterdump() if "INSERT" in row]) >= len(before)
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    assert [one["session_id"] for one in reported if one["state"] != "ended"] == [bystander.id]


@pytest.mark.fault_case("F72")
def test_an_end_damaged_by_hand_hinders_no_session(place, audit, bystander, agent, client):
    """It is left out and reported, of a session alive and of one that ended; new ends are reported.

    Rows of ends have one order for all sessions, so one of them must not decide about the others.
    """
    audit.daemon_died = True
    gone = agent()
    gone.stop()
    start = len(place.log.read_text())
    names = {f"end-{column}": insert for column, insert in ENDS.items()}
    with stopped(place) as db:
        for name, insert in names.items():
            copied(db, bystander.id, session_id=name, incarnation=1)
            db.execute(f"INSERT INTO downs VALUES {insert.format(id=repr(name))}")
        changed = "UPDATE downs SET seq = 9223372036854775806 WHERE session_id = ?"
        assert db.execute(changed, (gone.id,)).rowcount == 1
    said = place.log.read_text()[start:]
    assert "session.parked" not in said
    assert "Traceback" not in said
    for name in names:
        lines = [one for one in said.splitlines() if "down.damaged" in one and name in one]
        assert f"{name.removeprefix('end-')}: " in lines[0]
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    listed = {one.session_id for one in client.list_sessions()}
    assert listed == {bystander.id, *names}
    reported = queue.SimpleQueue()
    for name in names:
        client.monitor(name, reported.put)
        client.stop(name)
        assert reported.get(timeout=TURN_S).session_id == name


@pytest.mark.fault_case("F72")
def test_a_definition_of_another_session_parks_the_row_that_has_it(
    place, audit, bystander, agent, client
):
    """Whom it names, alive, ended or nobody, is neither ended nor spoken for, and goes on."""
    audit.daemon_died = True
    gone, other = agent(), agent()
    gone.stop()
    named = {"live": bystander.id, "ended": gone.id, "nobody": "nobody", "none": "a b"}
    with stopped(place) as db:
        for kind, session_id in named.items():
            copied(db, bystander.id, session_id=f"names-{kind}", names=session_id)
        for rowid, name in ((-9, "before"), (2**40, "behind")):  # whoever is looked at first
            copied(db, other.id, session_id=name, names=other.id)
            db.execute("UPDATE sessions SET rowid = ? WHERE session_id = ?", (rowid, name))
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    assert other.run("And you?", timeout=TURN_S).text == "fine"
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    parked = {one["session_id"]: one["reason"] for one in reported if one["state"] == "parked"}
    names = {*(f"names-{kind}" for kind in named), "before", "behind"}
    assert all("spec: session_id: " in parked[name] for name in names)
    assert {one.session_id for one in client.list_sessions()} >= {bystander.id, other.id}
    other.stop()
    forget(place, names)


@pytest.mark.fault_case("F72")
def test_a_session_of_a_damaged_end_is_parked_and_not_pruned(place, audit, bystander, client):
    """Nobody can say whether it has ended, so it is shown with its column until it is stopped."""
    audit.daemon_died = True
    ends = {"below": -1, "text": "abc", "bytes": b"\0", "part": 1.5, "far": 2**62, "sound": 5}
    names = {f"ended-{kind}": value for kind, value in ends.items()}
    start = len(place.log.read_text())
    with stopped(place) as db:
        for name, ended_ms in names.items():
            copied(db, bystander.id, session_id=name, ended_ms=ended_ms, reason=STRANGE)
    del names["ended-sound"]
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"

    def is_pruned():  # the one that ended long ago, as it should be
        return "journal.pruned" in place.log.read_text()[start:]

    assert place.poll(is_pruned, TURN_S)
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    parked = {one["session_id"]: one["reason"] for one in reported if one["state"] == "parked"}
    assert all("ended_ms: " in parked[name] for name in names)
    assert "ended-sound" not in {one["session_id"] for one in reported}
    client.stop("ended-text")
    with pytest.raises(SessionNotAlive, match="normal"):
        client.status("ended-text")
    with stopped(place) as db:
        kept = db.execute("SELECT session_id FROM sessions WHERE session_id GLOB 'ended-*'")
        assert {one for (one,) in kept} == names.keys()
    forget(place, names)


@pytest.mark.fault_case("F72")
def test_sessions_that_are_below_themselves_are_parked(place, audit, bystander, client):
    """Alone, two of each other, or more; whose parent is only gone ends as before."""
    audit.daemon_died = True
    parents = {"self": "self", "left": "right", "right": "left", "one": "two", "two": "three"}
    parents |= {"three": "one"}
    with stopped(place) as db:
        for name, parent in (parents | {"orphan": "nobody"}).items():
            copied(db, bystander.id, below=parent, session_id=name, parent_id=parent)
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    parked = {one["session_id"]: one["reason"] for one in reported if one["state"] == "parked"}
    for name, parent in parents.items():
        assert f"parent_id: {parent!r} is below the session itself" in parked[name]
    with pytest.raises(SessionNotAlive, match="the parent's process ended"):
        client.status("orphan")
    forget(place, [*parents, "orphan"])


@pytest.mark.fault_case("F72")
def test_a_parent_that_the_definition_has_not_parks_its_session(
    place, audit, bystander, agent, client
):
    """It would end with that one's process; without its own one it would work for nobody."""
    audit.daemon_died = True
    parent = agent()
    damaged = {  # the column, and what the definition has
        "taken": (bystander.id, None),
        "gone": ("nobody", None),
        "changed": (bystander.id, parent.id),
        "lost": (None, parent.id),
    }
    with stopped(place) as db:
        for name, (column, below) in damaged.items():
            copied(db, parent.id, below=below, session_id=f"child-{name}", parent_id=column)
        changed = "UPDATE sessions SET parent_id = ? WHERE session_id = ?"
        assert db.execute(changed, (bystander.id, parent.id)).rowcount == 1
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    reported = json.loads(run(place, "ps", "--all", "--json").stdout)
    parked = {one["session_id"]: one["reason"] for one in reported if one["state"] == "parked"}
    names = {f"child-{name}" for name in damaged}
    assert parked.keys() == names | {parent.id}
    assert all("the session is damaged: parent_id: " in parked[name] for name in names)
    assert f"parent_id: {bystander.id!r}, and by its definition it has none" in parked[parent.id]
    assert (
        f"parent_id: none, and by its definition it has the parent {parent.id!r}"
        in (parked["child-lost"])
    )
    with stopped(place) as db:
        db.execute("UPDATE sessions SET parent_id = NULL WHERE session_id = ?", (parent.id,))
    assert parent.run("And you?", timeout=TURN_S).text == "fine"
    forget(place, names)
    assert parent.run("And now?", timeout=TURN_S).text == "fine"


def altered(data, **fields):
    """Return a session's file with other numbers in its header, and a good seal."""
    header, *parts, _end = map(part_of, read_frames(io.BytesIO(data)))
    assert isinstance(header, Header)
    seal, frames = Seal(), []
    for part in (msgspec.structs.replace(header, **fields), *parts):
        frames.append(frame_of(part))
        seal.add(frames[-1])
    return MAGIC + b"".join(frames) + frame_of(seal.end())


@pytest.mark.fault_case("F71")
def test_a_file_that_no_daemon_wrote_is_refused_before_anything_is_kept(
    place, audit, agent, bystander, tmp_path
):
    """The command line refuses it, and so does the daemon, which starts on that journal again."""
    audit.daemon_died = True
    session = agent()
    session.run("Hello.", timeout=TURN_S)
    exported = run(place, "export", session.id)
    assert exported.returncode == 0, exported.stderr
    wrongs = {
        "incarnation": -1,
        "restarts": -(2**40),
        "last_index": 2**63,
        "created_ms": 10**18,
        "snapshot_seq": 5,
        "spec": b"\xc0",
    }
    with contextlib.closing(ClientEngine(place.address)) as engine:
        for name, value in wrongs.items():
            file = tmp_path / name
            file.write_bytes(altered(exported.stdout, **{name: value}))
            done = run(place, "import", str(file), "--as", f"copy-{name}")
            assert done.returncode == 1
            assert f"cannot be kept: header: {name}: ".encode() in done.stderr
            frames = read_frames(io.BytesIO(file.read_bytes()))
            with pytest.raises(cmdc.UsageError, match=f"header: {name}: "):
                engine.call(engine.exchange.bring(frames, f"copy-{name}"))
        with pytest.raises(cmdc.InvalidSession):
            engine.call(engine.exchange.find_live("copy-incarnation"))
    with stopped(place) as db:
        (count,) = db.execute(
            "SELECT count(*) FROM sessions WHERE session_id GLOB 'copy-*'"
        ).fetchone()
        assert count == 0
    assert bystander.run("Still there?", timeout=TURN_S).text == "fine"
    assert session.run("And you?", timeout=TURN_S).text == "fine"
