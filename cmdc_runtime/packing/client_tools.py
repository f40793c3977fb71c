"""Tools that run in the program that attaches them: what travels, and where the code is found.

A session gets what its model sees of such a tool, by the built-in ``client_tool``. The tool itself
is kept here under a name that no other process gives, for the client that answers its calls: until
it is fetched, and then for as long as anybody holds it.
"""

import os
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from cmdc_runtime.errors import InvalidOptions, InvalidTool
from cmdc_runtime.extensions.context import ToolContext
from cmdc_runtime.extensions.tool import Tool
from cmdc_runtime.packed_code import Packed
from cmdc_runtime.plain import kept_numbers_problem, problem_of
from cmdc_runtime.subagent import CLIENT_TOOL

_OWNER_BYTES: Final = 8
UNFETCHED_MAX: Final = 1_000
"""Tools that were packed and never attached, as those of a start that was refused."""
_ATTRIBUTE: Final = "_owner_of_process"
"""Of a tool: the process that named it, and the name; a fork gives names of its own."""
_tools: Final[WeakValueDictionary[str, Tool]] = WeakValueDictionary()
_unfetched: Final[OrderedDict[str, Tool]] = OrderedDict()


def pack(tool: Tool) -> Packed:
    """Return what travels of a tool, which is known under that name from now on.

    Raises:
        InvalidTool: what the model is to see of it cannot travel.
    """
    spec = tool.spec(ToolContext())
    seen = {"name": tool.name, "description": spec.description, "parameters": spec.parameters}
    options: dict[str, Any] = {"owner": _owner(tool), "seen": seen, "effects": tool.effects}
    if tool.timeout is not None:
        options["timeout"] = tool.timeout
    if tool.needs_approval:
        options["needs_approval"] = True
    problem = kept_numbers_problem(options) or problem_of(options)
    if problem is not None:
        raise InvalidTool(f"tool {tool.name!r} cannot travel: {problem}")
    return Packed(
        kind="ref", label=tool.name, ref=CLIENT_TOOL, data=msgspec.msgpack.encode(options)
    )


def tools_of(all_packed: Iterable[Packed]) -> dict[str, Tool]:
    """Return the tools of this process that are among what travels, by their names as owners."""
    found: dict[str, Tool] = {}
    for packed in all_packed:
        if packed.ref == CLIENT_TOOL and packed.data:
            owner = msgspec.msgpack.decode(packed.data).get("owner")
            tool = _tools.get(owner)
            _unfetched.pop(owner, None)
            if tool is not None:
                found[owner] = tool
    return found


def refuse_below(packed: Packed, label: str) -> None:
    """Refuse a tool of the program where the session that gets it is a subagent's.

    Raises:
        InvalidOptions: it is one.
    """
    if packed.ref == CLIENT_TOOL:
        raise InvalidOptions(
            [f'{label}: {packed.label!r} has where="client": give it to the session itself']
        )


def without(all_packed: Iterable[Packed]) -> tuple[Packed, ...]:
    """Return what another session may have of the tools of one."""
    return tuple(packed for packed in all_packed if packed.ref != CLIENT_TOOL)


def are_known() -> bool:
    """Say whether this process has any."""
    return bool(_tools)


def _owner(tool: Tool) -> str:
    pid, known = vars(tool).get(_ATTRIBUTE, (0, ""))
    owner = str(known)
    if pid != os.getpid():
        owner = f"o-{secrets.token_hex(_OWNER_BYTES)}"
        vars(tool)[_ATTRIBUTE] = (os.getpid(), owner)
    _tools[owner] = _unfetched[owner] = tool
    while len(_unfetched) > UNFETCHED_MAX:
        _unfetched.popitem(last=False)
    return owner
