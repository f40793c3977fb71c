"""Why something an application gave cannot be called as it will be: said before anything starts."""

import functools
import inspect


def call_problem(function: object, *given: str) -> str | None:
    """Say why something can't be called with so many values; ``given`` are their names, for people.

    A name is looked up where it is loaded, and what has no signature, as some functions of C, is
    taken at its word.
    """
    if not callable(function):
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*given)
    except TypeError as error:
        return f"is called with ({', '.join(given)}): {error}"
    return None


def yield_problem(function: object) -> str | None:
    """Say why what yields can't stand where a function that returns is called, or None.

    Its body would never run: a call of it only makes a generator. It may be a function, a method, a
    ``functools.partial`` of one, or an object that is called.
    """
    if isinstance(function, functools.partial):
        return yield_problem(function.func)
    is_routine = inspect.isroutine(function) or isinstance(function, type)
    call = function if is_routine else getattr(type(function), "__call__", None)  # noqa: B004
    for one in (function, call):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            return "it yields, so that a call of it would run nothing: return the values as a list"
    return None
