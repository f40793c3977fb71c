"""The points of a session at which plugins are asked, and the facts they get there.

A hook is a Struct; its ``kind`` is its snake_case name, which is also the name of the method of a
plugin that has it. What a plugin may answer at which hook is the table ``RULINGS``; what an answer
means stands in ``actions``.

To add a hook: a class here, in ``AnyHook`` and ``RULINGS`` too, a method of ``Plugin``, its name in
``exports``, and the place in the kernel where it is run.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.ids import CallId
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.reasons import snake


# Positional too, here and below, since hooks are taken apart by ``case BeforePrompt(text)``.
class Hook(msgspec.Struct, frozen=True, tag_field="kind", tag=snake, metaclass=Checked):
    """Base of all hooks."""

    @property
    def kind(self) -> str:
        """The hook's name: ``BeforeTool`` is ``before_tool``."""
        return kind_of(type(self))


class SessionStart(Hook, frozen=True):
    """The session's process is ready, the first one as well as each that follows a crash."""


class SessionEnd(Hook, frozen=True):
    """The session ends normally; nothing can be changed any more."""


class AfterTurn(Hook, frozen=True):
    """A cycle is over, finished or not: once per cycle, before plugins get the next one."""

    outcome: Literal["finished", "aborted"]
    """"aborted" also where the cycle failed."""
    abort_reason: Any  # Any: plain data of whoever aborted it; a text where it failed
    messages_diff: tuple[Message, ...]
    """What the cycle added, oldest first."""
    token_usage_diff: TokenUsage
    """What the cycle used."""
    started_at_ms: int
    ended_at_ms: int
    duration_ms: int


class BeforePrompt(Hook, frozen=True):
    """A prompt is about to open a cycle."""

    text: str


class BeforeRequest(Hook, frozen=True):
    """A request is about to go to the model."""

    messages: tuple[Message, ...]


class AfterResponse(Hook, frozen=True):
    """The model's answer is complete, its tool calls not yet run."""

    message: Message


class BeforeTool(Hook, frozen=True):
    """A call is about to run; ``args`` are checked, and each plugin has a copy of its own."""

    name: str
    call_id: CallId
    args: dict[str, Any]  # Any: whatever the tool takes


class OnToolError(Hook, frozen=True):
    """A call failed, before it is tried again if it is; ``attempt`` is 1 for the first."""

    name: str
    call_id: CallId
    error: str
    attempt: int


class AfterTool(Hook, frozen=True):
    """A call has its result, which the model has not seen yet."""

    name: str
    call_id: CallId
    result: str
    is_error: bool


class AfterToolBatch(Hook, frozen=True):
    """Every call of one answer has its result, as each ``AfterTool`` had it, in call order."""

    results: tuple[AfterTool, ...]


class BeforeFinish(Hook, frozen=True):
    """The model wants nothing more; an intervention here keeps it working."""


class BeforeCompact(Hook, frozen=True):
    """The conversation is about to be compacted."""

    messages: tuple[Message, ...]


class BeforeSteering(Hook, frozen=True):
    """A text is about to be queued as steering."""

    text: str


AnyHook: TypeAlias = (
    SessionStart
    | SessionEnd
    | AfterTurn
    | BeforePrompt
    | BeforeRequest
    | AfterResponse
    | BeforeTool
    | OnToolError
    | AfterTool
    | AfterToolBatch
    | BeforeFinish
    | BeforeCompact
    | BeforeSteering
)


def kind_of(hook: type[Hook]) -> str:
    """Return the name of a class of hooks."""
    return str(hook.__struct_config__.tag)


HOOKS: Final[dict[str, type[Hook]]] = {kind_of(hook): hook for hook in get_args(AnyHook)}
"""Every hook by its kind."""
TOOL_HOOKS: Final = frozenset({"before_tool", "on_tool_error", "after_tool"})
"""Hooks of one call, which can be narrowed to some tools."""
TURN_HOOKS: Final = frozenset({"before_request", "before_compact"})
"""Hooks of a turn, which has begun and has no answer so far; the others lie between two."""


# --- what plugins may answer ----------------------------------------------------------------------


class Ruling(StrEnum):
    """What becomes of an action at a hook."""

    TAKEN = "taken"
    NOTED = "noted"
    """Allowed but not carried out; a debug log says so."""
    REFUSED = "refused"
    """A mistake: reported when the plugin is loaded if its annotation names it, else a failure."""


# fmt: off
ACTION_NAMES: Final = (
    "continue", "intervene", "abort", "skip", "block_tool", "replace_tool_args",
    "replace_tool_result", "emit", "switch_model", "replace_messages",
)
"""The columns of the table: each action by its name."""
_YES, _NOT, _NO = Ruling.TAKEN, Ruling.NOTED, Ruling.REFUSED
RULINGS: Final[Mapping[type[Hook], tuple[Ruling, ...]]] = MappingProxyType({
    #                go    say   abort  skip  block  args  result  emit  model  messages
    SessionStart:   (_YES, _NO,  _YES,  _NO,  _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    SessionEnd:     (_YES, _NO,  _NO,   _NO,  _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    AfterTurn:      (_YES, _NO,  _NO,   _NO,  _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    BeforePrompt:   (_YES, _YES, _YES,  _YES, _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    BeforeRequest:  (_YES, _YES, _YES,  _YES, _NO,   _NO,  _NO,    _YES, _YES,  _YES),
    AfterResponse:  (_YES, _YES, _YES,  _YES, _NO,   _NO,  _NO,    _YES, _YES,  _NO),
    BeforeTool:     (_YES, _NO,  _YES,  _NO,  _YES,  _YES, _NO,    _YES, _YES,  _NO),
    OnToolError:    (_YES, _NO,  _YES,  _YES, _NO,   _NO,  _NO,    _YES, _NOT,  _NO),
    AfterTool:      (_YES, _YES, _YES,  _NO,  _NO,   _NO,  _YES,   _YES, _YES,  _NO),
    AfterToolBatch: (_YES, _YES, _YES,  _NO,  _NO,   _NO,  _NO,    _YES, _YES,  _NO),
    BeforeFinish:   (_YES, _YES, _YES,  _NO,  _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    BeforeCompact:  (_YES, _NO,  _NO,   _YES, _NO,   _NO,  _NO,    _YES, _NO,   _NO),
    BeforeSteering: (_YES, _YES, _YES,  _NO,  _NO,   _NO,  _NO,    _YES, _NO,   _NO),
})
# fmt: on
"""What becomes of each action at each hook; total: a test fails when one has no word."""
