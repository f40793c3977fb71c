"""``options.md``: what ``create_agent`` takes.

A type and a bound are those of the field's annotation. What an annotation cannot say, the check
itself is asked: each option is given values that are wrong, and the complaint names the rule.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final, get_type_hints

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.options import Options, parse
from scripts.reference import markdown
from scripts.reference.annotations import bound_text, greatest, type_text, value_text
from scripts.reference.sources import Field, fields_of

_INTRO: Final = (
    "What `create_agent` takes, as keywords or as an `Options` struct. Times are seconds, costs are"
    " US dollars. A wrong value is refused with `InvalidOptions`, which names every wrong option at"
    " once; nothing is coerced."
)
_HEAD: Final = ("option", "type", "default", "bound", "meaning")
_MODEL: Final = "openai:any"
_STRANGERS: Final[tuple[object, ...]] = (object(), "", "stranger", [None] * 100_000)
"""Values that no option takes, or only one that has no rule of its own."""
_NUMBER_MAX: Final = 1_000_000.0
# In small letters: a capital one begins what msgspec says, which the annotation has said already.
_RULE: Final = re.compile(r"(?<!, )expected (.+?)(?:, got |$)")
_ORDER: Final = re.compile(r"is more than (\w+) ")


def page() -> str:
    """Return the page."""
    blocks: list[str] = []
    for section, fields in groupby(fields_of(Options), lambda field: field.section):
        blocks += [f"## {section.capitalize()}", markdown.table(_HEAD, map(_row, fields))]
    return markdown.page("Options", _INTRO, *blocks)


def rules_of(name: str) -> list[str]:
    """Return what is asked of an option beyond its annotation, as its check puts it."""
    return list(dict.fromkeys([*_own_rules(name), *_orders(name)]))


def _row(field: Field) -> tuple[str, ...]:
    annotation = get_type_hints(Options, include_extras=True)[field.name]
    bounds = filter(None, [bound_text(annotation), *rules_of(field.name)])
    return (
        markdown.code(field.name),
        markdown.code(type_text(annotation)),
        markdown.code(value_text(getattr(Options(), field.name))),
        "; ".join(bounds),
        field.meaning,
    )


def _own_rules(name: str) -> Iterator[str]:
    for stranger in _STRANGERS:
        for problem in _problems(name, stranger):
            yield from _RULE.findall(problem)


def _orders(name: str) -> Iterator[str]:
    """Yield each option that must not be less: the highest value is more than its default."""
    kind = type(getattr(Options(), name))
    if kind not in (int, float):
        return
    highest = greatest(get_type_hints(Options, include_extras=True)[name]) or _NUMBER_MAX
    for problem in _problems(name, kind(highest)):
        yield from (f"not more than `{other}`" for other in _ORDER.findall(problem))


def _problems(name: str, value: Any) -> tuple[str, ...]:  # Any: whatever may be wrong
    try:
        parse(None, {"model": _MODEL, name: value})
    except InvalidOptions as error:
        return tuple(one for one in error.problems if one.startswith(f"{name}: "))
    return ()
