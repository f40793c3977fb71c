"""The timers and tasks of one owner."""

import asyncio

from structlog.testing import capture_logs

from supervisor.sessions.session_tasks import SessionTasks


def test_a_timer_goes_off_unless_it_is_cancelled():
    """Cancelling takes back every timer that was set so far."""

    async def main():
        called, done = [], asyncio.Event()
        tasks = SessionTasks("s1", on_bug=lambda: called.append("bug"))
        tasks.later(0, lambda: called.append("early"))
        tasks.cancel_timers()
        tasks.later(0, done.set)
        await done.wait()
        return called

    assert asyncio.run(main()) == []


def test_a_task_that_raises_is_logged_and_reported():
    """It is a bug of ours, which must neither hide nor harm another session."""

    async def fail():
        raise LookupError("a bug")

    async def main():
        reported = asyncio.Event()
        SessionTasks("s1", on_bug=reported.set).spawn(fail())
        await reported.wait()

    with capture_logs() as logged:
        asyncio.run(main())
    (entry,) = logged

    assert (entry["event"], entry["session_id"]) == ("session.failed", "s1")
    assert isinstance(entry["exc_info"], LookupError)


def test_a_task_that_ends_or_is_cancelled_is_no_bug():
    """Nobody hears of it."""

    async def main():
        called, ended = [], asyncio.Event()
        tasks = SessionTasks("s1", on_bug=lambda: called.append("bug"))

        async def end():
            ended.set()

        async def wait():
            await asyncio.Event().wait()

        tasks.spawn(end())
        tasks.spawn(wait())
        await ended.wait()
        return called  # the loop cancels the one that waits

    assert asyncio.run(main()) == []
