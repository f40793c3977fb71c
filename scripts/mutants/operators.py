"""Small wrongs that a person could write: each mutant is a module with one of them in it.

What cannot matter is left alone: annotations, docstrings, what is logged, assertions of what must
hold anyway. A mutant is named by its function and what was changed there, not by a line number, so
that a name lives longer than the lines above it.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_OTHER_CALL: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNSAID: Final = frozenset({"log", "logger"})
_SHOWN_CHARS: Final = 60
TABLE: Final = "<table>"
"""In the place of a function's name: a table of the module, of which an entry can be missing."""

Change = Callable[[ast.AST], ast.AST]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong in a module; ``name`` is unique there."""

    name: str
    source: str
    place: "_Place"

    @property
    def line(self) -> int:
        """Where it is."""
        return self.place.line

    def tree(self) -> ast.Module:
        """Return the whole module with it. Thousands of mutants are named, a few made at a time."""
        module = ast.parse(self.source)
        _replace(module, self.place)
        return ast.fix_missing_locations(module)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node, where it stands, and what is put there."""

    path: tuple[tuple[str, int | None], ...]
    function: str
    what: str
    line: int
    make: Change


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its lines."""
    seen: Counter[str] = Counter()
    for place in _places(ast.parse(source), (), ""):
        name = f"{place.function}: {place.what}"
        seen[name] += 1
        named = name if seen[name] == 1 else f"{name} #{seen[name]}"
        yield Mutant(named, source, place)


def _places(
    node: ast.AST, path: tuple[tuple[str, int | None], ...], function: str
) -> Iterator[_Place]:
    if function == TABLE:
        for what, make in _entries(node):
            yield _Place(path, function, what, getattr(node, "lineno", 0), make)
    elif function:
        for what, make in _changes(node):
            yield _Place(path, function, what, getattr(node, "lineno", 0), make)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for at, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not _is_exempt(child):
                inner = _name_of(child, function)
                yield from _places(child, (*path, (name, at)), inner)


def _name_of(node: ast.AST, function: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"{function}.{node.name}" if function else node.name
    return TABLE if isinstance(node, ast.Dict) and not function else function


def _is_exempt(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.Expr):
        value = node.value
        if isinstance(value, ast.Constant):
            return True
        if isinstance(value, ast.Await):
            value = value.value
        return isinstance(value, ast.Call) and _is_log(value.func)
    return isinstance(node, ast.FunctionDef) and node.name in {"__repr__", "__str__"}


def _is_log(function: ast.AST) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in _UNSAID
    )


def _entries(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield each entry of a table as left out."""
    if isinstance(node, ast.Dict):
        for at, key in enumerate(node.keys):
            rest = [index for index in range(len(node.keys)) if index != at]
            less = _with(
                keys=[node.keys[index] for index in rest],
                values=[node.values[index] for index in rest],
            )
            yield f"{_text(key) if key else _text(node.values[at])} left out", less


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """Yield what can be wrong at a node: how it reads, and what makes it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            other = _COMPARED[type(op)]
            yield f"{_text(node)} with {other.__name__}", _with(ops=[other()])
        case ast.BoolOp(op=op):
            swapped = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{_text(node)} with {type(swapped).__name__}", _with(op=swapped)
        case ast.UnaryOp(op=ast.Not()):
            yield f"{_text(node)} without not", lambda one: one.operand  # type: ignore[attr-defined]
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _CALCULATED:
            if not _is_text(node):
                instead = _CALCULATED[type(operator)]
                yield f"{_text(node)} with {instead.__name__}", _with(op=instead())
        case _:
            yield from _statement_changes(node)


def _statement_changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if _is_whole(test):
            negated = ast.UnaryOp(op=ast.Not(), operand=test)
            yield f"if {_text(test)} negated", _with(test=negated)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield f"return {_text(value)} as None", _with(value=ast.Constant(value=None))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield f"{_text(node)} left out", lambda _one: ast.Pass()
        case ast.Raise(exc=ast.expr()):
            yield f"{_text(node)} left out", lambda _one: ast.Pass()
        case ast.Continue():
            yield "continue as break", lambda _one: ast.Break()
        case ast.Break():
            yield "break as continue", lambda _one: ast.Continue()
        case _:
            yield from _value_changes(node)


def _value_changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_CALL:
            other = ast.Name(id=_OTHER_CALL[name], ctx=ast.Load())
            yield f"{_text(node)} with {other.id}", _with(func=other)
        case ast.Constant(value=bool() as value):
            yield f"{value} as {not value}", _with(value=not value)
        case ast.Constant(value=int() | float() as number):
            yield f"{number} as {number + 1}", _with(value=number + 1)
        case ast.comprehension(ifs=[_, *_]):
            yield f"for {_text(node.target)} of all", _with(ifs=[])
        case _:
            return


def _with(**values: object) -> Change:
    """Return what changes fields of a node."""

    def change(node: ast.AST) -> ast.AST:
        for name, value in values.items():
            setattr(node, name, copy.deepcopy(value))
        return node

    return change


def _replace(tree: ast.Module, place: _Place) -> None:
    parent: ast.AST = tree
    *above, (name, at) = place.path
    for step, number in above:
        found = getattr(parent, step)
        parent = found if number is None else found[number]
    if at is None:
        setattr(parent, name, _placed(place.make(getattr(parent, name)), parent))
    else:
        listed = getattr(parent, name)
        listed[at] = _placed(place.make(listed[at]), listed[at])


def _placed(new: ast.AST, old: ast.AST) -> ast.AST:
    return ast.copy_location(new, old)


def _is_text(node: ast.AST) -> bool:
    """Say whether what is added is text, for which there is no minus."""
    texts = (ast.JoinedStr,)
    return any(
        isinstance(one, texts) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in ast.walk(node)
    )


def _is_whole(test: ast.expr) -> bool:
    """Say whether a condition has no part that is a mutant of its own with the same effect."""
    is_negation = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return not is_negation and not (isinstance(test, ast.Compare) and len(test.ops) == 1)


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
