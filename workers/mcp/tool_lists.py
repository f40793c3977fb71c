"""Lists of tools as MCP servers send them, read tool by tool.

The SDK reads a list as a whole, and refuses it for one tool that is malformed. Here a list is
looked at on its way to the SDK: in the place of a tool that can't be read comes a stand-in, which
bears its name and what is wrong with it.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import mcp_types as types
import pydantic
from mcp.shared.message import SessionMessage
from mcp_types import methods

from cmdc_runtime.lines import one_line
from workers.mcp.streams import Item

TOOLS_MAX: Final = 512
"""Of one server: as many as a session may have; a page with more is not looked at."""
ERRORS_MAX: Final = 3
"""Of what is wrong with one answer, in what is said about it."""
_METHOD: Final = "tools/list"
_PROBLEM: Final = "cmdc/problem"
"""What a stand-in has in its ``_meta``."""


def summary_of(error: pydantic.ValidationError) -> str:
    """Return what is wrong with an answer in one line, without its values."""
    return _in_words([(one["loc"], one["msg"]) for one in _errors(error)])


def problem_of(tool: types.Tool) -> str:
    """Return why a tool can't be read, where it is a stand-in; "" where it is none."""
    return str((tool.meta or {}).get(_PROBLEM, ""))


# Any, below: what a server sends.
def readable(result: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a list of tools with a stand-in for each that can't be read.

    ``version`` is that of the protocol. A list that is malformed beside its tools stays as it is.
    """
    tools = result.get("tools")
    if not isinstance(tools, list) or len(tools) > TOOLS_MAX:
        return result
    problems = _problems(result, version)
    if not problems:
        return result
    return {
        **result,
        "tools": [
            _stand_in(one, number, problems[number]) if number in problems else one
            for number, one in enumerate(tools)
        ],
    }


def _problems(result: Mapping[str, Any], version: str) -> dict[int, str]:
    """Return what is wrong with tools, by their place in the list; the SDK checks both."""
    errors: dict[int, dict[tuple[tuple[int | str, ...], str], None]] = {}
    for one in (
        *_found(_check_of_version, result, version),
        *_found(_check_of_sdk, result, version),
    ):
        name, *where = one["loc"]
        if name == "tools" and where:  # others are of the list as a whole, which the SDK refuses
            errors.setdefault(where[0], {})[tuple(where[1:]), one["msg"]] = None
    return {number: _in_words(list(found)) for number, found in errors.items()}


def _found(
    check: Callable[[Mapping[str, Any], str], None], result: Mapping[str, Any], version: str
) -> list[Any]:  # Any: as of _errors
    try:
        check(result, version)
    except pydantic.ValidationError as error:
        return _errors(error)
    return []


def _check_of_version(result: Mapping[str, Any], version: str) -> None:
    with contextlib.suppress(KeyError):  # the version has no such method: so has the SDK no check
        methods.validate_server_result(_METHOD, version, result)


def _check_of_sdk(result: Mapping[str, Any], _version: str) -> None:
    types.ListToolsResult.model_validate(result, by_name=False)


def _stand_in(tool: Any, number: int, problem: str) -> dict[str, Any]:
    name = tool.get("name") if isinstance(tool, dict) else None
    return {
        "name": name if isinstance(name, str) else f"number {number + 1}",
        "inputSchema": {"type": "object"},
        "_meta": {_PROBLEM: problem},
    }


def _errors(error: pydantic.ValidationError) -> list[Any]:  # Any: pydantic's own dict
    return list(error.errors(include_url=False, include_context=False, include_input=False))


def _in_words(errors: list[tuple[tuple[int | str, ...], str]]) -> str:
    lines = [
        f"{'.'.join(map(str, where))}: {message}" if where else message
        for where, message in errors[:ERRORS_MAX]
    ]
    more = len(errors) - len(lines)
    return one_line("; ".join(lines) + (f"; and {more} more" if more else ""))


class ListReader:
    """Has the lists of tools of one connection read; made before the version is known."""

    def __init__(self) -> None:
        """Look at nothing until ``version`` is set."""
        self.version: str | None = None

    def read(self, item: Item) -> Item:
        """Return a message, a list of tools as ``readable`` has it."""
        # No other result that a session asks for has tools.
        if isinstance(item, SessionMessage) and self.version is not None:
            message = item.message
            if isinstance(message, types.JSONRPCResponse):
                message.result = readable(message.result, self.version)
        return item
