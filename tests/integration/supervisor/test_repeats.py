"""Starts and stops that are asked for again, by what the journal knows of them."""

import asyncio
import contextlib
from types import SimpleNamespace

import msgspec
import pytest

from cmdc_runtime.errors import DaemonUnavailable, StartFailed
from cmdc_runtime.reasons import Normal, Shutdown
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import StartSession, Supervision
from cmdc_runtime.wire.codec import encode
from supervisor.adapters.journal.base import SessionRow
from supervisor.adapters.journal.operations import CreateSession, EndSession
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.api.handlers import check_end, started_before
from supervisor.sessions.assignment import spec_bytes
from supervisor.sessions.sessions import Sessions

FAILED = StartFailedReason(stage="load", message="no such module")


def start(start_id="one"):
    return StartSession(
        session_id="s1",
        supervision=Supervision(),
        agent=msgspec.Raw(b"\xc0"),
        carries_code=False,
        start_id=start_id,
    )


@contextlib.asynccontextmanager
async def sessions_of(tmp_path, *, reason=None):
    """All sessions of a daemon whose journal has one, which has ended if there is a reason."""
    journal = SqliteJournal(tmp_path, durability="process")
    await journal.open()
    try:
        await journal.write(
            CreateSession(SessionRow(session_id="s1", created_ms=1, spec=spec_bytes(start())))
        )
        if reason is not None:
            await journal.write(EndSession("s1", encode(reason), 2))
        hub = SimpleNamespace(last_index=lambda _session_id: 0)
        yield Sessions(None, None, hub, journal, None, sessions_max=10)
    finally:
        await journal.close()


def asked(tmp_path, request, *, reason=None, live=None):
    """Return what is known of a start that may have been asked for before."""

    async def main():
        async with sessions_of(tmp_path, reason=reason) as sessions:
            if live is not None:
                started = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_soon(started.set_result, None)
                sessions.live["s1"] = SimpleNamespace(
                    spec=live, started=started, info=lambda: "its info"
                )
            return await started_before(sessions, request)

    return asyncio.run(main())


def test_start_of_a_live_session_is_waited_for(tmp_path):
    """The same start has the same session; another one has its own answer."""
    assert asked(tmp_path, start(), live=start()) == "its info"
    assert asked(tmp_path / "b", start("two"), live=start()) is None


def test_start_of_an_ended_session_is_not_done_again(tmp_path):
    """The answer is what became of it."""
    assert asked(tmp_path, start(), reason=Normal()).phase == "ended"
    assert asked(tmp_path / "b", start("two"), reason=Normal()) is None
    with pytest.raises(StartFailed, match="no such module"):
        asked(tmp_path / "c", start(), reason=FAILED)


def test_start_of_an_ended_subagent_is_done_again(tmp_path):
    """It was given nothing to do, and its parent wants one that lives; what failed has failed."""
    child = msgspec.structs.replace(start(), parent_id="s0")
    assert asked(tmp_path, child, reason=Shutdown(detail="the daemon died")) is None
    with pytest.raises(StartFailed, match="no such module"):
        asked(tmp_path / "b", child, reason=FAILED)
    assert asked(tmp_path / "c", child, live=child) == "its info"


def test_first_start_is_none_that_was_before(tmp_path):
    """A session that nobody goes on with is no answer, and neither is one that never was."""
    assert asked(tmp_path, start()) is None
    other = msgspec.structs.replace(start(), session_id="s2")
    assert asked(tmp_path / "b", other) is None


@pytest.mark.parametrize("is_written", [True, False])
def test_stop_is_answered_when_it_is_written_down(tmp_path, is_written):
    """Else the next daemon would go on with the session."""

    async def main():
        async with sessions_of(tmp_path, reason=Normal() if is_written else None) as sessions:
            await check_end(sessions, "s1")

    if is_written:
        asyncio.run(main())
        return
    with pytest.raises(DaemonUnavailable, match="session s1"):
        asyncio.run(main())
