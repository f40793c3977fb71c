"""Emits that the kernel acts on: a plugin's orders to its session.

``Emit(UpdateSystemContext(key="plan", text="..."))`` changes the system prompt; observers are not
told of these. Each is a Struct whose snake_case name is that of the emit; a payload that does not
fit it is a bad action, and counts as a failure of the plugin.

To add one: a class here, in ``AnyKernelEmit`` too, and its row in ``workers.core.kernel_emits``.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.ids import CallId, MessageId
from cmdc_runtime.reasons import snake

ApprovalOption = Literal["approve_once", "approve_always", "reject_once"]
APPROVAL_OPTIONS: Final[tuple[ApprovalOption, ...]] = get_args(ApprovalOption)
APPROVAL_TIMEOUT_S: Final = 120.0
"""After which a call that is held counts as rejected, unless its plugin says otherwise."""
APPROVAL_TIMEOUT_S_MAX: Final = 30 * 86_400.0
SYSTEM_MESSAGE_ID: Final = MessageId("m-0")
"""The system prompt, where a message's id is asked for."""

_Key = Annotated[str, Meta(min_length=1, max_length=128)]


class KernelEmit(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=Checked
):
    """Base of all emits that the kernel acts on."""


class MemoryContents(KernelEmit, frozen=True, kw_only=True):
    """Show these memory files in the system prompt, in place of those shown so far."""

    contents: dict[_Key, str]
    """What is in each, by its name."""


class UpdateSystemContext(KernelEmit, frozen=True, kw_only=True):
    """Set a section of the system prompt, or remove it: an empty ``text``."""

    key: _Key
    """The section's title; one of a key there is."""
    text: str


class SyntheticResult(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """The result that a call without one gets."""

    call_id: CallId
    content: str
    is_error: bool = True


class SyntheticToolResults(KernelEmit, frozen=True, kw_only=True):
    """Give calls of the conversation that have no result, and do not run, one for good."""

    results: tuple[SyntheticResult, ...]


class MetadataUpdate(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Keys to set in the metadata of one message; None removes a key."""

    id: MessageId
    """``SYSTEM_MESSAGE_ID`` is the system prompt."""
    metadata: dict[_Key, Any]  # Any: whatever MessagePack takes


class UpdateMessageMetadata(KernelEmit, frozen=True, kw_only=True):
    """Change what is noted beside messages; providers read ``cache_control``."""

    updates: tuple[MetadataUpdate, ...]


class RequireApproval(KernelEmit, frozen=True, kw_only=True):
    """Let the call of this ``before_tool`` run only when a person has approved it.

    A call that has been approved runs; so the plugin may ask for each, and for each again. At any
    other hook it is a bad action.
    """

    hint: str = ""
    """Why, in words for the person."""
    family: Annotated[str, Meta(max_length=128)] = ""
    """What "approve_always" allows besides: calls of the tool that the plugin counts to it;
    it looks in ``always_approved`` by itself. Empty is the whole tool."""
    hold: bool = False
    """Keep the call waiting, and run it when it is approved; else it ends with an error result, the
    cycle rests, and an approval opens a new one."""
    timeout_s: Annotated[float, Meta(gt=0, le=APPROVAL_TIMEOUT_S_MAX)] | None = None
    """Seconds after which it counts as rejected; None waits for ever."""
    options: Annotated[tuple[ApprovalOption, ...], Meta(min_length=1)] = APPROVAL_OPTIONS
    """What the person may decide."""


class DecideApproval(KernelEmit, frozen=True, kw_only=True):
    """Decide an approval that waits, as ``approve`` and ``reject`` do, without opening a cycle."""

    approval_id: str
    decision: Literal["approve_once", "approve_always", "reject"]


AnyKernelEmit: TypeAlias = (
    MemoryContents
    | UpdateSystemContext
    | SyntheticToolResults
    | UpdateMessageMetadata
    | RequireApproval
    | DecideApproval
)
KERNEL_EMITS: Final[dict[str, type[KernelEmit]]] = {
    snake(kind.__name__): kind for kind in get_args(AnyKernelEmit)
}
"""Every emit that the kernel acts on, by its name."""
