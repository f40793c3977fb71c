"""The requests that wait for an answer."""

import pytest

from cmdc_runtime.client.open_requests import Due, OpenRequests
from cmdc_runtime.errors import Overloaded

NOTHING = Due(frames=(), expired=())


def test_request_is_due_again_and_again():
    """An open request is sent every so often, until it is closed."""
    mailbox = OpenRequests(resend_every_s=2.0)

    assert mailbox.open("a", b"A", 0.0, None) == 2.0
    assert mailbox.due(1.9) == NOTHING
    assert mailbox.due(2.0) == Due(frames=(b"A",), expired=())
    assert mailbox.due(3.9) == NOTHING
    assert mailbox.next_s() == 4.0
    mailbox.close("a")
    assert (mailbox.due(9.0), mailbox.next_s(), len(mailbox)) == (NOTHING, None, 0)


def test_expired_request_is_reported_once():
    """At its deadline a request is given up and not sent again."""
    mailbox = OpenRequests(resend_every_s=2.0)
    mailbox.open("a", b"A", 0.0, 2.0)

    assert mailbox.due(2.0) == Due(frames=(), expired=("a",))
    assert mailbox.due(4.0) == NOTHING


def test_short_deadline_is_due_first():
    """A deadline before the next repetition is what a new request is due at."""
    assert OpenRequests(resend_every_s=2.0).open("a", b"A", 5.0, 0.5) == 5.5


def test_a_request_is_given_up_where_no_daemon_is_there():
    """From its opening or from when none was there; with one there, its deadline alone counts."""
    mailbox = OpenRequests(resend_every_s=2.0)
    mailbox.open("early", b"E", 0.0, 600.0, 30.0)
    mailbox.open("late", b"L", 20.0, 600.0, 30.0)
    mailbox.open("any", b"A", 0.0, None)

    assert mailbox.due(40.0).expired == ()
    assert mailbox.due(49.9, 20.0).expired == ()
    assert mailbox.due(50.0, 20.1).expired == ()
    assert mailbox.due(49.9, 15.0).expired == ("early",)
    assert mailbox.due(50.0, 15.0).expired == ("late",)
    assert mailbox.due(9_999.0, 15.0).expired == ()


def test_all_frames_count_as_sent():
    """What was sent to another daemon at once is not due a moment later."""
    mailbox = OpenRequests(resend_every_s=2.0)
    mailbox.open("a", b"A", 0.0, None)

    assert mailbox.all_frames(1.5) == (b"A",)
    assert mailbox.due(2.0) == NOTHING


def test_open_requests_are_bounded():
    """A client that waits for too many answers gets an error, and room is made by closing."""
    mailbox = OpenRequests(open_max=1)
    mailbox.open("a", b"A", 0.0, None)

    with pytest.raises(Overloaded):
        mailbox.open("b", b"B", 0.0, None)
    mailbox.close("a")
    mailbox.close("a")
    assert mailbox.open("b", b"B", 0.0, 1.0) == 1.0


def test_request_knows_whether_it_was_sent_again():
    """An error to a repeated one may only show the effect of the first."""
    mailbox = OpenRequests(resend_every_s=2.0)
    mailbox.open("a", b"A", 0.0, None)
    mailbox.open("b", b"B", 1.0, None)
    mailbox.due(2.0)

    assert mailbox.close("a")
    assert not mailbox.close("b")
    assert not mailbox.close("c")


def test_a_frame_that_is_changed_is_what_is_sent_again():
    """One that is not open, or that nobody wants changed, stays as it was."""
    mailbox = OpenRequests()
    mailbox.open("a", b"old", 0.0, None)

    assert mailbox.change("b", lambda _frame: b"new") is None
    assert mailbox.change("a", lambda _frame: None) is None
    assert mailbox.all_frames(1.0) == (b"old",)
    assert mailbox.change("a", lambda frame: frame + b"er") == b"older"
    assert mailbox.all_frames(2.0) == (b"older",)


def test_refusals_of_copies_from_before_a_change_are_kept_apart():
    """Each copy is refused once at most, so what comes beyond them is of the frame as it is."""
    mailbox = OpenRequests(resend_every_s=2.0)
    mailbox.open("a", b"A", 0.0, None)
    mailbox.due(2.0)
    mailbox.all_frames(3.0)
    assert not mailbox.is_of_earlier("a")

    assert mailbox.change("a", bytes.lower) == b"a"  # for the first of three refusals
    assert mailbox.due(5.0).frames == (b"a",)
    assert [mailbox.is_of_earlier("a") for _ in range(3)] == [True, True, False]
    assert not mailbox.is_of_earlier("b")
