"""The edge to code that is not ours: tools, plugins, callbacks and functions of an application.

``call`` and ``wait`` are how such code is run. Whatever it ends with, be it ``SystemExit``,
``KeyboardInterrupt``, ``GeneratorExit``, a cancellation of its own or an exception that cannot even
be printed, comes out as one ``ForeignError``: whoever called says whose failure that is. Its texts
are made there and then, since that runs code of the exception's class; to read them runs none.
``summary_of`` and ``traceback_of`` make text of any exception, and never fail. A cancellation by
whoever runs the task is none of the code's own, and goes its way.

These texts are shown: to the model, in events, records, logs. In a process that knows credentials
(``hide_by``) none of them is in such a text.

Such code may fork. The child that goes on in it comes back here, too, with everything that belongs
to this process: it ends there, and nobody hears of what it returned.

Nothing here knows of the event loop of one process: client, agent and tool host use it alike.
"""

import inspect
import os
import sys
import traceback
import types
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Final, TypeVar

from cmdc_runtime.plain import mended
from cmdc_runtime.redaction import HIDDEN

TEXT_CHARS_MAX: Final = 4_000
"""Of an exception's own text."""
TRACEBACK_CHARS_MAX: Final = 32_000
"""Of a traceback, whose end is kept: there it was raised."""
OWN_CANCEL: Final = "its own code has cancelled it"
"""The text of a cancellation that has none, and that nobody but the code itself asked for."""

_T = TypeVar("_T")
_hide: list[Callable[[str], str]] = []
"""What takes credentials out of a text, where this process knows any."""


class ForeignError(Exception):
    """Code that is not ours failed with ``error``; the text is what ``summary_of`` makes of it."""

    def __init__(self, error: BaseException) -> None:
        """Keep the error, and the texts made of it."""
        self.name = _name(error)
        self.text = text_of(error, None)
        """The exception's own, whole."""
        self.trace = traceback_of(error)
        super().__init__(summary_of(self))
        self.error = error

    @property
    def is_exit(self) -> bool:
        """Whether it is of the kind that ends a program, as ``sys.exit()`` does."""
        loop = sys.modules.get("asyncio")  # where nobody has loaded it, nothing was cancelled
        is_cancelled = loop is not None and isinstance(self.error, loop.CancelledError)
        return not isinstance(self.error, Exception) and not is_cancelled


def hide_by(hide: Callable[[str], str] | None) -> None:
    """Have every text that is made here pass ``hide`` from now on, in this process; None: as is."""
    _hide[:] = [] if hide is None else [hide]


def hidden(text: str) -> str:
    """Return a text of a failure, wherever it was made, without the credentials known here.

    Nothing of it is shown where they cannot be looked for.
    """
    try:
        for hide in _hide:
            text = hide(text)
    except Exception:  # noqa: BLE001 - it reads options of others, and who reports must not fail
        return HIDDEN
    return text


def text_of(value: object, chars_max: int | None = TEXT_CHARS_MAX) -> str:
    """Return ``str(value)``, cut unless None, as valid UTF-8; the words for it where it fails.

    Of a ``ForeignError`` it is the text of what it was raised for. No credential is in it.
    """
    if type(value) is ForeignError:
        return value.text[:chars_max]
    # Hidden before it is cut: what begins at the cut is known as a whole only.
    return (
        hidden(bare_text_of(value, None))[:chars_max] if _hide else bare_text_of(value, chars_max)
    )


def bare_text_of(value: object, chars_max: int | None = TEXT_CHARS_MAX) -> str:
    """Return ``text_of(value)`` with all that is in it, for who hides it by a rule of its own."""
    try:
        # A str of a class of its own would run its methods later on; a slice of it is a plain one.
        text = str.__getitem__(str(value), slice(chars_max))
    except BaseException:  # noqa: BLE001 - it runs a stranger's __str__
        text = f"<{_name(value)} has no text: its __str__ failed>"
    return mended(text)


def summary_of(error: BaseException, chars_max: int | None = TEXT_CHARS_MAX) -> str:
    """Return an exception's type, and its text if there is any."""
    name = error.name if type(error) is ForeignError else _name(error)
    text = text_of(error, chars_max)
    return f"{name}: {text}" if text else name


def traceback_of(error: BaseException, chars_max: int = TRACEBACK_CHARS_MAX) -> str:
    """Return the end of an exception's traceback; only its text where it has none to show."""
    if type(error) is ForeignError:
        return error.trace[-chars_max:]
    try:
        lines = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - its attributes are a stranger's code
        lines = summary_of(error)
    return mended(hidden(lines)[-chars_max:])


def call(work: Callable[[], _T]) -> _T:
    """Return what ``work`` returns.

    Raises:
        ForeignError: it raised anything at all.
    """
    pid = os.getpid()
    try:
        value = work()
    except ForeignError:  # of code further in
        raise
    except BaseException as error:
        end_copy(pid, error)
        raise ForeignError(error) from error
    end_copy(pid)
    return value


def end_copy(pid: int, error: BaseException | None = None) -> None:
    """End this process, unless it is the one of this ``pid``: as what it ended with would have.

    It is a fork that has come back to who called. It has their sockets and files, and must not use
    or tidy up any of them.
    """
    if os.getpid() == pid:
        return
    if type(error) is SystemExit:
        status = error.code or 0
        os._exit(status & 0xFF if isinstance(status, int) else 1)
    if error is not None:
        with suppress(BaseException):
            sys.stderr.write(traceback_of(error))
    os._exit(0 if error is None else 1)


async def wait(work: Callable[[], Awaitable[_T] | _T]) -> _T:
    """Return what ``work`` returns, awaited where it can be, in a guarded task of its own.

    So whoever cancels the calling task is known from the code that cancels its own: the latter has
    returned what it returns all the same, or has failed.

    Raises:
        ForeignError: it raised anything at all, or cancelled itself.
        CancelledError: somebody cancelled the calling task meanwhile, whatever the code made of it.
    """
    import asyncio  # noqa: PLC0415 - who awaits has it; a tool's own process does without

    from cmdc_runtime.guarded_task import GuardedTask  # noqa: PLC0415 - as above

    found: list[tuple[_T, None] | tuple[None, ForeignError]] = []
    task = GuardedTask(_kept(work, found))
    is_ended = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_ended = True
            task.end()
    if is_ended:
        raise asyncio.CancelledError
    value, failed = found[0] if found else (None, ForeignError(asyncio.CancelledError()))
    if failed is None:
        return value  # type: ignore[return-value]  # a pair's first is there without a second
    if isinstance(failed.error, asyncio.CancelledError) and not failed.error.args:
        named = asyncio.CancelledError(OWN_CANCEL)
        named.__cause__ = failed.error
        raise ForeignError(named)
    raise failed


async def _kept(
    work: Callable[[], Awaitable[_T] | _T],
    found: list[tuple[_T, None] | tuple[None, ForeignError]],
) -> None:
    """Put what becomes of ``work`` into ``found``, where no cancellation of the task reaches it."""
    try:
        value = call(work)
        is_awaited = call(lambda: inspect.isawaitable(value))  # it looks at a stranger's attributes
        result: _T = await _driven(value) if is_awaited else value  # type: ignore[arg-type, assignment]
        found.append((result, None))
    except ForeignError as failed:
        found.append((None, failed))


@types.coroutine
def _driven(value: Awaitable[_T]) -> Generator[object, None, _T]:
    """Return what an awaitable returns.

    A ``GeneratorExit`` that comes from outside, when the loop is gone, is none of its own.

    Raises:
        ForeignError: it raised anything at all, what was thrown into it included.
    """
    thrown: BaseException | None = None
    pid = os.getpid()
    steps = call(value.__await__)
    while True:
        try:
            step: object = steps.send(None) if thrown is None else steps.throw(thrown)
        except StopIteration as done:
            end_copy(pid)
            result: _T = done.value
            return result
        except BaseException as error:
            end_copy(pid, error)
            raise ForeignError(error) from error
        end_copy(pid)
        try:
            yield step
            thrown = None
        except GeneratorExit:
            with suppress(ForeignError):
                call(steps.close)
            raise
        except BaseException as error:  # noqa: BLE001 - thrown into the task: the awaitable has it
            thrown = error


def _name(value: object) -> str:
    try:
        return str.__getitem__(type(value).__name__, slice(TEXT_CHARS_MAX))
    except BaseException:  # noqa: BLE001 - a metaclass may be a stranger's too
        return "object"
