"""``errors.md``: the tree of errors, ordered by what a catcher can do."""

from collections.abc import Iterator
from typing import Final

from cmdc_runtime.errors import CmdcError
from cmdc_runtime.reasons import AnyReason
from scripts.reference import markdown
from scripts.reference.annotations import type_text
from scripts.reference.sources import declared

_INTRO: Final = (
    "Every error that the project raises on purpose. The tree says what the catcher should do; the"
    " code is what travels, so that a client catches the class that the agent or the daemon raised."
)
_HEAD: Final = ("error", "code", "attributes", "meaning")


def page() -> str:
    """Return the page."""
    drawn = "\n".join(f"    {'  ' * depth}{error.__name__}" for depth, error in _tree(CmdcError))
    branches = (_branch(branch) for branch in declared(CmdcError))
    return markdown.page("Errors", _INTRO, drawn, _table([CmdcError]), *branches)


def _branch(branch: type[CmdcError]) -> str:
    errors = [error for _, error in _tree(branch)]
    return f"## {branch.__name__}\n\n{_table(errors)}"


def _table(errors: list[type[CmdcError]]) -> str:
    return markdown.table(_HEAD, map(_row, errors))


def _row(error: type[CmdcError]) -> tuple[str, ...]:
    attributes = (f"`{name}: {_type(error, name)}`" for name in error.fields)
    return (
        markdown.code(error.__name__),
        markdown.code(error.code),
        ", ".join(attributes),
        markdown.prose(error.__doc__),
    )


def _type(error: type[CmdcError], name: str) -> str:
    kind = error.fields[name]
    return "AnyReason" if kind == AnyReason else type_text(kind)


def _tree(root: type[CmdcError], depth: int = 0) -> Iterator[tuple[int, type[CmdcError]]]:
    yield depth, root
    for child in declared(root):
        yield from _tree(child, depth + 1)
