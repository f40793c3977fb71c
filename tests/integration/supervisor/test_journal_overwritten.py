"""A journal whose files somebody cuts, overwrites or deletes in place while it is open."""

import asyncio
import os
import shutil

import pytest
from structlog.testing import capture_logs

from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.wire.codec import decode_as
from supervisor.adapters.journal.base import JournalFailed, SessionRow
from supervisor.adapters.journal.operations import AcceptCommand, CreateSession, LoadSession
from supervisor.adapters.journal.repair.sums import PAGE_BYTES
from supervisor.adapters.journal.repair.volume import wal_of
from supervisor.adapters.journal.sqlite import JOURNAL_FILE, SUMS_FILE, SqliteJournal

SESSIONS = 12
BODY = b"x" * 600
BEFORE, AFTER = 40, 5
"""Commands of each test before the damage, and behind it."""
ZEROS, RUBBISH = bytes(64), os.urandom(64)


def name_of(number):
    return f"s-{number % SESSIONS:02}"


async def begin(journal):
    """Start the sessions."""
    for number in range(SESSIONS):
        await journal.write(
            CreateSession(SessionRow(session_id=name_of(number), created_ms=1, spec=b"spec"))
        )


async def accept(journal, numbers, kind="c"):
    """Accept a command for each number; return those that were acknowledged."""
    return [
        (
            name_of(one),
            (await journal.write(AcceptCommand(name_of(one), f"{kind}-{one}", BODY, 1))).seq,
        )
        for one in numbers
    ]


async def checkpoint(journal, number):
    """Accept a command, and bring the log into the file behind it."""
    journal._store._commits_max = 0
    taken = await accept(journal, [number], "k")
    journal._store._commits_max = 4_096
    return taken


async def found_in(state, tmp_path):
    """Return what the next daemon finds: live commands by session, and who is over and why."""
    copy = tmp_path / "after"
    shutil.copytree(state, copy)  # as a kill leaves it: nothing was closed
    journal = SqliteJournal(copy)
    await journal.open()
    seen, over = [], {}
    for number in range(SESSIONS):
        stored = await journal.read(LoadSession(name_of(number)))
        if stored.row.ended_ms is not None:
            over[name_of(number)] = str(decode_as(AnyReason, stored.row.reason))
        else:
            seen += [(name_of(number), one.seq) for one in stored.unanswered]
    await journal.close()
    return sorted(seen), over


def play(tmp_path, harm, *, checkpoints=(), goes_on=None):
    """Do harm between commits; return what was acknowledged, what is found, who is over, the log.

    ``checkpoints`` are the commits behind which the log is brought into the file; ``goes_on`` is
    what is done first behind the harm.
    """
    state = tmp_path / "state"

    async def main():
        journal = SqliteJournal(state)
        await journal.open()
        await begin(journal)
        taken = []
        for one in range(BEFORE):
            taken += await accept(journal, [one])
            if one in checkpoints:
                taken += await checkpoint(journal, one)
        harm(state / JOURNAL_FILE, journal._store)
        if goes_on is not None:
            await goes_on(journal)
        taken += await accept(journal, range(BEFORE, BEFORE + AFTER))
        found = await found_in(state, tmp_path)
        await journal.close()
        return sorted(taken), *found

    with capture_logs() as entries:
        taken, seen, over = asyncio.run(main())
    return taken, seen, over, [one["event"] for one in entries]


def cut(place):
    """Return harm that cuts the log at a part of its size."""

    def harm(path, store):
        os.truncate(wal_of(path), int(len(store._log) * place))

    return harm


def write(place, data):
    """Return harm that writes into the log at a part of its size."""

    def harm(path, store):
        with wal_of(path).open("r+b") as file:
            file.seek(int(len(store._log) * place))
            file.write(data)

    return harm


HARMS = {
    "cut to nothing": cut(0.0),
    "cut in the midst": cut(0.5),
    "cut at its end": cut(0.999),
    "header of zeros": write(0.0, ZEROS),
    "zeros in the midst": write(0.5, 100 * ZEROS),
    "rubbish near its end": write(0.99, RUBBISH),
    "rubbish behind it": write(1.0, RUBBISH),
}


@pytest.mark.parametrize("checkpoints", [(), (20,)], ids=["fresh", "begun anew"])
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_log_that_is_changed_in_place_loses_nothing(tmp_path, harm, checkpoints):
    """Everything that was acknowledged before and behind it is there for the next daemon."""
    taken, seen, over, said = play(tmp_path, harm, checkpoints=checkpoints)

    assert (seen, over) == (taken, {})
    assert ("journal.log_written_again" in said) == (harm is not HARMS["rubbish behind it"])


def test_read_behind_a_cut_log_is_as_before(tmp_path):
    """Who only asks gets what was acknowledged, and it is put right for the next daemon."""
    loaded, between = [], []

    async def read(journal):
        loaded.extend([await journal.read(LoadSession(name_of(one))) for one in range(SESSIONS)])
        (tmp_path / "read").mkdir()
        between.extend(await found_in(tmp_path / "state", tmp_path / "read"))

    taken, seen, over, _ = play(tmp_path, cut(0.3), goes_on=read)

    assert sum(len(one.unanswered) for one in loaded) == BEFORE
    assert (len(between[0]), between[1]) == (BEFORE, {})
    assert (seen, over) == (taken, {})


def test_log_that_is_cut_before_the_commit_is_acknowledged(tmp_path):
    """What was just written is looked for in the file; where it is not, nobody hears yes."""
    state, refused = tmp_path / "state", []

    async def main():
        journal = SqliteJournal(state)
        await journal.open()
        await begin(journal)
        taken = await accept(journal, range(BEFORE))
        look = journal._store._volume.log_status

        def late():
            os.truncate(wal_of(state / JOURNAL_FILE), 1_000)
            return look()

        journal._store._volume.log_status = late
        try:
            await accept(journal, [BEFORE])
        except JournalFailed as error:
            refused.append(str(error))
        has_failed = journal.health.has_failed
        found = await found_in(state, tmp_path)
        await journal.close()
        return sorted(taken), has_failed, *found

    taken, has_failed, seen, over = asyncio.run(main())

    assert (has_failed, len(refused)) == (True, 1)
    assert "does not have what was just written" in refused[0]
    assert (seen, over) == (taken, {})


def before_the_next_look(journal, harm):
    """Do harm once, right before the journal looks at its log behind a commit."""
    volume = journal._store._volume
    look = volume.log_status

    def late():
        harm()
        volume.log_status = look
        return look()

    volume.log_status = late


def test_newest_page_that_is_changed_before_the_commit_is_acknowledged(tmp_path):
    """It is put right at once: the time of change is that of our own write."""
    state = tmp_path / "state"

    async def main():
        journal = SqliteJournal(state)
        await journal.open()
        await begin(journal)
        taken = await accept(journal, range(BEFORE))
        log = wal_of(state / JOURNAL_FILE)
        before = log.read_bytes()

        def change():
            with log.open("r+b") as file:
                file.seek(len(before) - PAGE_BYTES)
                file.write(ZEROS)

        before_the_next_look(journal, change)
        taken += await accept(journal, [BEFORE])
        is_right = log.read_bytes().startswith(before)
        found = await found_in(state, tmp_path)
        await journal.close()
        return sorted(taken), is_right, *found

    taken, is_right, seen, over = asyncio.run(main())

    assert is_right
    assert (seen, over) == (taken, {})


def test_journal_deleted_before_the_commit_is_acknowledged(tmp_path):
    """It is at its place again when its caller hears yes."""
    state = tmp_path / "state"

    async def main():
        journal = SqliteJournal(state)
        await journal.open()
        await begin(journal)
        taken = await accept(journal, range(BEFORE))

        def remove():
            for path in state.glob("journal.sqlite3*"):
                path.unlink()

        before_the_next_look(journal, remove)
        taken += await accept(journal, [BEFORE])
        found = await found_in(state, tmp_path)
        await journal.close()
        return sorted(taken), *found

    taken, seen, over = asyncio.run(main())

    assert (seen, over) == (taken, {})


def test_file_that_is_overwritten_is_written_again_from_the_log(tmp_path):
    """As far as its pages are there."""

    def harm(path, store):
        pages = [one for one in store._log.pages() if one * PAGE_BYTES <= path.stat().st_size]
        assert pages
        with path.open("r+b") as file:
            for page in pages:
                file.seek((page - 1) * PAGE_BYTES)
                file.write(os.urandom(PAGE_BYTES))

    taken, seen, over, said = play(tmp_path, harm, checkpoints=[20])

    assert (seen, over) == (taken, {})
    assert "journal.overwritten" in said


def ruin_page(path):
    """Overwrite a page in the midst."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // PAGE_BYTES // 2 * PAGE_BYTES)
        file.write(os.urandom(PAGE_BYTES))


def edit_body(path):
    """Overwrite a part of a body, so that SQLite finds nothing wrong."""
    at = path.read_bytes().index(BODY, path.stat().st_size // 2)
    with path.open("r+b") as file:
        file.seek(at + 8)
        file.write(b"y" * 64)


LOSSES = {"a page": ruin_page, "a body": edit_body}


@pytest.mark.parametrize("place", ["in place", "sums gone", "file gone", "directory gone"])
@pytest.mark.parametrize("harm", LOSSES.values(), ids=LOSSES)
def test_file_whose_pages_are_lost_parks_who_misses_something(tmp_path, harm, place):
    """Nothing is acknowledged any more, and the next daemon says who misses what."""
    state = tmp_path / "state"

    async def main():
        journal = SqliteJournal(state)
        await journal.open()
        await begin(journal)
        taken = await accept(journal, range(300))
        taken += await checkpoint(journal, 300)  # behind it all of them are in the file alone
        taken += await accept(journal, range(SESSIONS), "l")  # which are in the log alone
        harm(state / JOURNAL_FILE)
        if place == "file gone":
            (state / JOURNAL_FILE).unlink()
        elif place == "sums gone":
            (state / SUMS_FILE).unlink()
        elif place == "directory gone":
            shutil.rmtree(state)
        with pytest.raises(JournalFailed, match="overwritten by somebody else"):
            await accept(journal, [301])
        has_failed = journal.health.has_failed
        found = await found_in(state, tmp_path)
        await journal.close()
        return sorted(taken), has_failed, *found

    taken, has_failed, seen, over = asyncio.run(main())

    assert has_failed
    assert over
    assert all("the journal was damaged" in reason for reason in over.values())
    assert seen == [one for one in taken if one[0] not in over]


def test_log_does_not_grow_beyond_what_is_kept_of_it(tmp_path, monkeypatch):
    """Where it can't be brought into the file nothing is written behind the bound: it waits."""
    monkeypatch.setattr("supervisor.adapters.journal.sqlite.JOURNAL_WAL_BYTES_MAX", 50_000)
    sizes = []

    async def main():
        journal = SqliteJournal(tmp_path / "state")
        await journal.open()
        await begin(journal)
        for number in range(200):
            await accept(journal, [number])
            sizes.append(len(journal._store._log))
        await journal.close()

    asyncio.run(main())

    assert max(sizes) < 50_000 + 20 * PAGE_BYTES
    assert max(sizes) > 40_000


def test_log_that_a_burst_has_made_long_is_brought_into_the_file_and_cut(tmp_path, monkeypatch):
    """At once, so neither the disk nor the memory keeps it until somebody writes as much again."""
    monkeypatch.setattr("supervisor.adapters.journal.sqlite.JOURNAL_WAL_PAGES", 50)
    monkeypatch.setattr("supervisor.adapters.journal.sqlite.JOURNAL_WAL_KEPT_BYTES", 400_000)
    sizes = []

    async def main():
        journal = SqliteJournal(tmp_path / "state")
        await journal.open()
        await begin(journal)
        for number, size in enumerate((600_000, 300_000, 400_000, 1)):
            await journal.write(
                AcceptCommand(name_of(number), f"c-{number}", os.urandom(size), number)
            )
            log_file = wal_of(tmp_path / "state" / JOURNAL_FILE)
            sizes.append((len(journal._store._log), log_file.stat().st_size))
        await journal.close()

    asyncio.run(main())

    (cut, kept, cut_again, last) = sizes
    assert cut == cut_again == (0, 0)
    assert 300_000 < kept[0] <= kept[1] < 400_000
    assert 0 < last[0] < 50_000
