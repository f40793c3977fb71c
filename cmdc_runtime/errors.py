"""Every error the project raises on purpose.

The tree answers one question, "what should the catcher do?"::

    CmdcError                   never raised itself
      UsageError                fix the call; retrying cannot help
        InvalidOptions (with InvalidFields), InvalidPart, InvalidSession, InvalidText,
        InvalidTool, SessionExists, AlreadyAttached, ToolNotFound, ToolValidationFailed,
        ApprovalNotFound, AskNotFound, AccessDenied, CheckpointNotFound, CheckpointUnreadable
      TransientError            try again later
        DaemonUnavailable, QueueFull, Overloaded, Busy, StorageFull, CommandTimeout,
        CollectTimeout
      SessionError              what the session did or became
        SessionNotAlive, SessionParked, StartFailed (with SandboxUnavailable), AgentAborted
        (with GuardrailTripped), AgentFailed (with ResultInvalid), SteeringRejected,
        CheckpointFailed, CommandDropped
      ExtensionError            what a tool, plugin, provider or store could not do, or was refused
        ToolError (with OtherBranchError), PluginCallError, ProviderError, MemoryStoreError: each
        stands beside the contract that it is part of
      ProtocolError             the peer or we broke the wire contract: report a bug

To add an error, add one class with its own ``code``; attributes that must cross the wire are named
in ``fields`` with their types, and the constructor takes exactly these by keyword. An error that
stands elsewhere has the code of its base, and arrives as that: it names no ``fields``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from cmdc_runtime.plain import ends_of, shown
from cmdc_runtime.process import SANDBOX_STAGE
from cmdc_runtime.reasons import AnyReason
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.redaction import text_shown

REASON_CHARS_MAX: Final = 4_000
"""Of a reason in the text of an error; the error has all of it."""
TEXT_CHARS_MAX: Final = 8_000
"""Of an error's text, whatever value it is about; its beginning and its end are kept."""
PROBLEM_CHARS_MAX: Final = 2_000
"""Of one of several problems in an error."""
LOOKED_CHARS_MAX: Final = 4 * TEXT_CHARS_MAX
"""Of a text, in which credentials are looked for before it is cut."""
PROBLEMS_MAX: Final = 32
"""Of names that nobody knows, in one error; each is compared with all that there are."""


class CmdcError(Exception):
    """Root of the tree; catch it to catch everything deliberate."""

    code: ClassVar[str] = "internal"
    fields: ClassVar[Mapping[str, Any]] = {}  # Any: types, as msgspec.convert takes them

    def __init__(self, *args: object) -> None:
        """Keep the arguments, without credentials of addresses, cut where it shows too much."""
        super().__init__(
            *(_cut(one, TEXT_CHARS_MAX) if isinstance(one, str) else one for one in args)
        )

    def details(self) -> dict[str, object]:
        """Return the attributes that cross the wire."""
        return {name: getattr(self, name) for name in self.fields}


class UsageError(CmdcError):
    """The caller asked for something that can never work as asked."""

    code = "usage"


class InvalidOptions(UsageError):
    """Options of ``create_agent`` or the daemon are wrong; ``problems`` has a line for each."""

    code = "invalid_options"
    fields: ClassVar[Mapping[str, Any]] = {"problems": tuple[str, ...]}

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep every problem."""
        self.problems = tuple(_cut(problem, PROBLEM_CHARS_MAX) for problem in problems)
        super().__init__("; ".join(self.problems))


class InvalidFields(InvalidOptions, TypeError, ValueError):
    """A struct of the project was made with fields that are unknown, missing or do not fit.

    It is what Python raises for such a call, too.
    """

    code = "invalid_fields"


class InvalidSession(UsageError):
    """Not a session, or an id that was never seen here."""

    code = "invalid_session"


class InvalidText(UsageError):
    """The text of a prompt or of a steering is not a non-empty str."""

    code = "invalid_text"


class InvalidPart(UsageError):
    """An image or a file of a prompt is none that is taken, too large, or nothing for the model."""

    code = "invalid_part"


class InvalidTool(UsageError):
    """The object is not a tool, or its name, schema or code cannot be used."""

    code = "invalid_tool"


class SessionExists(UsageError):
    """The session id is taken by a live session."""

    code = "session_exists"


class AlreadyAttached(UsageError):
    """The session has a tool of this name."""

    code = "already_attached"


class ToolNotFound(UsageError):
    """The session has no tool of this name."""

    code = "tool_not_found"


class PluginNotFound(UsageError):
    """The session has no plugin of this name."""

    code = "plugin_not_found"


class McpServerNotFound(UsageError):
    """The session has no MCP server of this name."""

    code = "mcp_server_not_found"


class ToolValidationFailed(UsageError):
    """A batch of tool changes was refused as a whole; ``problems`` pairs names with reasons."""

    code = "tool_validation_failed"
    fields: ClassVar[Mapping[str, Any]] = {"problems": list[tuple[str, str]]}

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        """Keep every problem."""
        self.problems = [
            (_cut(name, PROBLEM_CHARS_MAX), _cut(reason, PROBLEM_CHARS_MAX))
            for name, reason in problems
        ]
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in self.problems))


class ApprovalNotFound(UsageError):
    """No approval of this id is pending."""

    code = "approval_not_found"


class AskNotFound(UsageError):
    """No question of this reference is pending."""

    code = "ask_not_found"


class CheckpointNotFound(UsageError):
    """The session has no checkpoint of this id, or none at all."""

    code = "checkpoint_not_found"


class CheckpointUnreadable(UsageError):
    """A saved state is damaged, or of a newer program; it was left as it is."""

    code = "checkpoint_unreadable"


class AccessDenied(UsageError):
    """The daemon does not accept this from this peer."""

    code = "access_denied"


class TransientError(CmdcError):
    """Trying the same thing later may work; but for a timeout, it has had no effect."""

    code = "transient"


class DaemonUnavailable(TransientError):
    """No daemon is there to be asked: what was to be done has no effect, now or later.

    A first call raises it at once, one to a daemon that has gone since after 30 s without another.
    An embedded daemon that has died took its sessions along, with what they were doing.
    """

    code = "daemon_unavailable"


class QueueFull(TransientError):
    """A bounded queue of the session is full; nothing was queued."""

    code = "queue_full"


class Overloaded(TransientError):
    """A bound of the daemon is reached; nothing was started."""

    code = "overloaded"


class Busy(Overloaded):
    """As many sessions as may wait for their start do; there is room in ``retry_after_s``, about.

    Nothing was started, and nothing is known of the session that was to be.
    """

    code = "busy"
    fields: ClassVar[Mapping[str, Any]] = {"waiting": int, "retry_after_s": float}

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        """Keep how many there are, and when to come again."""
        self.waiting, self.retry_after_s = waiting, retry_after_s
        super().__init__(f"{waiting} sessions are being started; try again in {retry_after_s:g} s")


class StorageFull(TransientError):
    """The daemon's disk is full: nothing new is taken until there is room; what runs stays."""

    code = "storage_full"


class CommandTimeout(TransientError, TimeoutError):
    """No answer in time; the command may still take effect, once.

    It was sent to a daemon, which may have ended since, with no other one there yet. Look what has
    come of it before you give it again.
    """

    code = "command_timeout"


class CollectTimeout(TransientError, TimeoutError):
    """The cycle did not end in time; it goes on."""

    code = "collect_timeout"


class SessionError(CmdcError):
    """What the session did or became."""

    code = "session"


class SessionNotAlive(SessionError):
    """The session was there and ended; ``reason`` says why."""

    code = "session_not_alive"
    fields: ClassVar[Mapping[str, Any]] = {"reason": AnyReason}

    def __init__(self, reason: AnyReason) -> None:
        """Keep the reason."""
        self.reason = reason
        super().__init__(f"the session ended: {reason}")


class SessionParked(SessionError):
    """The daemon can't go on with the session; what is kept of it stays until it is stopped."""

    code = "session_parked"
    fields: ClassVar[Mapping[str, Any]] = {"reason": str}

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        self.reason = reason
        super().__init__(
            f"the session is parked: {reason}; what is kept of it stays as it is: mend that and "
            "resume it with resume_session, or end it with stop"
        )


class StartFailed(SessionError):
    """The session could not be started; ``reason`` says at which stage and why."""

    code = "start_failed"
    fields: ClassVar[Mapping[str, Any]] = {"reason": AnyReason}

    def __init__(self, reason: AnyReason) -> None:
        """Keep the reason."""
        self.reason = reason
        super().__init__(str(reason))


class SandboxUnavailable(StartFailed):
    """The session's sandbox can't be had here: ``layer`` is what is missing, ``why`` says why.

    Nothing of the session has run. It is never replaced by a weaker one.
    """

    code = "sandbox_unavailable"
    fields: ClassVar[Mapping[str, Any]] = {"layer": str, "why": str}

    def __init__(self, layer: str, why: str) -> None:
        """Keep both parts."""
        self.layer, self.why = layer, why
        super().__init__(StartFailedReason(stage=SANDBOX_STAGE, message=f"{layer}: {why}"))


def start_error(reason: AnyReason) -> StartFailed:
    """Return the error for a session whose process never became ready."""
    if isinstance(reason, StartFailedReason) and reason.stage == SANDBOX_STAGE:
        layer, _, why = reason.message.partition(": ")
        return SandboxUnavailable(layer, why)
    return StartFailed(reason)


class AgentAborted(SessionError):
    """The cycle was aborted by a caller, a plugin or a limit; ``reason`` is theirs, or None."""

    code = "agent_aborted"
    fields: ClassVar[Mapping[str, Any]] = {"reason": Any}

    def __init__(self, reason: Any) -> None:  # Any: plain data of whoever aborted it
        """Keep the reason."""
        self.reason = reason
        why = shown(reason, REASON_CHARS_MAX) or "no reason given"
        super().__init__(f"the cycle was aborted: {why}")


class GuardrailTripped(AgentAborted):
    """A guardrail ended the cycle, or could not say that all is well.

    ``guardrail`` is its name, ``side`` what it looks at, "input" or "output"; ``reason`` and
    ``info`` are its own.
    """

    code = "guardrail_tripped"
    fields: ClassVar[Mapping[str, Any]] = {
        "guardrail": str, "side": str, "reason": str, "info": Any,
    }  # fmt: skip

    def __init__(self, guardrail: str, side: str, reason: str, info: Any = None) -> None:
        """Keep all of it (Any: the application's own)."""
        self.guardrail, self.side, self.info = guardrail, side, info
        super().__init__(f"the {side} guardrail {guardrail} tripped: {reason}")
        self.reason = reason


def aborted(reason: Any) -> AgentAborted:  # Any: plain data of whoever aborted it
    """Return the error of a cycle that was aborted for this reason."""
    if isinstance(reason, dict) and reason.keys() == GuardrailTripped.fields.keys():
        return GuardrailTripped(**reason)
    return AgentAborted(reason)


class AgentFailed(SessionError):
    """The provider or the kernel failed for good in this cycle; ``reason`` says how."""

    code = "agent_failed"
    fields: ClassVar[Mapping[str, Any]] = {"reason": str}

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        self.reason = reason
        super().__init__(f"the cycle failed: {reason}")


class ResultInvalid(AgentFailed):
    """No answer had the form that was asked for, the one to the wish for another included.

    ``text`` is the last answer, ``problems`` has a line for each thing that is wrong with it.
    """

    code = "result_invalid"
    fields: ClassVar[Mapping[str, Any]] = {"text": str, "problems": tuple[str, ...]}

    def __init__(self, text: str, problems: Sequence[str]) -> None:
        """Keep the answer and every problem."""
        self.text = text
        self.problems = tuple(_cut(problem, PROBLEM_CHARS_MAX) for problem in problems)
        wrong = "; ".join(self.problems)
        super().__init__(f"the answer does not fit result= or response_format: {wrong}")


class SteeringRejected(SessionError):
    """A plugin refused the steering; ``reason`` is its word."""

    code = "steering_rejected"
    fields: ClassVar[Mapping[str, Any]] = {"reason": Any}

    def __init__(self, reason: Any) -> None:  # Any: plain data of the plugin
        """Keep the reason."""
        self.reason = reason
        super().__init__(f"the steering was rejected: {shown(reason, REASON_CHARS_MAX)}")


class CheckpointFailed(SessionError):
    """``redact`` refused or killed its process, there is no room, or the backend failed.

    No checkpoint was made then, none was read, or none deleted.
    """

    code = "checkpoint_failed"


class CommandDropped(SessionError):
    """Processes died one after the other with the command in hand; no other one is given it.

    It may be what they died of. Whoever asks anew has another try.
    """

    code = "command_dropped"


class ExtensionError(CmdcError):
    """What a tool, plugin, provider or store could not do, or was refused; the text says why.

    Its author raises it too, and the model may read its text: the error itself keeps it as it was
    given. Where an agent shows it, or any other failure of a tool or plugin, the text is bounded,
    and the credentials of the session are hidden in it.
    """

    code = "extension"

    def __init__(self, *args: object) -> None:
        """Keep the arguments as they are."""
        Exception.__init__(self, *args)


class ProtocolError(CmdcError):
    """A frame broke the wire contract."""

    code = "protocol"


def _cut(text: str, chars_max: int) -> str:
    """Return both ends of a text, whoever wrote it, without the credentials of its addresses."""
    return ends_of(text_shown(ends_of(text, LOOKED_CHARS_MAX)), chars_max)


def _tree(root: type[CmdcError]) -> list[type[CmdcError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _tree(child))]


ERRORS_BY_CODE: Final[Mapping[str, type[CmdcError]]] = {
    error.code: error for error in _tree(CmdcError)
}
"""Wire code to class: a failure is re-raised in the client as the class it was in the worker."""
