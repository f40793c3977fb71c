"""Gives functions that are imported already the code of a mutant.

Where a mutant differs only inside of functions, its module and the tests need not be imported anew:
a hundredth of a second instead of a third. What runs at an import has run by then with right code,
so a mutant of that is none for here.
"""

import inspect
from collections.abc import Iterator, Sequence
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

Swap = tuple[FunctionType, CodeType]


def swaps(module: ModuleType, right: CodeType, wrong: CodeType) -> Sequence[Swap]:
    """Return which functions get which code, that the module is as if it had ``wrong``.

    None of them: it cannot be had so. ``right`` is the code that it was imported with.
    """
    found = []
    for ours, theirs in _differing(right, wrong):
        functions = [one for one in functions_of(module) if one.__code__ == ours]
        if not functions or ours.co_freevars != theirs.co_freevars:
            return ()
        found += [(one, theirs) for one in functions]
    return found


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions of a module, and those of its classes."""
    waiting: list[Any] = list(vars(module).values())
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case FunctionType():
                yield value
            case type() if value.__module__ == module.__name__:
                waiting += vars(value).values()
            case property():
                waiting += [value.fget, value.fset, value.fdel]
            case cached_property():
                waiting.append(value.func)
            case classmethod() | staticmethod():
                waiting.append(value.__func__)
            case _:
                pass
        if hasattr(value, "__dict__"):
            waiting.append(vars(value).get("__wrapped__"))


def _differing(right: CodeType, wrong: CodeType) -> list[tuple[CodeType, CodeType]]:
    """Return the functions that differ, outermost ones; none where something else does."""
    if right.co_flags & wrong.co_flags & inspect.CO_OPTIMIZED:
        return [(right, wrong)]
    if _without_functions(right) != _without_functions(wrong):
        return []
    pairs = zip(_inside(right), _inside(wrong), strict=True)
    found = [_differing(ours, theirs) for ours, theirs in pairs if ours != theirs]
    return [pair for inner in found for pair in inner] if all(found) else []


def _inside(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _without_functions(code: CodeType) -> tuple[CodeType, list[str]]:
    """Return what is run of a module or a class, and with which values; 0 is not False there."""
    values = ["" if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.replace(co_consts=()), values
