"""Whatever code of strangers ends with is one error, and can be reported."""

import asyncio
import contextlib
import sys

import pytest

from cmdc_runtime import foreign
from cmdc_runtime.foreign import ForeignError


class Mute(Exception):
    """Has no text, and no name that can be read."""

    def __str__(self):
        raise SystemExit


class Named(type):
    """A class whose name can't be read."""

    @property
    def __name__(cls):
        raise ValueError("no name")


class Nameless(Mute, metaclass=Named):
    """As little as there can be."""


class Text(str):
    """A text that runs code when it is used."""

    __slots__ = ()

    def isascii(self):
        raise KeyboardInterrupt

    __format__ = __len__ = encode = isascii


class Odd(Exception):
    """Its text is of a class of its own."""

    def __str__(self):
        return Text("odd")


class Noted(Exception):
    """Its notes can't be read."""

    @property
    def __notes__(self):
        raise ValueError("no notes")


ENDS = [
    ValueError("no"), StopIteration("x"), StopAsyncIteration("x"), SystemExit(3),
    KeyboardInterrupt(), GeneratorExit(), RecursionError("deep"), asyncio.CancelledError(),
    Mute(), Nameless(), Odd(), Noted(),
]  # fmt: skip
EACH = pytest.mark.parametrize("error", ENDS, ids=lambda error: error.__class__.__qualname__)


def raising(error):
    def work():
        raise error

    return work


@EACH
def test_every_error_can_be_reported(error):
    """Its text and its traceback are plain texts that can be written down."""
    reported, trace = foreign.summary_of(error), foreign.traceback_of(error)

    assert (type(reported), type(trace)) == (str, str)
    assert reported.encode()
    assert trace.encode()


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (ValueError("\ud800"), "ValueError: �"),
        (ValueError("x" * 9_000), "ValueError: " + "x" * foreign.TEXT_CHARS_MAX),
        (Mute(), "Mute: <Mute has no text: its __str__ failed>"),
        (Nameless(), "object: <object has no text: its __str__ failed>"),
        (Odd(), "Odd: odd"),
        (ForeignError(ValueError("no")), "ValueError: no"),
    ],
    ids=["text", "none", "utf-8", "long", "mute", "nameless", "odd", "wrapped"],
)
def test_an_error_is_reported_by_its_type_and_its_text(error, reported):
    """Bounded, and as valid UTF-8."""
    assert foreign.summary_of(error) == reported


@EACH
def test_a_call_ends_with_one_error(error):
    """Whatever it was, and it is kept."""
    with pytest.raises(ForeignError) as caught:
        foreign.call(raising(error))

    assert caught.value.error is error


@EACH
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_wait_ends_with_one_error(error, kind):
    """A coroutine that raises, and the call that was to make one."""

    async def later():
        await asyncio.sleep(0)
        raise error

    async def scenario():
        with pytest.raises(ForeignError) as caught:
            await foreign.wait(later if kind == "async" else raising(error))
        return caught.value.error

    found = asyncio.run(scenario())

    assert found is error or found.__cause__ is error  # Python's own word on a StopIteration


@pytest.mark.parametrize(
    ("error", "is_exit"),
    [(SystemExit(), True), (asyncio.CancelledError(), False), (ValueError(), False)],
)
def test_who_wants_to_end_the_program_is_kept_apart(error, is_exit):
    """A cancellation of its own is a failure like any other."""
    assert ForeignError(error).is_exit is is_exit


def test_what_returns_is_returned():
    """Awaited where it can be."""

    async def later():
        await asyncio.sleep(0)
        return 7

    async def scenario():
        return await foreign.wait(later), await foreign.wait(lambda: 8)

    assert (foreign.call(lambda: 6), asyncio.run(scenario())) == (6, (7, 8))


async def waits_on():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def catches_and_returns():
    with contextlib.suppress(asyncio.CancelledError):
        await waits_on()
    return "fine"


async def catches_and_fails():
    await catches_and_returns()
    raise TimeoutError("mine")


async def returns_at_once():
    asyncio.current_task().cancel()
    return "fine"


def is_no_coroutine():
    asyncio.current_task().cancel()
    return "fine"


async def is_cancelled_later():
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
    await asyncio.Event().wait()


async def awaits_one_that_was():
    task = asyncio.create_task(waits_on())
    await task


OWN = f"CancelledError: {foreign.OWN_CANCEL}"
FAILS = [
    (waits_on, OWN),
    (catches_and_fails, "TimeoutError: mine"),
    (is_cancelled_later, OWN),
    (awaits_one_that_was, OWN),
]


@pytest.mark.parametrize(("work", "said"), FAILS)
def test_code_that_cancels_its_own_task_has_failed(work, said):
    """The task that waits for it is none of its own, and goes on."""

    async def scenario():
        with pytest.raises(ForeignError) as caught:
            await foreign.wait(work)
        await asyncio.sleep(0)
        return str(caught.value), asyncio.current_task().cancelling()

    assert asyncio.run(scenario()) == (said, 0)


@pytest.mark.parametrize("work", [catches_and_returns, returns_at_once, is_no_coroutine])
def test_code_that_keeps_its_own_cancellation_has_returned(work):
    """And what comes behind it is not cancelled."""

    async def scenario():
        value = await foreign.wait(work)
        await asyncio.sleep(0)
        return value, asyncio.current_task().cancelling()

    assert asyncio.run(scenario()) == ("fine", 0)


def test_a_bound_ends_who_has_kept_its_own_cancellation():
    """It is around the code, so nothing that the code has asked of its task is taken for it."""

    async def hangs():
        await catches_and_returns()
        await asyncio.Event().wait()

    async def scenario():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await foreign.wait(hangs)

    asyncio.run(scenario())


async def keeping():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "kept"


async def turning():
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        sys.exit("no")


@pytest.mark.parametrize("work", [asyncio.Event().wait, keeping, turning])
def test_our_cancellation_goes_its_way(work):
    """Whatever the code makes of it."""

    async def scenario():
        task = asyncio.create_task(foreign.wait(work))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(scenario())


def test_a_loop_that_is_gone_is_no_failure():
    """The task is thrown away, its code with it."""
    seen = []

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closed")

    async def scenario():
        waiting = foreign.wait(forever)
        waiting.send(None)
        waiting.close()

    asyncio.run(scenario())

    assert seen == ["closed"]


def test_what_was_kept_is_reported_without_running_code():
    """The texts of an error are made once, where the code that raised it ran."""
    reported = []

    class Counted(Exception):
        def __str__(self):
            reported.append(1)
            return "counted"

    with pytest.raises(ForeignError) as caught:
        foreign.call(raising(Counted()))
    reported.clear()
    failed = caught.value

    assert foreign.summary_of(failed) == str(failed) == "Counted: counted"
    assert foreign.text_of(failed, 5) == "count"
    assert foreign.traceback_of(failed).endswith("Counted: counted\n")
    assert not reported


@pytest.fixture
def hides():
    """Have ``secret`` hidden, as in the process of an agent."""
    foreign.hide_by(lambda text: text.replace("secret", "***"))
    yield
    foreign.hide_by(None)


@pytest.mark.usefixtures("hides")
def test_no_text_of_a_failure_has_what_is_hidden():
    """Whichever is made of it: its own, with its type, a traceback with causes and notes."""
    error = ValueError("a secret")
    error.__cause__ = KeyError("its secret cause")
    error.add_note("a secret note")
    with pytest.raises(ForeignError) as caught:
        foreign.call(raising(error))
    failed = caught.value

    assert (failed.text, str(failed), repr(failed)) == (
        "a ***",
        "ValueError: a ***",
        "ForeignError('ValueError: a ***')",
    )
    for one in (failed, error):
        assert foreign.text_of(one) == "a ***"
        assert foreign.summary_of(one) == "ValueError: a ***"
        assert "its *** cause" in foreign.traceback_of(one)
        assert "secret" not in foreign.traceback_of(one)
    assert foreign.bare_text_of(error) == "a secret"


@pytest.mark.usefixtures("hides")
def test_a_text_is_hidden_before_it_is_cut():
    """What is left of a secret at a cut would not be known."""
    error = ValueError("to secret")

    assert foreign.text_of(error, 6) == "to ***"
    assert foreign.text_of(error, 4) == "to *"
    assert foreign.traceback_of(error, 5) == " ***\n"


def test_nothing_is_reported_where_nobody_can_say_what_is_hidden():
    """To report a failure must not fail."""

    def broken(_text):
        raise KeyError("no")

    foreign.hide_by(broken)
    try:
        assert foreign.summary_of(ValueError("a secret")) == "ValueError: [hidden]"
    finally:
        foreign.hide_by(None)
    assert foreign.summary_of(ValueError("a secret")) == "ValueError: a secret"
