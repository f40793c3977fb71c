"""The journal's own files: cut, flipped, ruined, edited, deleted and replaced."""

import os
import random
import shutil
import sqlite3

import pytest
from structlog.testing import capture_logs

from supervisor.adapters.journal.base import JournalFailed, JournalRefused
from supervisor.adapters.journal.operations import AcceptCommand
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import wal_of
from supervisor.adapters.journal.repair.wal import FRAME, HEADER, read_log
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SqliteJournal
from tests.fault.cases.journals import (
    SESSIONS,
    body_of,
    damage,
    fill,
    fill_one,
    flip,
    look,
    name_of,
    with_journal,
)

pytestmark = [pytest.mark.fault, pytest.mark.slow]

IS_FULL = "FAULT_FULL" in os.environ
FLIPS = 400 if IS_FULL else 40
CUTS = 400 if IS_FULL else 25
CUT_EVERY_BYTES = 1 if IS_FULL else 97
LONG_S = 1800.0 if IS_FULL else 120.0
"""For thousands of journals that are opened one after the other."""
NAMES = {*range(24), *range(60, 72)}
"""Bytes of the file's header that say what file it is, which is asked before the log is read."""
FRAME_BYTES = FRAME.size + PAGE_BYTES
MIDDLE = HEADER.size + 450 * FRAME_BYTES
"""Where a frame begins in the midst of the log that a crash left."""


@pytest.fixture(autouse=True)
def audit():
    """No daemon is needed here."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A journal that was closed, one that was left by a crash, and what is in both."""
    folder = tmp_path_factory.mktemp("made")
    with_journal(folder / "closed", fill)
    with_journal(folder / "left", fill, is_crash=True)
    (whole, over), repaired = with_journal(shutil.copytree(folder / "left", folder / "try"), look)
    assert (len(whole), over, repaired.kept_at) == (SESSIONS, {}, None)
    assert wal_of(folder / "left" / JOURNAL_FILE).stat().st_size > 20 * FRAME_BYTES
    return folder, whole


@pytest.fixture
def state(tmp_path):
    """Return a function that gives a fresh copy of one of them, with the times of change."""

    def give(made, name):
        target = tmp_path / "state"
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(made[0] / name, target)

    return give


def is_good(whole, found, over, repaired):
    """Check that who goes on has everything, and that the others are ended aloud."""
    for name, has in found.items():
        records, answers, events = has
        assert records == whole[name][0], name
        assert answers == whole[name][1], name
        assert set(events) <= set(whole[name][2]), name
    assert set(found) | set(over) <= set(whole)
    if set(found) | set(over) != set(whole):  # gone with its index: then nobody is believed
        assert "sessions" in repaired.salvaged.unsure
        assert found == {}
    for reason in over.values():
        assert "the journal was damaged" in reason
        assert "can be read and exported" in reason
    if over:
        assert repaired.salvaged is not None
    return len(over)


def last_commit(place):
    """Return where the last commit of a log begins and ends, and check that the log ends there."""
    data = wal_of(place / JOURNAL_FILE).read_bytes()
    commits = [one.number for one in read_log(data).frames if one.commit]
    begin, end = (HEADER.size + (number + 1) * FRAME_BYTES for number in commits[-2:])
    assert end == len(data)
    return begin, end


def found_and_logged(place):
    """Return what is found in a journal, and what its opening has logged of its files."""
    with capture_logs() as logs:
        found = with_journal(place, look)
    logged = [one["event"] for one in logs if one["log_level"] in ("warning", "error")]
    return *found, logged


@pytest.mark.fault_case("F36")
@pytest.mark.timeout(LONG_S)
def test_log_that_is_cut_anywhere_in_its_last_commit_ends_before_it(tmp_path):
    """At every byte of a small journal, or one in 97: the last record is gone, which is logged."""
    made, place = tmp_path / "made", tmp_path / "state"
    with_journal(made, fill_one, is_crash=True)
    (whole, _), _ = with_journal(shutil.copytree(made, place), look)
    begin, end = last_commit(made)
    records, answers, events = whole[name_of(0)]
    before = {name_of(0): (records[:-1], [answers[0], *answers[2:], None], events)}
    for cut in {*range(begin, end, CUT_EVERY_BYTES), begin + 1, begin + FRAME.size, end - 1}:
        shutil.rmtree(place)
        shutil.copytree(made, place)
        os.truncate(wal_of(place / JOURNAL_FILE), cut)
        (found, over), repaired, logged = found_and_logged(place)
        assert (found, over) == (before, {}), cut
        assert repaired.torn_bytes == cut - begin
        assert logged == (["journal.tail_cut"] if cut > begin else []), cut


@pytest.mark.fault_case("F36")
def test_log_that_is_cut_anywhere_ends_with_the_last_good_commit(made, state):
    """At bytes of the last commit of a large log, by chance: all before it is there."""
    whole = made[1]
    begin, end = last_commit(state(made, "left"))
    chance = random.Random(1)
    cuts = sorted(
        {begin, begin + 1, begin + FRAME.size, end - 1, *chance.sample(range(begin, end), CUTS)}
    )
    expected = None
    for cut in cuts:
        place = state(made, "left")
        os.truncate(wal_of(place / JOURNAL_FILE), cut)
        (found, over), repaired = with_journal(place, look)
        expected = expected or found
        assert over == {}
        assert found == expected, cut
        assert repaired.torn_bytes == cut - begin
        assert (repaired.kept_at is not None) == (cut > begin)
    differing = [name for name in whole if whole[name] != expected[name]]
    assert len(differing) == 1  # the one whose last write was cut off


@pytest.mark.fault_case("F36")
@pytest.mark.parametrize("name", ["closed", "left"])
def test_file_that_is_cut_loses_no_session_in_silence(made, state, name):
    """Who misses nothing goes on; the others are ended and named; the damaged file is kept."""
    size = (made[0] / name / JOURNAL_FILE).stat().st_size
    chance, refused = random.Random(2), {}
    for cut in [
        1,
        99,
        100,
        PAGE_BYTES,
        PAGE_BYTES * 9,
        size - PAGE_BYTES,
        size - 1,
        *chance.sample(range(size), CUTS // 3),
    ]:
        place = state(made, name)
        path = place / JOURNAL_FILE
        before = path.stat()
        os.truncate(path, cut)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        try:
            (found, over), repaired = with_journal(place, look)
        except JournalRefused as refusal:  # nothing of it can be read
            refused[cut] = str(refusal)
            assert path.stat().st_size == cut
            continue
        is_good(made[1], found, over, repaired)
        if repaired.kept_at is None:  # the log has what was cut off
            assert (name, found) == ("left", made[1])
        else:
            assert repaired.kept_at.stat().st_size == cut
        assert with_journal(place, look)[0] == (found, over)  # and so it stays
    assert max(refused, default=0) < PAGE_BYTES * 4
    assert all("put a backup in its place" in said for said in refused.values())


@pytest.mark.fault_case("F36")
def test_file_that_is_emptied_is_refused(made, state):
    """There is nothing to go on with, and to begin anew is for a person to decide."""
    place = state(made, "closed")
    os.truncate(place / JOURNAL_FILE, 0)

    with pytest.raises(JournalRefused, match="put a backup in its place"):
        with_journal(place, look)


@pytest.mark.fault_case("F37")
@pytest.mark.parametrize("name", ["closed", "left"])
def test_flipped_bit_of_the_file_is_turned_back(made, state, name):
    """Wherever it is: nothing is lost, it is reported, and the file is kept as it was found."""
    place = state(made, name)
    path = place / JOURNAL_FILE
    log = wal_of(path).read_bytes() if name == "left" else b""
    in_log = read_log(log).pages(10**9)
    size = path.stat().st_size
    chance = random.Random(3)
    header = [*range(0, 100, 7), 18, 24, 28, 60, 68, 92, 100, 103, 105, 108]
    for at in [*header, *chance.sample(range(size), FLIPS)]:
        place = state(made, name)
        flip(place / JOURNAL_FILE, at, chance.randrange(8))
        (found, over), repaired = with_journal(place, look)
        assert (found, over) == (made[1], {}), at
        is_in_log = at // PAGE_BYTES + 1 in in_log and at not in NAMES
        assert repaired.bits == (not is_in_log), at


@pytest.mark.fault_case("F37")
@pytest.mark.timeout(LONG_S)
def test_flipped_bit_of_the_log_loses_no_session_in_silence(made, state):
    """In a header, a checksum or a page: it is turned back, or what it spoils is ended.

    Only in the last commit it looks like a write that was not finished. Where it can't be turned
    back there, this commit is lost, nothing else is, and it is logged.
    """
    chance = random.Random(4)
    begin, end = last_commit(state(made, "left"))
    place = state(made, "left")
    os.truncate(wal_of(place / JOURNAL_FILE), begin)
    before = with_journal(place, look)[0]
    middle = HEADER.size + end // FRAME_BYTES // 2 * FRAME_BYTES
    last = end - FRAME_BYTES
    places = [
        *range(0, HEADER.size, 3),
        *range(middle, middle + FRAME.size),
        *range(last, last + FRAME.size),
        *chance.sample(range(begin, end), FLIPS // 4),
        *chance.sample(range(end), FLIPS),
    ]
    ended = repaired_count = cut_count = 0
    for at in places:
        place = state(made, "left")
        flip(wal_of(place / JOURNAL_FILE), at, chance.randrange(8))
        (found, over), repaired, logged = found_and_logged(place)
        assert ("journal.tail_cut" in logged) == bool(repaired.torn_bytes)
        if repaired.torn_bytes:
            assert at >= begin
            assert (found, over) == before
            assert (repaired.torn_bytes, repaired.salvaged) == (end - begin, None)
            assert repaired.kept_at is not None
            cut_count += 1
            continue
        ended += is_good(made[1], found, over, repaired) > 0
        repaired_count += repaired.bits == 1
        assert repaired.kept_at is not None
    assert repaired_count > ended
    assert cut_count > 0


@pytest.mark.fault_case("F37")
@pytest.mark.parametrize(
    ("at", "count", "ends"),
    [
        (0, HEADER.size, SESSIONS),
        (16, 2, SESSIONS),
        (MIDDLE + 8, 8, 0),
        (MIDDLE, FRAME.size, SESSIONS),
        (MIDDLE - 200, 512, SESSIONS),
        (MIDDLE + FRAME.size, PAGE_BYTES, None),
    ],
    ids=["header", "two bytes of it", "salts", "frame's header", "sector", "page"],
)
def test_ruined_part_of_the_log_loses_no_session_in_silence(made, state, at, count, ends):
    """Where it is not known which pages stood there, everybody is ended; salts are made anew."""
    place = state(made, "left")
    damage(wal_of(place / JOURNAL_FILE), at, random.Random(6).randbytes(count))
    (found, over), mended, logged = found_and_logged(place)

    is_good(made[1], found, over, mended)
    assert ends in (len(over), None)
    assert mended.kept_at is not None
    assert ("journal.commits_lost" in logged) == (ends == SESSIONS)


@pytest.mark.fault_case("F37")
def test_young_journal_with_a_ruined_log_is_begun_anew_aloud(tmp_path):
    """All that it had may have been in the log: the files are kept, and the daemon starts."""
    place = tmp_path / "state"
    with_journal(place, fill_one, is_crash=True)
    damage(wal_of(place / JOURNAL_FILE), 0, random.Random(6).randbytes(HEADER.size))
    (found, over), repaired, logged = found_and_logged(place)

    assert (found, over) == ({}, {})
    assert repaired.kept_at is not None
    assert "journal.commits_lost" in logged


@pytest.mark.fault_case("F37")
def test_ruined_page_parks_only_who_misses_something(made, state):
    """Page after page is overwritten with rubbish: the others go on, and lose nothing."""
    size = (made[0] / "closed" / JOURNAL_FILE).stat().st_size // PAGE_BYTES
    chance = random.Random(5)
    ended = []
    pages = range(1, size + 1) if IS_FULL else [1, 2, 3, *chance.sample(range(4, size), FLIPS // 2)]
    for page in pages:
        place = state(made, "closed")
        damage(place / JOURNAL_FILE, (page - 1) * PAGE_BYTES, chance.randbytes(PAGE_BYTES))
        (found, over), repaired = with_journal(place, look)
        ended.append(is_good(made[1], found, over, repaired))
        assert repaired.salvaged.unknown == 0
    assert sorted(ended)[len(ended) // 2] <= 8  # a page of an index ends nobody
    assert sum(map(bool, ended)) > len(ended) // 4


@pytest.mark.fault_case("F37")
def test_what_somebody_else_wrote_is_no_damage(made, state):
    """A person who edits the file while no daemon has it is believed, and it is reported."""
    place = state(made, "closed")
    with sqlite3.connect(place / JOURNAL_FILE) as db:
        db.execute("UPDATE records SET body = x'00' WHERE session_id = 's-003'")
    db.close()
    (found, over), repaired = with_journal(place, look)
    again = with_journal(place, look)[1]

    assert over == {}
    assert found["s-003"][0] == [b"\0"] * 4
    assert repaired.edited_pages > 0
    assert (again.edited_pages, again.kept_at) == (0, None)


@pytest.mark.fault_case("F37")
def test_file_without_checksums_is_judged_by_sqlite(made, state):
    """One from before they were there, or whose checksums are damaged themselves."""
    place = state(made, "closed")
    sums = place / "journal.sums"
    flip(sums, PAGE_BYTES + 80, 3)
    (found, over), _ = with_journal(place, look)
    place = state(made, "closed")
    (place / "journal.sums").unlink()
    damage(place / JOURNAL_FILE, 5 * PAGE_BYTES, bytes(PAGE_BYTES))
    (rest, ended), repaired = with_journal(place, look)

    assert (found, over) == (made[1], {})
    is_good(made[1], rest, ended, repaired)
    assert repaired.salvaged is not None


@pytest.mark.fault_case("F38")
@pytest.mark.parametrize(
    "what", ["deleted", "replaced", "log deleted", "folder deleted", "at the end"]
)
def test_journal_that_is_gone_is_brought_back(tmp_path, what):
    """The next transaction finds it out and writes all of it to its place; a stranger stays."""
    state = tmp_path / "state"
    path = state / JOURNAL_FILE

    async def work(journal):
        await fill(journal)
        if what == "replaced":
            (state / "other").write_bytes(b"not ours")
            (state / "other").replace(path)
        elif what == "log deleted":
            wal_of(path).unlink()
        elif what == "folder deleted":
            shutil.rmtree(state)
        else:
            path.unlink()
        if what != "at the end":
            await journal.write(AcceptCommand("s-000", "c-9", b"late", 1))

    with_journal(state, work, is_crash=what != "at the end")
    (found, over), repaired = with_journal(state, look)
    strangers = [one.read_bytes() for one in state.glob("*.stranger-*")]

    assert (len(found), over, repaired.kept_at) == (SESSIONS, {}, None)
    assert found["s-007"][0] == [body_of(7, step) for step in range(4)]
    assert strangers == ([b"not ours"] if what == "replaced" else [])


@pytest.mark.fault_case("F38")
def test_open_journal_is_made_private_again(tmp_path, capsys):
    """That somebody makes it readable for others is logged, and undone by the next transaction."""
    path = tmp_path / "state" / JOURNAL_FILE

    async def work(journal):
        await fill(journal, steps=1)
        path.chmod(0o644)
        await journal.write(AcceptCommand("s-000", "c-9", b"late", 1))
        return path.stat().st_mode & 0o777

    assert with_journal(path.parent, work)[0] == 0o600
    assert "journal.mode_changed" in capsys.readouterr().out


@pytest.mark.fault_case("F28")
def test_second_daemon_touches_no_file_of_the_first(tmp_path):
    """It is refused before it has looked at anything, however much it would find to repair."""

    async def work(journal):
        await fill(journal, steps=1)
        other = SqliteJournal(tmp_path / "state")
        with pytest.raises(JournalFailed, match="another daemon"):
            await other.open()
        await journal.write(AcceptCommand("s-000", "c-9", b"late", 1))

    with_journal(tmp_path / "state", work)
