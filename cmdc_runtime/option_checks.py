"""Options whose check is more than a type: each function returns the value, or raises TypeError.

``options`` has the table that says which field is checked by which; it adds the field's name and
the value to what is raised. To check one more field, add its function here and its row there.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

from cmdc_runtime.answer_schema import answer_schema, schema_problem
from cmdc_runtime.callables import call_problem, yield_problem
from cmdc_runtime.checked_struct import MEMORY_BYTES_MAX, NAME_CHARS_MAX, misfit
from cmdc_runtime.commands import PLUGINS_MAX, TOOLS_MAX
from cmdc_runtime.errors import PROBLEMS_MAX, InvalidOptions
from cmdc_runtime.foreign import text_of
from cmdc_runtime.ids import SESSION_ID_RULE, is_session_id
from cmdc_runtime.mcp_servers import McpServer, servers_of
from cmdc_runtime.message_parts import MessagePart, parts_problem
from cmdc_runtime.messages import Message, ToolCall
from cmdc_runtime.plain import (
    TOO_DEEP,
    is_a,
    is_data,
    nearest,
    own,
    problem_of,
    short,
    text_problem,
)
from cmdc_runtime.provider_keys import api_key_problems
from cmdc_runtime.provider_options import options_problem
from cmdc_runtime.subagent import SubAgent
from cmdc_runtime.user_values import user_problem

HISTORY_MESSAGES_MAX: Final = 100_000
SUBAGENTS_MAX: Final = 64
SkillsPath = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
MEMORY_FILES_MAX: Final = 12
"""Together they fit into one action of a plugin."""
MemoryPaths = Annotated[tuple[SkillsPath, ...], Meta(max_length=MEMORY_FILES_MAX)]
SKILLS_DIRS_MAX: Final = 64
SkillsDirs = Annotated[
    tuple[tuple[Literal["", "base", "user", "project", "team"], SkillsPath], ...],
    Meta(max_length=SKILLS_DIRS_MAX),
]
"""Folders of skills, the most important one last, each behind the word of where it is from."""
_PAIR: Final = 2
TEXT_CHARS_MAX: Final = 8_000_000
"""Of a system prompt: half of what a message may have."""
MEMORY_BYTES_MIN: Final = 16 * 2**20
"""Less than any agent needs to start; what is lower is a unit that was forgotten."""
_History = Annotated[list[Any], Meta(max_length=HISTORY_MESSAGES_MAX)]  # Any: unchecked
REFERENCE: Final = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_STRATEGY: Final = re.compile(rf"[a-z][a-z0-9_]{{0,63}}|{REFERENCE.pattern}")
_UNITS: Final[Mapping[str, int]] = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# As the kernel's tools read it: K, KB and KiB are all 1024 bytes.
_SIZE: Final = re.compile(
    r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([KMGT])(?:I?B)?", re.ASCII | re.IGNORECASE
)


class Unfit(TypeError):
    """What is wrong with parts of a value, one argument for each; the value itself is not shown."""


def check_provider_opts(value: object) -> object:
    """Return a dict of plain values that a request can have: see ``provider_options``."""
    if not isinstance(value, dict):
        raise Unfit(f": expected a dict, got {type(value).__name__}")
    problem = problem_of(value) or options_problem(value)
    if problem is not None:
        raise Unfit(problem if problem.startswith("[") else f": {problem}")
    return value


def check_api_key(value: object) -> object:
    """Return a key, a dict of keys by their provider, or None."""
    if value is None:
        return None
    if problems := api_key_problems(value):
        raise Unfit(*problems)
    return value


def check_user_data(value: object) -> object:
    """Return a dict of values that arrive as they are."""
    if not isinstance(value, dict):
        raise Unfit(f": expected a dict, got {type(value).__name__}")
    problem = user_problem(value)
    if problem is not None:
        raise Unfit(problem if problem.startswith("[") else f": {problem}")
    return value


def check_messages(value: object) -> list[Message]:
    """Return a history. Each wrong part of each message is reported with its place."""
    messages: list[Message] = []
    problems: list[str] = []
    for at, given in enumerate(msgspec.convert(value, _History)):
        message = _kept_message(given)
        if message is not None:
            messages.append(message)
            continue
        wrong = list(islice(_struct_problems(given, Message), PROBLEMS_MAX))
        if not wrong and is_a(given, Message):
            fault = parts_problem(given.parts, len(given.content))
            wrong = [f".{fault}"] if fault is not None else []
        problems += (f"[{at}]{one}" for one in wrong or [f": {short(given)} can't be kept"])
        if len(problems) >= PROBLEMS_MAX:
            break
    if problems:
        raise Unfit(*problems)
    return messages


def _kept_message(given: Any) -> Message | None:  # Any: whatever a history holds
    """Return a message, which may come as a dict; None where anything is wrong with it."""
    try:
        parts = msgspec.structs.asdict(given) if is_a(given, Message) else given
        message = msgspec.convert(parts, Message)
        calls = [msgspec.structs.asdict(one) for one in message.tool_calls]
        msgspec.convert(calls, list[ToolCall])
        seen = [msgspec.structs.asdict(one) for one in message.parts]
        msgspec.convert(seen, list[MessagePart])
        if parts_problem(message.parts, len(message.content)) is not None:
            return None
    except Exception:  # noqa: BLE001 - whatever it is, it is looked for part by part
        return None
    texts = {**msgspec.structs.asdict(message), "tool_calls": None, "parts": None}
    held = [texts.values(), *(one.values() for one in (*calls, *seen))]
    return None if any(problem_of(part) for parts in held for part in parts) else message


# Any, here and below: a struct's fields, and what a type can be.
def _struct_problems(given: Any, kind: Any) -> Iterator[str]:
    """Yield what is wrong with a struct, or with a dict that is to be one, with each place."""
    if not is_a(given, (dict, kind)):
        yield f": {_misfit(given, kind, '')}"
        return
    parts = own(given) if is_a(given, dict) else msgspec.structs.asdict(given)
    for field in msgspec.structs.fields(kind):
        if field.name in parts:
            yield from _part_problems(own(parts[field.name]), field)
        elif field.required:
            yield f".{field.name}: required"


def _part_problems(part: Any, field: msgspec.structs.FieldInfo) -> Iterator[str]:
    place, inner = f".{field.name}", (*get_args(field.type), None)[0]
    is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    if is_struct and is_a(part, (list, tuple)):
        for at, one in enumerate(part):
            yield from (f"{place}[{at}]{problem}" for problem in _struct_problems(one, inner))
    elif is_data(part) and (problem := problem_of(part)) is not None:
        yield f"{place}{problem}" if problem.startswith("[") else f"{place}: {problem}"
    elif (misfit := _misfit(part, field.type, field.name)) is not None:
        yield f"{place}: {misfit}"


def _misfit(value: object, kind: Any, name: str) -> str | None:
    """Return why ``value`` is none of ``kind``, in the words of every option, or None."""
    try:
        msgspec.convert(value, kind)
    except Exception as error:  # noqa: BLE001 - a value may have code of its own
        return refusal(error, kind, value, name)
    return None


def refusal(error: Exception, kind: Any, value: object, name: str) -> str:
    """Return the words for a value that cannot be converted to the type of the option ``name``."""
    problem = TOO_DEEP if isinstance(error, RecursionError) else text_of(error)
    return misfit(problem, kind, value, name)


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


def check_mcp_servers(value: object) -> list[McpServer]:
    """Return a list of servers, each checked as a whole."""
    try:
        return servers_of(value)
    except TypeError as error:
        raise Unfit(*error.args) from None


def is_function(value: object) -> bool:
    """Say whether something is a function, or "module:name" of one; a class is none."""
    if isinstance(value, str):
        return REFERENCE.fullmatch(value) is not None
    return callable(value) and not isinstance(value, type)


def check_returns(function: object) -> None:
    """Refuse what yields where a function is called for what it returns.

    Raises:
        TypeError: it is a generator function, or calls one.
    """
    if (problem := yield_problem(function)) is not None:
        raise TypeError(f"{short(function)}: {problem}")


def check_takes(function: object, *given: str) -> None:
    """Refuse what can't be called with so many values; ``given`` are their names, for people.

    Raises:
        TypeError: so it is.
    """
    if (problem := call_problem(function, *given)) is not None:
        raise TypeError(f"{short(function)} {problem}")


def check_redact(value: object) -> object:
    """Return a function, the name of one, or None; that it can travel shows when it is packed."""
    is_name = isinstance(value, str) and REFERENCE.fullmatch(value)
    if value is not None and not callable(value) and not is_name:
        raise TypeError('expected a function, or "module:name" of one')
    check_returns(value)
    return value


def check_checkpoint_backend(value: object) -> object:
    """Return a backend, or None; that it is one, and can travel, shows when it is packed."""
    if isinstance(value, str) and REFERENCE.fullmatch(value) is None:
        raise TypeError('expected "module:Class"')
    if value is not None and not isinstance(value, str | type) and not hasattr(type(value), "save"):
        raise TypeError('expected a class or object of cmdc.CheckpointBackend, or "module:Class"')
    return value


def check_provider(value: object) -> object:
    """Return a provider, or None; that it is one, and can travel, shows when it is packed."""
    if isinstance(value, str) and REFERENCE.fullmatch(value) is None:
        raise TypeError('expected "module:Class", or that of a function')
    is_one = isinstance(value, str | type) or callable(value) or hasattr(type(value), "stream")
    if value is not None and not is_one:
        raise TypeError("expected a class or object with stream(request), or an async function")
    return value


def check_strategy(value: object) -> object:
    """Return a strategy, or None; that it is one, and can travel, shows when it is packed."""
    if isinstance(value, str) and _STRATEGY.fullmatch(value) is None:
        raise TypeError('expected the name of a strategy, or "module:Class"')
    is_known = value is None or isinstance(value, str | type | tuple | msgspec.Struct)
    if not is_known and not hasattr(type(value), "aggregate"):  # what every strategy has
        raise TypeError("expected a name, a class, an instance, (class, options) or 'module:Class'")
    return value


def check_sandbox(value: object) -> object:
    """Return a sandbox, or None; that it is one, and can travel, shows when it is packed."""
    if isinstance(value, str) and _STRATEGY.fullmatch(value) is None:
        raise TypeError('expected the name of a sandbox, or "module:Class"')
    is_known = value is None or isinstance(value, str | type | tuple | msgspec.Struct)
    if not is_known and not hasattr(type(value), "execute"):  # what every sandbox has
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


def check_memory(value: object) -> list[str]:
    """Return memory files, each by its path."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of paths")
    if len(value) > MEMORY_FILES_MAX:
        raise TypeError(f"expected at most {MEMORY_FILES_MAX} paths")
    return list(msgspec.convert([_path_text(one) for one in value], MemoryPaths))


def check_skills_dirs(value: object) -> list[tuple[str, str]]:
    """Return folders of skills, each with the word of where it is from, "" where none is given."""
    if not isinstance(value, list | tuple):
        raise TypeError("expected a list of folders")
    if len(value) > SKILLS_DIRS_MAX:
        raise TypeError(f"expected at most {SKILLS_DIRS_MAX} folders")
    return list(msgspec.convert([_skills_dir(one) for one in value], SkillsDirs))


def _skills_dir(value: object) -> tuple[object, object]:
    """Return a folder as a pair; a word or path of the wrong kind is found later."""
    if isinstance(value, tuple | list):
        if len(value) != _PAIR:
            raise TypeError("expected a path, or a word of where it is from and a path")
        return value[0], _path_text(value[1])
    return "", _path_text(value)


def _path_text(value: object) -> object:
    fspath = getattr(value, "__fspath__", None)
    return fspath() if callable(fspath) else value


def check_working_dir(value: object) -> str:
    """Return the path of a directory, as it is written."""
    fspath = getattr(value, "__fspath__", None)
    path = fspath() if callable(fspath) else value
    if not isinstance(path, str) or not Path(path).is_dir():
        raise TypeError("expected a directory that is there")
    if (problem := text_problem(path, chars_max=TEXT_CHARS_MAX)) is not None:
        raise TypeError(problem)
    return path


def absolute(directory: str) -> str:
    """Return a folder by a path that is the same from everywhere; no link is resolved.

    Raises:
        InvalidOptions: this process is nowhere itself.
    """
    try:
        path = os.path.abspath(directory)  # noqa: PTH100 - no link is resolved
    except OSError as error:  # this process stands in a directory that was removed
        raise InvalidOptions(
            [f"working_dir: {directory!r} is nowhere, give an absolute path: {error}"]
        ) from error
    if (problem := text_problem(path, chars_max=len(path))) is not None:
        raise InvalidOptions([f"working_dir: {path!a}: {problem}"])
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
    given = name if len(name) <= NAME_CHARS_MAX and name.isprintable() else short(name)
    return f"{given}: no such option" + ("" if near is None else f"; did you mean {near}?")
