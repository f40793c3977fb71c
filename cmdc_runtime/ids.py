"""Names for identifiers, so that the type checker distinguishes them, and the makers of new ones.

Every random id of the project is made here; ``core`` folders take ids as arguments.
"""

import re
import secrets
from typing import Annotated, Final, NewType

from msgspec import Meta

SessionId = NewType("SessionId", str)
CommandId = NewType("CommandId", str)
CallId = NewType("CallId", str)
MessageId = NewType("MessageId", str)
MonitorRef = NewType("MonitorRef", str)
WorkerId = NewType("WorkerId", str)
EventIndex = NewType("EventIndex", int)
"""Number of one event in its session: starts at 1, steps by 1, goes on across restarts."""
Incarnation = NewType("Incarnation", int)
"""How many processes the session has had, this one included: starts at 1."""
DownSeq = NewType("DownSeq", int)
"""Number of one recorded Down: each is larger than all before it, across sessions and daemons."""

SUPERVISOR: Final = SessionId("_supervisor")
"""Whose events are the reports of the supervision tree; no session can be called so."""
SESSION_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}\Z"
"""What may name a session, as a regular expression."""
SESSION_ID_RULE: Final = "1 to 128 of A-Z a-z 0-9 . _ : @ -, the first a letter or a digit"
"""The same in words, for whoever gave another one."""
TOOL_NAME: Final = "[A-Za-z0-9_-]{1,64}"
"""What may name a tool, or a kind of subagent, as a regular expression."""
TOOL_NAME_RULE: Final = "1 to 64 of A-Z a-z 0-9 _ -"
"""The same in words."""
ToolName = Annotated[str, Meta(pattern=f"^{TOOL_NAME}$")]
_MONITOR_REF: Final = re.compile(r"r-[0-9a-f]{16}")
_SESSION_ID: Final = re.compile(SESSION_ID)
_TOOL_NAME: Final = re.compile(TOOL_NAME)


def _token() -> str:
    return secrets.token_hex(8)


def new_session_id() -> SessionId:
    """Return a fresh session id."""
    return SessionId(f"s-{_token()}")


def new_command_id() -> CommandId:
    """Return a fresh command id; the same id sent twice takes effect once."""
    return CommandId(f"c-{_token()}")


def new_message_id() -> MessageId:
    """Return a fresh message id."""
    return MessageId(f"m-{_token()}")


def new_monitor_ref() -> MonitorRef:
    """Return a fresh monitor reference."""
    return MonitorRef(f"r-{_token()}")


def new_worker_id(number: int) -> WorkerId:
    """Return the identity of one worker process: never used twice, so no stale frame is taken."""
    return WorkerId(f"w-{number}-{_token()}")


def run_of_call(call_id: CallId, turn: int) -> str:
    """Return the id of the run that a call makes; models may use the call's own id twice."""
    return f"{call_id}@{turn}"


def call_of_run(run_id: str) -> CallId:
    """Return which call makes a run."""
    return CallId(run_id.rpartition("@")[0])


def branch_ref(call_id: CallId, branch_id: str) -> str:
    """Return what a branch of a call is known by in its session."""
    return f"{call_id}:branch-{branch_id}"


def is_session_id(text: str) -> bool:
    """Say whether ``text`` may name a session: ``SESSION_ID_RULE``."""
    return _SESSION_ID.fullmatch(text) is not None


def is_monitor_ref(text: str) -> bool:
    """Say whether ``text`` may name a monitor."""
    return _MONITOR_REF.fullmatch(text) is not None


def is_tool_name(name: object) -> bool:
    """Say whether ``name`` may name a tool: ``TOOL_NAME_RULE``."""
    return isinstance(name, str) and _TOOL_NAME.fullmatch(name) is not None
