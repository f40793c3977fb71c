"""A session as a file: out of one daemon and into another, with all that it is."""

import base64
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.client.sync.session import Session
from cmdc_runtime.plain import DEPTH_MAX
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from cmdc_runtime.testing.daemon import DaemonProcess
from cmdc_runtime.transfer import (
    FORMAT,
    FORMAT_FIRST,
    MAGIC,
    PART_BYTES,
    Assembly,
    RecordsPart,
    Seal,
    SnapshotPart,
    frame_of,
    part_of,
    read_frames,
)

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
TURN_S = 20.0
CLI_S = 60.0
TOO_DEEP = f"it nests more than {DEPTH_MAX} levels deep"


@cmdc.tool(effects="read")
def lucky(number: int) -> str:
    """Say whether a number is lucky."""
    return f"{number} is lucky"


class Counter(cmdc.Plugin):
    """Counts prompts, and shows that its state came along."""

    class State(msgspec.Struct):
        prompts: int = 0

    def before_prompt(self, event, context):
        self.state.prompts += 1
        return cmdc.Emit("counted", {"prompts": self.state.prompts})


@pytest.fixture(scope="module")
def elsewhere():
    """Another daemon with a state directory of its own."""
    daemon = DaemonProcess()
    try:
        yield daemon
    finally:
        daemon.close()


@pytest.fixture(scope="module")
def there(elsewhere):
    """A client of it."""
    with cmdc.Client(elsewhere.address) as client:
        yield client
        assert client.list_sessions() == []


@pytest.fixture
def run(cmdc_daemon, elsewhere):
    """Run the command line at this daemon, or ``there``; its output is bytes."""

    def command(*arguments, there=False, stdin=b""):
        address = (elsewhere if there else cmdc_daemon).address
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        return subprocess.run(
            [CMDC, *arguments],
            input=stdin,
            env={**ours, "CMDC_ADDRESS": str(address)},
            capture_output=True,
            timeout=CLI_S,
            check=False,
        )

    return command


def said(session):
    return [(one.role, one.content) for one in session.messages() if one.role != "system"]


def durable(client, session_id):
    """Return the durable events of a session with their indexes, but of its processes' ends."""
    last = client.last_index(session_id)
    with client.subscribe(session_id, since=0) as stream:
        found = []
        while not found or found[-1].index < last:
            found.append(stream.get(TURN_S))
    return {one.index: one.event for one in found if one.event.durable}


def counted(events):
    return [one.payload["prompts"] for one in events.values() if one.kind == "plugin_event"]


def test_a_session_moves_with_all_that_it_is(agent, scripted, there, run, tmp_path):
    """Conversation, tools by value, model, plugin states, queue, events, answers, checkpoints."""
    model = scripted("hello", (Hold(), "late"), "late again", "waited", default="yes")
    session = agent(model, plugins=[Counter], system_prompt="Be brief.", user_data={"n": 1})
    session.attach_tool(lucky)
    session.run("Hi.", timeout=TURN_S)
    made = session.checkpoint(label="here")
    session.prompt("Slow?")
    model.wait_held()
    session.prompt("Waits.")
    events, tokens = durable(session.client, session.id), session.status().total_tokens
    file = tmp_path / "session"
    done = run("export", session.id, "--move", "-o", str(file))

    assert done.returncode == 0, done.stderr
    assert f"{session.id} moved".encode() in done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(cmdc.SessionNotAlive, match="moved to another daemon"):
        session.prompt("Still there?")

    done = run("import", str(file), "--json", there=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["session_id"] == session.id
    with Session(session.id, there) as moved:
        assert moved.collect_reply(timeout=TURN_S) == "waited"
        assert said(moved)[-1] == ("assistant", "waited")
        texts = [text for role, text in said(moved) if role == "user"]
        assert texts == ["Hi.", "Slow?", "Waits."]
        assert moved.status().incarnation == 2
        assert moved.status().total_tokens > tokens
        assert moved.list_checkpoints() == [made]
        now = durable(there, session.id)
        assert {index: now.get(index) for index in events} == events
        # The cycle that went on was heard of again, as after a crash.
        assert counted(now) == [1, 2, 3, 4]
        model_calls = scripted(ToolCalls(ToolUse("lucky", {"number": 7})), "lucky")
        moved.switch_model(model_calls)
        assert moved.run("A number?", timeout=TURN_S).text == "lucky"
        assert "7 is lucky" in [text for _, text in said(moved)]


def test_images_move_along(agent, scripted, there, run, tmp_path):
    """Their bytes are in the file; one of a session without them is read by older programs, too."""
    image = b"\x89PNG\r\n\x1a\n" + os.urandom(3 * PART_BYTES)
    model = scripted("seen", "still seen")
    session = agent(model)
    plain = part_of(next(read_frames(io.BytesIO(run("export", session.id).stdout))))
    session.run(["Look.", cmdc.Image(image)], timeout=TURN_S)
    file = tmp_path / "session"
    done = run("export", session.id, "--move", "-o", str(file))
    assert done.returncode == 0, done.stderr
    with file.open("rb") as opened:
        header = part_of(next(read_frames(opened)))
    done = run("import", str(file), there=True)
    assert done.returncode == 0, done.stderr
    with Session(session.id, there) as moved:
        moved.run("And now?", timeout=TURN_S)
    sent = [
        next(said["content"] for said in one["messages"] if said["role"] == "user")
        for one in model.requests
    ]

    assert (plain.format, header.format) == (FORMAT_FIRST, FORMAT)
    assert sent[0] == sent[1]
    assert base64.b64encode(image).decode() in sent[1][1]["image_url"]["url"]


def test_a_copy_gets_another_id(agent, scripted, there, run):
    """The session goes on where it is; nobody takes one for the other."""
    session = agent(scripted("one", "mine", "its own"))
    session.run("First?", timeout=TURN_S)
    done = run("export", session.id)
    assert done.returncode == 0, done.stderr
    assert b"copied; it goes on here" in done.stderr

    refused = run("import", "-", there=True, stdin=done.stdout)
    assert refused.returncode == 1
    assert b"give the copy another id (cmdc import --as ID)" in refused.stderr
    taken = run("import", "-", "--as", f"{session.id}.copy", there=True, stdin=done.stdout)
    assert taken.returncode == 0, taken.stderr
    assert session.run("Me?", timeout=TURN_S).text == "mine"
    with Session(f"{session.id}.copy", there) as copy:
        assert copy.run("You?", timeout=TURN_S).text == "its own"
        assert [text for _, text in said(copy)] == ["First?", "one", "You?", "its own"]


def test_what_is_there_already_stays(agent, scripted, run, tmp_path):
    """A file cannot take the place of a session that lives."""
    session = agent(scripted())
    other = agent(scripted())
    file = tmp_path / "session"
    assert run("export", session.id, "-o", str(file)).returncode == 0
    refused = run("import", str(file), "--as", other.id)

    assert refused.returncode == 1
    assert b"is alive" in refused.stderr
    assert said(other) == []


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda data: b"", b"no file of a session"),
        (lambda data: b"PK" + data[2:], b"no file of a session"),
        (lambda data: data[:-1], b"is cut"),
        (lambda data: data[: len(data) // 2], b"is cut"),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], b"another checksum"),
        (lambda data: data + data[13:], b"goes on behind its end"),
    ],
    ids=["empty", "other", "end", "half", "flipped", "twice"],
)
def test_a_damaged_file_starts_nothing(agent, scripted, run, harm, problem):
    """It is looked at as a whole before the daemon is asked."""
    session = agent(scripted())
    data = run("export", session.id).stdout
    refused = run("import", "-", "--as", "copy", stdin=harm(data))

    assert refused.returncode == 1
    assert problem in refused.stderr
    assert [one.session_id for one in session.client.list_sessions()] == [session.id]


def test_a_state_of_a_newer_program_starts_no_session(agent, scripted, run):
    """The error names the version; the file is as good as before for who can read it."""
    session = agent(scripted())
    header, *parts, _end = map(part_of, read_frames(io.BytesIO(run("export", session.id).stdout)))
    newer = SnapshotPart(body=msgspec.msgpack.encode({"schema_version": 99, "state": {}}))
    seal, data = Seal(), MAGIC
    for frame in map(frame_of, (header, newer, *parts)):
        seal.add(frame)
        data += frame
    refused = run("import", "-", "--as", "newer", stdin=data + frame_of(seal.end()))

    assert refused.returncode == 1
    assert b"rebuild" in refused.stderr
    assert b"schema version 99" in refused.stderr


def test_a_file_cannot_be_written_or_read(agent, scripted, run, tmp_path):
    """The message names it, and the session that was to move is where it was."""
    session = agent(scripted("still here"))
    unwritten = run("export", session.id, "--move", "-o", str(tmp_path / "no" / "file"))
    unread = run("import", str(tmp_path / "nothing"))

    assert (unwritten.returncode, unread.returncode) == (1, 1)
    assert b"cannot be written" in unwritten.stderr
    assert b"cannot be read" in unread.stderr
    assert session.run("There?", timeout=TURN_S).text == "still here"


def test_checkpoints_and_resume_at_the_command_line(agent, scripted, client, run):
    """Saved, listed, resumed under another id, deleted."""
    session = agent(scripted("hello"))
    session.run("Hi.", timeout=TURN_S)
    listed = run("checkpoints", session.id, "--save", "by hand", "--json")
    assert listed.returncode == 0, listed.stderr
    (one,) = json.loads(listed.stdout)
    assert (one["label"], one["session_id"]) == ("by hand", session.id)
    table = run("checkpoints", session.id).stdout
    assert one["checkpoint_id"].encode() in table

    fork = f"{session.id}.f"
    done = run("resume", session.id, "--checkpoint", one["checkpoint_id"], "--as", fork)
    assert (done.returncode, done.stdout) == (0, f"{fork} goes on\n".encode())
    with Session(fork, client) as forked:
        assert said(forked) == said(session)
    gone = run("checkpoints", session.id, "--delete", one["checkpoint_id"])
    assert b"no checkpoints" in gone.stderr
    alive = run("resume", session.id)
    assert alive.returncode == 1
    assert b"give new_id to fork it" in alive.stderr


def test_a_long_session_is_exported_from_its_snapshot(agent, scripted, run, client):
    """The records before it are gone, and what moves is whole."""
    session = agent(scripted(default="fine"))
    for number in range(105):
        session.run(f"{number}?", timeout=TURN_S)
    before = said(session)
    session.stop()
    data = run("export", session.id).stdout
    assembly = Assembly()
    for frame in read_frames(io.BytesIO(data)):
        assembly.add(frame)
    whole = assembly.whole()

    assert whole.header.is_over
    assert whole.snapshot
    assert 0 < len(whole.records) < 300
    assert run("import", "-", stdin=data).returncode == 0
    with Session(session.id, client) as again:
        assert said(again) == before


def with_deep_arguments(data):
    """Return a session's file with the first answer as an older program took it: calls and all."""
    arguments = {}
    for _ in range(DEPTH_MAX + 5):
        arguments = {"a": arguments}

    def older(row):
        record = msgspec.msgpack.decode(row.body)
        call = {"call_id": "c", "name": "x", "arguments": arguments}
        record["message"]["tool_calls"] = [call]
        return msgspec.structs.replace(row, body=msgspec.msgpack.encode(record))

    seal, changed, is_done = Seal(), MAGIC, False
    *parts, _end = map(part_of, read_frames(io.BytesIO(data)))
    for part in parts:
        if isinstance(part, RecordsPart) and not is_done:
            said = next(row for row in part.rows if row.kind == "said")
            rows = tuple(older(row) if row is said else row for row in part.rows)
            part, is_done = RecordsPart(rows=rows), True  # noqa: PLW2901 - what is written
        frame = frame_of(part)
        seal.add(frame)
        changed += frame
    return changed + frame_of(seal.end())


def test_a_record_that_nests_too_deep_is_set_aside(agent, scripted, run, client):
    """What an older program took, and today's can't bear, is named; the session goes on."""
    session = agent(scripted("one", default="fine"))
    session.run("First.", timeout=TURN_S)
    data = with_deep_arguments(run("export", session.id).stdout)
    done = run("import", "-", "--as", "deep", stdin=data)
    assert done.returncode == 0, done.stderr
    with Session("deep", client) as again:
        result = again.run("Second.", timeout=TURN_S)
        reported = [
            one for one in durable(client, "deep").values() if one.kind == "record_set_aside"
        ]

        assert [(one.what, one.why) for one in reported] == [("said", TOO_DEEP)]
        assert result.text == "fine"
        assert said(again) == [("user", "First."), ("user", "Second."), ("assistant", "fine")]
