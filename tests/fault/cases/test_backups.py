"""A backup and a restore that are killed in the midst of it, and without room."""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.faults import DAEMON_ITSELF
from cmdc_runtime.requests import BackUp
from cmdc_runtime.testing import ScriptedModel
from supervisor import restore
from supervisor.adapters.journal import backup as copying
from supervisor.adapters.journal.operations import AppendRecords
from supervisor.adapters.journal.repair import repairing, restoring, sums, volume
from supervisor.adapters.journal.repair.repairing import COPY_FILE
from supervisor.adapters.journal.repair.restoring import REPLACEMENT
from supervisor.adapters.journal.repair.volume import RESERVE_FILE
from supervisor.adapters.journal.sqlite import JOURNAL_FILE
from supervisor.api.backups import Backups
from supervisor.restore import check_backup, replace_journal
from tests.fault.cases import test_repair
from tests.fault.cases.journals import SESSIONS, fill, look, name_of, with_journal

pytestmark = [pytest.mark.fault, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
KILLED = 9
RUN_S = 60.0
TURN_S = 60.0
LARGE = "x" * 60_000
PROMPTS = 8
"""Of so many characters: their pages take several steps."""
TRACED = {module.__file__ for module in (restore, copying, repairing, restoring, sums, volume)}


@pytest.fixture(autouse=True)
def audit():
    """Each test has a daemon of its own, or none."""


# --- the daemon is killed -------------------------------------------------------------------------


@pytest.fixture
def scripted_daemon(own_daemon, armed):
    """A daemon with a session that has said something, and how to have the daemon die."""
    own_daemon.start()
    with ScriptedModel([], default="fine") as model, own_daemon.client() as client:
        session = client.create_agent(model=model)
        for number in range(PROMPTS):
            session.run(f"{number} {LARGE}", timeout=TURN_S)
        yield own_daemon, session, functools.partial(armed, DAEMON_ITSELF)
        session.stop()


def backup(own_daemon, file):
    """Run the command, and return what became of it; without a daemon it gives up soon."""
    return subprocess.Popen(
        [CMDC, "backup", str(file), "--json"],
        env=own_daemon.environment() | {"CMDC_ADDRESS": str(own_daemon.address)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.fault_case("F96")
@pytest.mark.process
@pytest.mark.parametrize(
    ("point", "is_new"),
    [
        (f"{copying.COPIED}:1", False),
        (f"{copying.COPIED}:3", False),
        (f"{copying.WRITTEN}:1", False),
        (f"{copying.PLACED}:1", True),
    ],
)
def test_a_daemon_that_is_killed_leaves_the_former_backup_or_the_new_one(
    scripted_daemon, tmp_path, point, is_new
):
    """The client asks the next daemon, which makes it; nothing else is left anywhere."""
    own_daemon, session, plan = scripted_daemon
    folder = tmp_path / "backups"
    folder.mkdir()
    file = folder / "b"
    with backup(own_daemon, file) as first:
        _, err = first.communicate(timeout=RUN_S)
    assert first.returncode == 0, err
    former = file.read_bytes()
    session.run("One more.", timeout=TURN_S)
    plan(f"{point}=daemon")
    with backup(own_daemon, file) as asked:
        own_daemon.process.wait(RUN_S)
        of_the_dead = file.read_bytes()
        left = {one.name for one in folder.iterdir()}
        has_copy = (own_daemon.place / "state" / COPY_FILE).exists()
        own_daemon.start()
        out, err = asked.communicate(timeout=RUN_S)

    assert (of_the_dead != former) == is_new
    assert len(left) == (1 if is_new else 2)
    assert has_copy
    assert asked.returncode == 0, err
    assert {one.name for one in folder.iterdir()} == {"b"}
    assert not (own_daemon.place / "state" / COPY_FILE).exists()
    assert check_backup(file).seal.made_ms == json.loads(out)["made_ms"]
    assert session.run("And?", timeout=TURN_S).text == "fine"


# --- who restores is killed -----------------------------------------------------------------------


async def late(journal):
    """Write once more, so that the journal that is there has more than the backup."""
    for number in range(SESSIONS):
        await journal.write(AppendRecords(name_of(number), 0, [("said", b"late")], [], number=5))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A backup, and the journal that a crash has left since, with a log."""
    folder = tmp_path_factory.mktemp("made")
    state, file = folder / "left", folder / "b"
    with_journal(state, fill)
    with_journal(
        state, lambda journal: Backups(journal, (state,)).make(BackUp(file=str(file), force=True))
    )
    with_journal(state, late, is_crash=True)
    return file, state


@pytest.mark.fault_case("F96")
def test_a_restore_may_be_killed_at_any_moment(made, tmp_path, monkeypatch):
    """The next start has the journal that was there, or the backup, with the former one beside."""
    monkeypatch.setattr(test_repair, "TRACED", test_repair.TRACED | TRACED)
    file, left = made
    state = tmp_path / "state"

    def begin(state):
        return functools.partial(replace_journal, file, state, force=True)

    def restored():
        code, moments = test_repair.repair_until(shutil.copytree(left, state), begin=begin)
        assert code == 0
        return moments

    former, _ = with_journal(shutil.copytree(left, state), look)
    shutil.rmtree(state)
    moments = restored()
    backed_up, _ = with_journal(state, look)
    assert former != backed_up
    outcomes = []
    for moment in moments:
        shutil.rmtree(state)
        code, _ = test_repair.repair_until(shutil.copytree(left, state), moment, begin)
        assert code == KILLED
        found, repaired = with_journal(state, look)
        assert found in (former, backed_up), moment
        assert repaired.salvaged is None
        assert not repaired.bits
        outcomes.append(found == backed_up)
        names = {one.name for one in state.iterdir()}
        assert not names & {REPLACEMENT, "journal.replacing"}, moment
        kept = [one for one in state.glob("*.replaced-*") if not one.name.endswith("-wal")]
        assert len(kept) == outcomes[-1], moment
        if kept:
            again = tmp_path / f"again-{moment}"
            again.mkdir(mode=0o700)
            for end in ("-wal", ""):
                Path(f"{kept[0]}{end}").rename(again / f"{JOURNAL_FILE}{end}")
            assert with_journal(again, look)[0] == former, moment
    assert outcomes == sorted(outcomes)
    assert outcomes.count(True) > 3
    assert outcomes.count(False) > 3


@pytest.mark.fault_case("F96")
def test_a_restore_that_was_killed_may_be_done_again(made, tmp_path, monkeypatch):
    """It comes to the same as one that was not."""
    monkeypatch.setattr(test_repair, "TRACED", test_repair.TRACED | TRACED)
    file, left = made
    state = tmp_path / "state"

    def begin(state):
        return functools.partial(replace_journal, file, state, force=True)

    _, moments = test_repair.repair_until(shutil.copytree(left, state), begin=begin)
    right, _ = with_journal(state, look)
    for moment in moments:
        shutil.rmtree(state)
        test_repair.repair_until(shutil.copytree(left, state), moment, begin)
        replace_journal(file, state, force=True)
        assert list(state.glob("*.replaced-*[0-9]"))
        assert with_journal(state, look)[0] == right, moment


# --- there is no room -----------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """Return a disk of a few MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill_up(folder, left_bytes=0):
    """Leave so many bytes of a disk."""
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)) == 4096:
            pass
    os.truncate(folder / "ballast", (folder / "ballast").stat().st_size - left_bytes)


def back_up(state, file):
    """Make one backup without a daemon; return what it says, and whether the journal went on."""

    async def work(journal):
        try:
            return str(await Backups(journal, (state,)).make(BackUp(file=str(file))))
        except CmdcError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            await late(journal)

    return with_journal(state, work)[0]


@pytest.mark.fault_case("F34")
def test_a_full_disk_at_its_place_leaves_the_former_backup(made, small, tmp_path):
    """It is reported by the file's name; the journal is not concerned."""
    _, left = made
    state = shutil.copytree(left, tmp_path / "state")
    back_up(state, small / "b")
    former = (small / "b").read_bytes()
    fill_up(small, left_bytes=len(former) // 2)
    reported = back_up(state, small / "b")

    assert reported == f"StorageFull: {small}/b cannot be written: No space left on device"
    assert (small / "b").read_bytes() == former
    assert sorted(one.name for one in small.iterdir()) == ["b", "ballast"]


@pytest.mark.fault_case("F34")
def test_a_backup_that_the_journals_disk_has_no_room_for_is_not_begun(made, small, tmp_path):
    """It would take from sessions what they need; what it takes is said."""
    _, left = made
    state = shutil.copytree(left, small / "state")
    size = (state / JOURNAL_FILE).stat().st_size
    fill_up(small, left_bytes=10 * 2**20 + size)  # the reserve is made whole, and little is left
    reported = back_up(state, tmp_path / "b")

    assert reported.startswith("JournalFull: a backup takes "), reported
    assert "MiB on the disk of" in reported
    assert not (tmp_path / "b").exists()
    assert not (state / COPY_FILE).exists()


@pytest.mark.fault_case("F34")
def test_a_restore_without_room_changes_nothing(made, small):
    """It is reported, and the journal is there as before."""
    file, left = made
    state = shutil.copytree(left, small / "state")
    right = {one.name: one.read_bytes() for one in state.iterdir() if one.name != RESERVE_FILE}
    fill_up(small, left_bytes=file.stat().st_size // 2)
    with pytest.raises(CmdcError, match="there is no room"):
        replace_journal(file, state, force=True)

    now = {one.name: one.read_bytes() for one in state.iterdir() if one.name != RESERVE_FILE}
    assert now == right
