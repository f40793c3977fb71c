"""Options whose check is more than a type: each function returns the value, or raises TypeError.

``options`` has the table that says which field is checked by which; it adds the field's name and
the value to what is raised. To check one more field, add its function here and its row there.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.answer_schema import answer_schema, schema_problem
from cmdc_runtime.commands import PLUGINS_MAX, TOOLS_MAX
from cmdc_runtime.header_values import header_problem
from cmdc_runtime.ids import SESSION_ID_RULE, is_session_id
from cmdc_runtime.messages import Message
from cmdc_runtime.plain import is_data, nearest, problem_of, short, text_problem
from cmdc_runtime.ranges import MEMORY_BYTES_MAX, NAME_CHARS_MAX
from cmdc_runtime.subagent import SubAgent
from cmdc_runtime.user_values import user_problem

SUBAGENTS_MAX: Final = 64
TEXT_CHARS_MAX: Final = 8_000_000
"""Of a system prompt: half of what a message may have."""
MEMORY_BYTES_MIN: Final = 16 * 2**20
"""Less than any agent needs to start; what is lower is a unit that was forgotten."""
_REFERENCE: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_STRATEGY: Final = re.compile(rf"[a-z][a-z0-9_]{{0,63}}|{_REFERENCE.pattern}")
_UNITS: Final[Mapping[str, int]] = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# As the kernel's tools read it: K, KB and KiB are all 1024 bytes.
_SIZE: Final = re.compile(
    r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([KMGT])(?:I?B)?", re.ASCII | re.IGNORECASE
)


class Unfit(TypeError):
    """What is wrong with a part of a value; the value stays untold, since it may hold a key."""


def check_provider_opts(value: object) -> object:
    """Return a dict of plain values whose keys and headers can be sent."""
    if not isinstance(value, dict):
        raise Unfit(f": expected a dict, got {type(value).__name__}")
    problem = problem_of(value) or header_problem(value)
    if problem is not None:
        raise Unfit(problem if problem.startswith("[") else f": {problem}")
    return value


def check_user_data(value: object) -> object:
    """Return a dict of values that arrive as they are."""
    if not isinstance(value, dict):
        raise Unfit(f": expected a dict, got {type(value).__name__}")
    problem = user_problem(value)
    if problem is not None:
        raise Unfit(problem if problem.startswith("[") else f": {problem}")
    return value


def message_problem(message: Message) -> str | None:
    """Return what of a message of a history cannot be kept, with its place, or None."""
    parts = msgspec.structs.asdict(message)
    calls = enumerate(parts.pop("tool_calls"))
    places = {f".{name}": part for name, part in parts.items()}
    for at, call in calls:
        told = msgspec.structs.asdict(call)
        places |= {f".tool_calls[{at}].{name}": part for name, part in told.items()}
    for place, part in places.items():
        if (problem := problem_of(part)) is not None:
            return f"{place}{problem}" if problem.startswith("[") else f"{place}: {problem}"
    return None


def check_text(value: object) -> object:
    """Return a text of any length, or None."""
    if value is not None and (problem := text_problem(value, chars_max=TEXT_CHARS_MAX)) is not None:
        raise TypeError(problem)
    return value


def check_group_id(value: object) -> object:
    """Return the name of a group, or None; no stream is of a group without a name."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise TypeError("expected a non-empty str")
    if (problem := text_problem(value, chars_max=NAME_CHARS_MAX, one_line=True)) is not None:
        raise TypeError(problem)
    return value


def check_session_id(value: object) -> object:
    """Return a session id, or None."""
    if value is not None and not (isinstance(value, str) and is_session_id(value)):
        raise TypeError(f"expected {SESSION_ID_RULE}")
    return value


def check_tools(value: object) -> list[object]:
    """Return a list of tools; what is in it is checked where it is packed."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of tools")
    if len(value) > TOOLS_MAX:
        raise TypeError(f"expected at most {TOOLS_MAX} tools")
    return list(value)


def check_plugins(value: object) -> list[object]:
    """Return a list of plugins; what is in it is checked where it is packed."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of plugins")
    if len(value) > PLUGINS_MAX:
        raise TypeError(f"expected at most {PLUGINS_MAX} plugins")
    return list(value)


def check_redact(value: object) -> object:
    """Return a function, the name of one, or None; that it can travel shows when it is packed."""
    is_name = isinstance(value, str) and _REFERENCE.fullmatch(value)
    if value is not None and not callable(value) and not is_name:
        raise TypeError('expected a function, or "module:name" of one')
    return value


def check_strategy(value: object) -> object:
    """Return a strategy, or None; that it is one, and can travel, shows when it is packed."""
    if isinstance(value, str) and _STRATEGY.fullmatch(value) is None:
        raise TypeError('expected the name of a strategy, or "module:Class"')
    is_known = value is None or isinstance(value, str | type | tuple | msgspec.Struct)
    if not is_known and not hasattr(type(value), "aggregate"):  # what every strategy has
        raise TypeError("expected a name, a class, an instance, (class, options) or 'module:Class'")
    return value


def check_subagents(value: object) -> list[SubAgent]:
    """Return a list of ``SubAgent``; their fields are not checked."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of cmdc.SubAgent")
    if len(value) > SUBAGENTS_MAX:
        raise TypeError(f"expected at most {SUBAGENTS_MAX} subagents")
    strangers = [one for one in value if not isinstance(one, SubAgent)]
    if strangers:
        raise TypeError(f"expected a cmdc.SubAgent, not {short(strangers[0])}")
    return list(value)


def check_working_dir(value: object) -> str:
    """Return the path of a directory, as it is written."""
    fspath = getattr(value, "__fspath__", None)
    path = fspath() if callable(fspath) else value
    if not isinstance(path, str) or not Path(path).is_dir():
        raise TypeError("expected a directory that is there")
    if (problem := text_problem(path, chars_max=TEXT_CHARS_MAX)) is not None:
        raise TypeError(problem)
    return path


def check_memory_limit(value: object) -> int | None:
    """Return a size in bytes, however it is written, or None."""
    if value is None:
        return None
    size = _bytes_of(value)
    if size is None or not MEMORY_BYTES_MIN <= size <= MEMORY_BYTES_MAX:
        raise TypeError("expected 16 MiB to 4 EiB, as bytes or as '512M', '2G' or '1.5GiB'")
    return size


def _bytes_of(value: object) -> int | None:
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        return None if found is None else int(Fraction(found[1]) * _UNITS[found[2].upper()])
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def check_response_format(value: object) -> object:
    """Return the JSON Schema that a ``response_format`` stands for, or None."""
    if value is None:
        return None
    if is_data(value) and not isinstance(value, dict):  # an error of msgspec's shows it whole
        raise TypeError("expected a JSON Schema or a type")
    schema = answer_schema(value)
    problem = schema_problem(schema)
    if problem:
        raise TypeError(problem)
    return schema


def unknown_name(name: object, known: Collection[str]) -> str:
    """Return the problem that no option is called ``name``, with what may have been meant."""
    if not isinstance(name, str):
        return f"{short(name)}: the name of an option is a str"
    near = nearest(name, known)
    told = name if len(name) <= NAME_CHARS_MAX and name.isprintable() else short(name)
    return f"{told}: no such option" + ("" if near is None else f"; did you mean {near}?")
