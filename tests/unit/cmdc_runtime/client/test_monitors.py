"""The books of a client's monitors: what is delivered, put aside, and asked again."""

import asyncio

import pytest

from cmdc_runtime.client import monitors as module
from cmdc_runtime.client.limits import EARLY_DOWNS_MAX, RENEWALS_PARALLEL_MAX
from cmdc_runtime.client.monitors import Monitors
from cmdc_runtime.errors import AccessDenied, DaemonUnavailable, Overloaded
from cmdc_runtime.reasons import Down, Normal
from cmdc_runtime.requests import Demonitor, Monitor, Monitored
from cmdc_runtime.wire.frames import Notify


class Watcher:
    """Hears of one monitor."""

    def __init__(self):
        self.heard = []
        self.error = None

    def on_down(self, down):
        self.heard.append(down.incarnation)

    def on_end(self, error):
        self.error = error


class FakeDaemon:
    """A daemon that answers when the test says so."""

    def __init__(self):
        self.books = Monitors(self)
        self.asked = []
        self.open = []
        self.sent = []
        self.tasks = []

    async def ask(self, request):
        self.asked.append(request)
        answer = asyncio.get_running_loop().create_future()
        self.open.append(answer)
        return await answer

    def notify(self, request):
        self.sent.append(request)

    def spawn(self, work):
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def answer(self, since=0, error=None):
        """Answer all that is open, and let what follows be done."""
        await quiet()
        for one in self.open:
            if error is None:
                one.set_result(Monitored(since=since))
            else:
                one.set_exception(error)
        self.open = []
        await quiet()

    async def set(self, ref="r", *, persistent=True, since=3):
        """Set a monitor that watches from ``since``; return who hears of it."""
        watcher = Watcher()
        adding = asyncio.create_task(self.books.add("s", watcher, ref=ref, persistent=persistent))
        await self.answer(since)
        await adding
        self.asked.clear()
        return watcher

    def send(self, incarnation, seq, after, *, ref="r", restarting=True, **numbered):
        """Let a notice arrive."""
        down = Down(
            ref=ref,
            session_id="s",
            reason=Normal(),
            incarnation=incarnation,
            restarting=restarting,
        )
        self.books.take(Notify(down=down, seq=seq, after=after, **numbered))


async def quiet():
    """Let the loop do what it can do now."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(scenario):
    """Run a coroutine function with a daemon, and end what it leaves behind."""

    async def whole():
        daemon = FakeDaemon()
        result = await scenario(daemon)
        for task in daemon.tasks:
            task.cancel()
        await asyncio.gather(*daemon.tasks, return_exceptions=True)
        return result

    return asyncio.run(whole())


def test_each_notice_is_delivered_once():
    """In the order of their numbers; what is known already is passed over."""

    async def work(daemon):
        watcher = await daemon.set()
        for incarnation, seq, after in ((1, 5, 3), (1, 5, 3), (2, 8, 5), (1, 5, 3)):
            daemon.send(incarnation, seq, after)
        return watcher.heard, daemon.asked

    assert run(work) == ([1, 2], [])


def test_what_comes_before_the_answer_waits_for_it():
    """Only the answer says from where the monitor watches."""

    async def work(daemon):
        watcher = Watcher()
        adding = asyncio.create_task(daemon.books.add("s", watcher, ref="r", persistent=False))
        await quiet()
        daemon.send(4, 9, 8)
        before = list(watcher.heard)
        await daemon.answer(8)
        await adding
        return before, watcher.heard, len(daemon.books)

    assert run(work) == ([], [4], 0)


def test_a_notice_behind_a_loss_is_not_delivered():
    """The monitor is set again from where it was, and all come in their order."""

    async def work(daemon):
        watcher = await daemon.set()
        daemon.send(1, 5, 3)
        daemon.send(3, 9, 7)
        await quiet()
        (renewal,) = daemon.asked
        before = list(watcher.heard)
        daemon.send(2, 7, 5)
        daemon.send(3, 9, 7)
        await daemon.answer()
        return before, renewal.since, watcher.heard

    assert run(work) == ([1], 5, [1, 2, 3])


def test_what_has_no_record_waits_behind_a_loss():
    """It does not come again, so it is kept until those before it have come."""

    async def work(daemon):
        watcher = await daemon.set()
        daemon.send(3, None, 7)
        await quiet()
        daemon.send(2, 7, 3)
        before = list(watcher.heard)
        await daemon.answer()
        return before, watcher.heard

    assert run(work) == ([2], [2, 3])


def test_what_is_put_aside_is_bounded():
    """What does not fit comes again."""

    async def work(daemon):
        watcher = await daemon.set()
        for number in range(EARLY_DOWNS_MAX + 5):
            daemon.send(number + 2, number + 8, number + 7)
        await quiet()
        kept = len(daemon.books._entries["r"].early)
        daemon.send(1, 7, 3)
        await daemon.answer()
        return kept, len(watcher.heard)

    assert run(work) == (EARLY_DOWNS_MAX, EARLY_DOWNS_MAX + 1)


def test_an_end_that_another_daemon_reports_again_is_delivered_once():
    """The first daemon could not record it, so the next one takes it for a new one."""

    async def work(daemon):
        watcher = await daemon.set()
        daemon.send(1, 5, 3)
        daemon.send(2, None, 5)
        daemon.send(2, None, 5)
        daemon.send(2, 9, 5)
        daemon.send(3, 12, 9)
        daemon.send(3, None, 12, restarting=False)
        return watcher.heard, len(daemon.books)

    assert run(work) == ([1, 2, 3, 3], 0)


def test_counts_that_differ_show_a_loss():
    """Every monitor is set again, each from its own place; equal counts show none."""

    async def work(daemon):
        daemon.books.reconcile(10, is_new=False)
        await daemon.set("r1", since=3)
        await daemon.set("r2", since=4)
        daemon.send(1, 5, 4, ref="r2", number=11)
        daemon.send(1, None, 0, ref="unknown", restarting=False, number=12)
        daemon.books.reconcile(12, is_new=False)
        await quiet()
        before = list(daemon.asked)
        daemon.books.reconcile(13, is_new=False)
        await quiet()
        return before, [(one.ref, one.since) for one in daemon.asked]

    assert run(work) == ([], [("r1", 3), ("r2", 5)])


def test_a_notice_that_comes_twice_hides_no_loss():
    """A number is heard once, and nothing behind one that is missing."""

    async def work(daemon):
        daemon.books.reconcile(10, is_new=False)
        await daemon.set("r1", since=3)
        daemon.send(1, 4, 3, ref="r1", number=11)
        daemon.send(1, 4, 3, ref="r1", number=11)
        daemon.books.reconcile(12, is_new=False)
        await quiet()
        return [(one.ref, one.since) for one in daemon.asked]

    assert run(work) == [("r1", 4)]


def test_another_daemon_hears_of_all_monitors():
    """Whatever it has counted; one that does not count shows no loss."""

    async def work(daemon):
        daemon.books.reconcile(10, is_new=False)
        await daemon.set(since=3)
        daemon.books.reconcile(None, is_new=False)
        await quiet()
        before = list(daemon.asked)
        daemon.books.reconcile(10, is_new=True)
        await quiet()
        return before, [one.since for one in daemon.asked]

    assert run(work) == ([], [3])


def test_a_monitor_that_is_being_set_is_set_again_later():
    """Its notice may be lost, too, and until it is answered nobody knows from where."""

    async def work(daemon):
        adding = asyncio.create_task(daemon.books.add("s", Watcher(), ref="r", persistent=False))
        await quiet()
        daemon.books.reconcile(10, is_new=False)
        await quiet()
        before = len(daemon.asked)
        await daemon.answer(6)
        await adding
        await quiet()
        return before, [one.since for one in daemon.asked]

    assert run(work) == (1, [None, 6])


def test_so_many_are_set_again_at_a_time():
    """However many monitors there are."""

    async def work(daemon):
        for number in range(RENEWALS_PARALLEL_MAX + 1):
            await daemon.set(f"r{number}")
        daemon.books.reconcile(10, is_new=True)
        await quiet()
        first = len(daemon.asked)
        await daemon.answer()
        return first, len(daemon.asked)

    assert run(work) == (RENEWALS_PARALLEL_MAX, RENEWALS_PARALLEL_MAX + 1)


@pytest.mark.parametrize("error", [DaemonUnavailable("away"), Overloaded("full")])
def test_a_renewal_that_fails_is_tried_again(monkeypatch, error):
    """The daemon may be busy, or gone again."""
    monkeypatch.setattr(module, "RENEW_RETRY_S", 0.0)

    async def work(daemon):
        watcher = await daemon.set()
        daemon.books.reconcile(10, is_new=True)
        await daemon.answer(error=error)
        daemon.send(1, 5, 3)
        await daemon.answer()
        return len(daemon.asked), watcher.heard, watcher.error

    assert run(work) == (2, [1], None)


def test_a_renewal_that_is_refused_ends_the_monitor():
    """Asking again would not help; who waits gets an error."""

    async def work(daemon):
        watcher = await daemon.set()
        error = AccessDenied("not you")
        daemon.books.reconcile(10, is_new=True)
        await daemon.answer(error=error)
        return watcher.error is error, len(daemon.books)

    assert run(work) == (True, 0)


def test_a_monitor_that_was_removed_is_not_set_again():
    """Where the frames crossed the daemon hears it once more; what is over needs no word."""

    async def work(daemon):
        await daemon.set("r1")
        await daemon.set("r2")
        await daemon.set("r3")
        daemon.books.drop("r3")
        daemon.books.reconcile(10, is_new=True)
        await quiet()
        daemon.books.drop("r1")
        daemon.send(1, 5, 3, ref="r2", restarting=False)
        await daemon.answer()
        return [one.ref for one in daemon.asked], [one.ref for one in daemon.sent]

    assert run(work) == (["r1", "r2"], ["r3", "r1", "r1"])


def test_a_monitor_that_cannot_be_set_is_forgotten():
    """And the daemon is notified, which may have set it."""

    async def work(daemon):
        adding = asyncio.create_task(daemon.books.add("s", Watcher(), ref="r", persistent=False))
        await daemon.answer(error=DaemonUnavailable("away"))
        with pytest.raises(DaemonUnavailable):
            await adding
        return len(daemon.books), daemon.sent

    assert run(work) == (0, [Demonitor(ref="r")])


def test_a_notice_of_a_forgotten_monitor_is_answered():
    """A persistent one would notify for ever; of any other it was the last word."""

    async def work(daemon):
        daemon.send(1, 5, 3)
        daemon.send(1, 5, 3, restarting=False)
        return daemon.sent

    assert run(work) == [Demonitor(ref="r")]


def test_removal_waits_for_the_daemon():
    """Nothing is delivered from the call on."""

    async def work(daemon):
        watcher = await daemon.set()
        removing = asyncio.create_task(daemon.books.remove("r"))
        await quiet()
        daemon.send(1, 5, 3)
        is_done = removing.done()
        await daemon.answer()
        await removing
        return is_done, watcher.heard, [type(one) for one in daemon.asked]

    assert run(work) == (False, [], [Demonitor])


def test_who_waits_learns_that_the_connection_failed():
    """And nothing is asked for any more."""

    async def work(daemon):
        watcher = await daemon.set()
        error = DaemonUnavailable("gone")
        daemon.books.fail(error)
        daemon.books.reconcile(10, is_new=True)
        await quiet()
        return watcher.error is error, daemon.asked

    assert run(work) == (True, [])


def test_the_first_request_is_for_a_new_monitor():
    """It says what kind, and no place: the daemon says from where it watches."""

    async def work(daemon):
        adding = asyncio.create_task(daemon.books.add("s", Watcher(), ref="r", persistent=True))
        await quiet()
        await daemon.answer(1)
        await adding
        return daemon.asked

    assert run(work) == [Monitor(session_id="s", ref="r", persistent=True)]
