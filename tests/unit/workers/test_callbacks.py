"""Whose bug an exception is that came out of a callback of the event loop."""

import asyncio
import json
from functools import partial

import pytest

from cmdc_runtime.errors import UsageError
from cmdc_runtime.plain import short
from workers import callbacks
from workers.builtin.filtering import Redaction
from workers.core.tags import TextPlace


class Sly:
    """What our own code stumbles over, being called with it."""

    @property
    def settled(self):
        raise LookupError("sly")


def refused():
    raise UsageError("so not")


def reports_of(*calls):
    """Return what the loop reports of callbacks, as they fail."""

    async def called():
        loop = asyncio.get_running_loop()
        reports = []
        loop.set_exception_handler(lambda _, context: reports.append(context))
        for call in calls:
            loop.call_soon(call)
        await asyncio.sleep(0)
        return reports

    reports = asyncio.run(called())
    assert len(reports) == len(calls)
    return reports


@pytest.mark.parametrize(
    ("call", "is_ours"),
    [
        (partial(TextPlace.after, None, "x"), True),
        (partial(short, *"xyz"), False),
        (partial(TextPlace().after, None), True),
        (partial(Redaction.feed, None, "x"), False),
        (partial(json.loads, "{"), False),
        (partial(int, "x"), False),
        (lambda: Sly().settled, False),
        (refused, False),
    ],
    ids=range(8),
)
def test_the_code_that_was_called_says_whose_it_is(call, is_ours):
    """Ours in Python; nobody's, a library's, a test's and a built-in's are not."""
    (context,) = reports_of(call)

    assert callbacks.is_ours(context) is is_ours


def test_what_is_no_callback_is_not_ours():
    """A task that nobody looked at, and a complaint."""
    error = LookupError("x")
    (context,) = reports_of(partial(TextPlace.after, None, "x"))
    del context["handle"]

    assert not callbacks.is_ours(context)
    assert not callbacks.is_ours({"message": "Unclosed"})
    assert not callbacks.is_ours({"message": "x", "exception": error, "task": None})
