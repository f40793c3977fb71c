"""What only the source of a class knows: how a field was written, and what is said next to it.

Meanings stand where a programmer looks for them: behind a field as a comment, or below it as a
string. A comment ``# --- words ---`` opens a section of a class.
"""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, TypeVar

T = TypeVar("T")

_SECTION: Final = re.compile(r"#\s*-{3,}\s*(.+?)\s*-{3,}")
_NO_MEANING: Final = re.compile(r"#\s*(noqa|type:|tidy:|pragma:)")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a class as it is written; ``meaning`` is "" where nothing is said."""

    name: str
    annotation: str
    default: str
    meaning: str
    section: str


def declared(base: type[T]) -> list[type[T]]:
    """Return the subclasses that the project ships, in their order.

    They stand in the module of ``base``, or in its package where that is a ``base.py``.
    """
    home = base.__module__.removesuffix(".base")
    return [kind for kind in base.__subclasses__() if f"{kind.__module__}.".startswith(f"{home}.")]


def fields_of(cls: type) -> list[Field]:
    """Return the fields that a class declares itself, ``ClassVar`` left out."""
    text = inspect.getsource(cls)
    comments, body = _comments(text), _class_of(text).body
    found = []
    for at, node in enumerate(body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                written = ast.unparse(annotation)
            case _:
                continue
        if written.startswith("ClassVar"):
            continue
        found.append(
            Field(
                name=name,
                annotation=written,
                default="" if value is None else ast.unparse(value),
                meaning=_string(body[at + 1 : at + 2]) or _meaning(comments, node),
                section=_section(comments, node.lineno),
            )
        )
    return found


def members_of(kind: type[StrEnum]) -> dict[str, str]:
    """Return what is said below each member of an enumeration, by its value."""
    body = _class_of(inspect.getsource(kind)).body
    said = {
        node.targets[0].id: _string(body[at + 1 : at + 2])
        for at, node in enumerate(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return {one.value: said[one.name] for one in kind}


def _class_of(text: str) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(node, ast.ClassDef)  # noqa: S101 - it is the source of a class
    return node


@cache
def _comments(text: str) -> Mapping[int, str]:
    """Return the comments by line."""
    tokens: Iterator[tokenize.TokenInfo] = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _meaning(comments: Mapping[int, str], node: ast.stmt) -> str:
    comment = comments.get(node.end_lineno or node.lineno, "")
    return "" if _NO_MEANING.match(comment) else comment.removeprefix("#").strip()


def _string(following: list[ast.stmt]) -> str:
    match following:
        case [ast.Expr(value=ast.Constant(value=str() as text))]:
            return " ".join(text.split())
        case _:
            return ""


def _section(comments: Mapping[int, str], line: int) -> str:
    opened = ""
    for at, comment in sorted(comments.items()):
        match = _SECTION.fullmatch(comment)
        if match and at < line:
            opened = match[1]
    return opened
