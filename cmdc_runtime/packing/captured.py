"""Tools that change what they have captured of their program: the change would be lost.

A tool's code travels by value with a copy of all that it uses, so what it changes of a list, a dict
or an object of its script it changes in another process, and nothing there reports it. This looks
at the source of a tool for such changes of captured names, and says so when the tool is attached.
It is careful: what it can't see for certain it lets pass.

A change is an assignment to an item or an attribute, a method of a built-in container that changes
it, or a method of a class of the script that does one of these to its own object.
"""

import ast
import inspect
import textwrap
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from cmdc_runtime.extensions.tool import FunctionTool, Tool
from cmdc_runtime.packing.origin import reference_of

CHANGING: Final[Mapping[type, frozenset[str]]] = {
    list: frozenset(
        {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "__setitem__"}
    ),
    dict: frozenset({"clear", "pop", "popitem", "setdefault", "update", "__setitem__"}),
    set: frozenset(
        {"add", "clear", "discard", "pop", "remove", "update"}
        | {"difference_update", "intersection_update", "symmetric_difference_update"}
    ),
    deque: frozenset({"append", "appendleft", "clear", "extend", "extendleft", "pop", "popleft"}),
    bytearray: frozenset({"append", "clear", "extend", "insert", "pop", "remove", "reverse"}),
}
"""The methods of containers that change them."""
DEPTH_MAX: Final = 3
"""Methods of methods that are looked into."""
_PACKAGE: Final = str(Path(__file__).parents[1])
_warned: Final[WeakValueDictionary[int, Tool]] = WeakValueDictionary()

Names: TypeAlias = Mapping[str, Any]  # Any: whatever a program gives a name to


class CapturedStateWarning(UserWarning):
    """A tool changes something of the program that attaches it, in another process."""


def warn_of_captured(tool: Tool) -> None:
    """Warn, once for each tool, of what it changes in vain."""
    if tool.isolation == "task" or _warned.get(id(tool)) is tool:
        return
    changed = None
    with suppress(OSError, TypeError, SyntaxError, ValueError, RecursionError):  # no source
        changed = next(_changes(tool), None)
    if changed is None:
        return
    _warned[id(tool)] = tool
    name, value = changed
    warnings.warn(
        f"tool {tool.name!r} changes {name!r}, {_called(value)} of this program: the tool runs in"
        " another process, on a copy, so the change is lost; decorate it with"
        ' @cmdc.tool(where="client") to have it run here',
        CapturedStateWarning,
        stacklevel=_stacklevel(),
    )


def _changes(tool: Tool) -> Iterator[tuple[str, object]]:
    if isinstance(tool, FunctionTool):
        yield from _changes_of(tool.__wrapped__, {}, DEPTH_MAX)
        return
    function = type(tool).execute
    if isinstance(function, FunctionType) and reference_of(type(tool)) is None:
        yield from _changes_of(function, {_first_parameter(function): tool}, DEPTH_MAX)


def _changes_of(
    function: Callable[..., Any],  # Any: whatever it takes
    bound: Names,
    depth: int,
) -> Iterator[tuple[str, object]]:
    """Yield what a function changes of the captured, by the names that it has in the source."""
    if depth == 0 or not isinstance(function, FunctionType):
        return
    captured = {**_captured(function), **bound}
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=base, ctx=ast.Store() | ast.Del()):
                yield from _container(base, captured)
            case ast.Attribute(value=base, ctx=ast.Store() | ast.Del()):
                yield from _own_object(base, captured)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, captured[name]) for name in names if name in captured)
            case ast.Call(func=ast.Attribute(value=base, attr=method)):
                yield from _called_on(base, method, captured, depth)
            case _:
                pass


def _captured(function: FunctionType) -> dict[str, Any]:
    """Return what a function has captured by closure, or finds among the globals of its module."""
    code = function.__code__
    own = {*code.co_varnames, *code.co_cellvars}
    found = {name: function.__globals__[name] for name in _globals_of(function) if name not in own}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has no value yet
            found[name] = cell.cell_contents
    return found


def _globals_of(function: FunctionType) -> Iterator[str]:
    return (name for name in function.__code__.co_names if name in function.__globals__)


def _container(base: ast.expr, captured: Names) -> Iterator[tuple[str, object]]:
    found = _resolved(base, captured)
    if found is not None and isinstance(found[1], tuple(CHANGING)):
        yield found


def _own_object(base: ast.expr, captured: Names) -> Iterator[tuple[str, object]]:
    found = _resolved(base, captured)
    if found is not None and _is_of_script(found[1]):
        yield found


def _called_on(
    base: ast.expr, method: str, captured: Names, depth: int
) -> Iterator[tuple[str, object]]:
    found = _resolved(base, captured)
    if found is None:
        return
    value = found[1]
    for kind, methods in CHANGING.items():
        if isinstance(value, kind) and method in methods:
            yield found
            return
    if _is_of_script(value):
        function = inspect.getattr_static(type(value), method, None)
        if isinstance(function, FunctionType):
            inner = {_first_parameter(function): value}
            if next(_changes_of(function, inner, depth - 1), None) is not None:
                yield found


def _resolved(base: ast.expr, captured: Names) -> tuple[str, object] | None:
    """Return what an expression of names and attributes is: its source, and the value."""
    if isinstance(base, ast.Name):
        return (base.id, captured[base.id]) if base.id in captured else None
    if not isinstance(base, ast.Attribute):
        return None
    owner = _resolved(base.value, captured)
    if owner is None or not _is_of_script(owner[1]):
        return None
    attributes = getattr(owner[1], "__dict__", {})
    return (ast.unparse(base), attributes[base.attr]) if base.attr in attributes else None


def _is_of_script(value: object) -> bool:
    """Say whether a value is an object of a class that travels as code, as that of a script."""
    kind = type(value)
    is_plain = kind.__module__ == "builtins" or isinstance(
        value, type | FunctionType | FunctionTool
    )
    return not is_plain and hasattr(value, "__dict__") and reference_of(kind) is None


def _first_parameter(function: FunctionType) -> str:
    names = function.__code__.co_varnames
    return names[0] if names else ""


def _called(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _stacklevel() -> int:
    """Return how far the nearest caller outside of this package is, for ``warnings.warn``."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
