"""The request that starts an agent: options checked, tools packed, nothing sent yet."""

from typing import Any, Final

import msgspec

from cmdc_runtime import codec
from cmdc_runtime.errors import InvalidOptions, UsageError
from cmdc_runtime.frames import ASKED_BYTES_MAX
from cmdc_runtime.ids import SessionId, new_command_id, new_session_id
from cmdc_runtime.options import Options, parse
from cmdc_runtime.plain import VALUES_MAX, packed_problem
from cmdc_runtime.requests import StartSession
from cmdc_runtime.spec import AgentSpec, agent_spec, carries_code, refused_parts, supervision

_FROM_OUTSIDE: Final = ("provider_opts", "user_data", "messages", "response_format", "subagents")
"""What holds values of the application's own."""
AGENT_BYTES_MAX: Final = ASKED_BYTES_MAX - 16 * 1024
"""Of a definition as it travels; what is beside it in the request is small and has bounds."""
_OPTION_OF: Final = {"identity": "blueprint"}
"""What a field of a definition is made from, where that has another name."""


def start_request(options: Options | None, given: dict[str, Any]) -> StartSession:
    """Return the request that starts the agent that the options describe.

    Raises:
        InvalidOptions: ``problems`` has one line for each wrong field.
        InvalidTool: a tool cannot travel.

    """
    if options is not None and not isinstance(options, Options):
        raise InvalidOptions([f"options: expected Options, got {type(options).__name__}"])
    checked = parse(options, given, refused_parts)
    spec = agent_spec(checked)
    return StartSession(
        session_id=SessionId(checked.session_id) if checked.session_id else new_session_id(),
        supervision=supervision(checked),
        agent=agent_bytes(spec),
        carries_code=carries_code(spec),
        group_id=checked.group_id,
        start_id=new_command_id(),
    )


def agent_bytes(spec: AgentSpec) -> msgspec.Raw:
    """Return a definition as it travels.

    Raises:
        InvalidOptions: a value of the application's own cannot travel, or all is too large.

    """
    problems = []
    for name in _FROM_OUTSIDE:
        try:
            packed = codec.encode(getattr(spec, name))
        except UsageError as error:
            problems.append(f"{name}: cannot travel to the agent: {error}")
            continue
        if (problem := packed_problem(packed, values_max=VALUES_MAX)) is not None:
            problems.append(f"{name}: cannot travel to the agent: {problem}")
    if problems:
        raise InvalidOptions(problems)
    raw = codec.raw(spec)
    if (excess := len(bytes(raw)) - AGENT_BYTES_MAX) > 0:
        raise InvalidOptions(_too_large(spec, excess))
    return raw


def _too_large(spec: AgentSpec, excess: int) -> list[str]:
    """Return a line for each of the largest options, as many as make ``excess`` bytes."""
    sizes = {name: len(codec.encode(getattr(spec, name))) for name in AgentSpec.__struct_fields__}
    problems = []
    for name, size in sorted(sizes.items(), key=lambda one: one[1], reverse=True):
        if excess <= 0:
            break
        excess -= size
        problems.append(
            f"{_OPTION_OF.get(name, name)}: it has {size:,} bytes as it travels, and"
            f" {AGENT_BYTES_MAX:,} is the most for all options together: pass large content by"
            " file instead of by value"
        )
    return problems
