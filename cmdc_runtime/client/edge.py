"""The edge: every argument of a public call passes it before anything looks at it.

What comes from an application may be of a class of its own, whose methods may do and raise
anything. So a value of a subclass of ``str``, ``dict`` … goes on as the value of Python's own that
it holds, and an object that cannot even be asked for its class is refused by the argument's name.
An exit goes its way (``KeyboardInterrupt``, ``SystemExit``): it may be meant for the caller.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from cmdc_runtime.errors import UsageError
from cmdc_runtime.foreign import summary_of
from cmdc_runtime.plain import own, short

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K")


def guarded(call: Callable[P, T]) -> Callable[P, T]:
    """Return a method whose arguments come as ``taken`` returns them; options (``**``) as given."""
    function = cast(FunctionType, call)
    code = function.__code__
    places = code.co_varnames[1 : code.co_argcount]
    known = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

    def arguments(args: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[list[Any], Any]:
        end = len(places) + 1
        placed = [taken(value, name) for name, value in zip(places, args[1:], strict=False)]
        named = {
            name: taken(value, name) if name in known else value for name, value in given.items()
        }
        return [*args[:1], *placed, *args[end:]], named

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def awaited(*args: Any, **given: Any) -> Any:  # Any: as the method says
            args_taken, given_taken = arguments(args, given)
            return await function(*args_taken, **given_taken)

        return cast(Callable[P, T], awaited)

    @functools.wraps(call)
    def called(*args: P.args, **given: P.kwargs) -> T:
        args_taken, given_taken = arguments(args, given)
        answer: T = function(*args_taken, **given_taken)
        return answer

    return called


def edge(kind: type[K]) -> type[K]:
    """Guard every public method of a class that takes an argument, and how it is made."""
    for name in dir(kind):
        method = getattr(kind, name)
        if (name == "__init__" or not name.startswith("_")) and inspect.isfunction(method):
            code = method.__code__
            if code.co_argcount + code.co_kwonlyargcount > 1:
                setattr(kind, name, guarded(method))
    return kind


def taken(value: Any, what: str) -> Any:  # Any: whatever a caller has
    """Return an argument as a value of Python's own class, or an object that can be looked at.

    Raises:
        UsageError: it cannot be.

    """
    kept = own(value)
    try:
        kept.__class__  # noqa: B018 - what ``isinstance`` asks for
    except Exception as error:
        raise UsageError(
            f"{what}: {short(value)} can't be looked at: {summary_of(error)}"
        ) from error
    return kept


def parts_of(things: Iterable[Any], what: str, most: int) -> list[Any]:  # Any: as in ``taken``
    """Return what an iterable holds, each part as ``taken`` returns it.

    No part is looked at where there are more than ``most``: one that has no end is given up there.

    Raises:
        UsageError: it has more parts, it failed, or a part cannot be looked at.

    """
    try:
        parts = list(islice(things, most + 1))
    except Exception as error:  # its own code
        raise UsageError(f"{what}: {short(things)} failed: {summary_of(error)}") from error
    if len(parts) > most:
        raise UsageError(f"{what}: at most {most:,} are taken, got more")
    return [taken(part, f"{what}[{at}]") for at, part in enumerate(parts)]
