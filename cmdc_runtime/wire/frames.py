"""Wire envelopes: who, which request, in what order. Bodies are opaque here (``msgspec.Raw``).

A message to the daemon is ``[HEADER, frame]``; a frame that says so is followed by one more part. A
worker may put several frames into one message: they arrive together or not at all. A message from
the daemon to a client or a worker is one part, the header with the frame behind it (``to_dealer``).
There is one base class for each direction; the codec derives each closed union from its subclasses.
A change of this file is a change of ``WIRE_VERSION`` and of docs/wire.md.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import INCARNATION_MAX, INDEX_MAX, NAME_CHARS_MAX, Milliseconds
from cmdc_runtime.ids import (
    SESSION_ID,
    CommandId,
    DownSeq,
    EventIndex,
    Incarnation,
    SessionId,
    WorkerId,
)
from cmdc_runtime.reasons import AnyReason, Down, PlainReason, snake
from cmdc_runtime.redaction import printed, printed_fields

WIRE_VERSION: Final = 4
MAGIC: Final = b"cmdc"
HEADER: Final = MAGIC + bytes([WIRE_VERSION])

GROUP_TOPIC: Final = b"@"
"""What the topic of a group begins with; no session id does."""
TOPIC_BYTES_MAX: Final = len(GROUP_TOPIC) + 4 * NAME_CHARS_MAX + 1
"""Of the longest topic, a group's; a character takes four bytes at most."""
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest part of a message that any socket takes."""
ASKED_BYTES_MAX: Final = FRAME_BYTES_MAX - 256 * 1024
"""Of what a client sends: who passes it on has fields of its own to add."""
COMMAND_ID_CHARS_MAX: Final = 1024
"""Of the id of a request, under which its outcome is filed."""
BATCH_EVENTS_MAX: Final = 512
"""Events of one batch."""


def to_dealer(frame: bytes) -> tuple[bytes]:
    """Return the one part that carries ``frame`` to a DEALER.

    libzmq ends the process of a DEALER with ``IMMEDIATE`` whose connection is lost between two
    parts of a message that it reads (ADR 0045).
    """
    return (HEADER + frame,)


def of_router(parts: Sequence[bytes]) -> bytes | None:
    """Return the frame of a message that a DEALER has got, None where it is not one of ours."""
    is_ours = len(parts) == 1 and parts[0].startswith(HEADER)
    return parts[0][len(HEADER) :] if is_ours else None


# What a peer may say, by type: the decoders refuse the rest, so nobody behind them has to.
Index: TypeAlias = Annotated[EventIndex, Meta(ge=1, le=INDEX_MAX)]
WriteNumber: TypeAlias = Annotated[int, Meta(ge=1, le=INDEX_MAX)]
Generation: TypeAlias = Annotated[Incarnation, Meta(ge=1, le=INCARNATION_MAX)]
BatchCount: TypeAlias = Annotated[int, Meta(ge=1, le=BATCH_EVENTS_MAX)]
Word: TypeAlias = Annotated[str, Meta(max_length=64, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
SessionName: TypeAlias = Annotated[SessionId, Meta(pattern=SESSION_ID)]
WorkerName: TypeAlias = Annotated[WorkerId, Meta(max_length=64, pattern=r"^[!-~]+\Z")]
ServerKey: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
CommandName: TypeAlias = Annotated[
    CommandId, Meta(max_length=COMMAND_ID_CHARS_MAX, pattern=r"^[^\x00]*\Z")
]


class FromClient(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Client to daemon."""


class Ask(FromClient, frozen=True, kw_only=True, array_like=True):
    """A request to the daemon itself; ``body`` is one of ``requests``.

    ``token`` is what lies in the runtime directory: a person shows it, an agent need not.
    """

    id: CommandName
    body: msgspec.Raw
    token: str = ""
    again: bool = False
    """One of this id was sent before, and may have been taken, whatever becomes of this one."""


class Send(FromClient, frozen=True, kw_only=True, array_like=True):
    """A command to one session; ``body`` is one of ``commands``, which the daemon never opens.

    ``token`` and ``again`` are as in ``Ask``.
    """

    id: CommandName
    session_id: SessionId
    durable: bool
    body: msgspec.Raw
    carries_code: bool = False
    looks: bool = False
    """It changes nothing, and wakes nobody."""
    token: str = ""
    again: bool = False
    waits: bool = False
    """It is for what the session does by itself, and wakes nobody."""
    ends: bool = False
    """It only ends work: where the journal has no room it is done and answered without it."""
    reads_ended: bool = False
    """What ``looks`` is answered from the journal where the session has ended."""


class ToClient(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Daemon to client."""


class ValueReply(ToClient, frozen=True, kw_only=True, array_like=True, tag="reply"):
    """The answer to one Ask or Send."""

    id: CommandId
    body: msgspec.Raw
    unsaved: bool = False
    """It shows steps that wait for room on the disk: daemon and agent could still forget them.
    Only an answer to what ``looks`` may."""


class PagedReply(ToClient, frozen=True, kw_only=True, array_like=True, tag="paged"):
    """The first bytes of an answer that is too long for a frame; ``page_id`` names the rest.

    It is read with ``NextPage`` where a session was asked, and with ``ReadPage`` else.
    """

    id: CommandId
    body: bytes
    page_id: str


class FailedReply(ToClient, frozen=True, kw_only=True, array_like=True, tag="failed"):
    """The failure of one Ask or Send; the client raises the class of ``code``.

    An empty ``id`` answers a frame that could not be read.
    """

    id: CommandId
    code: str
    message: str
    details: msgspec.Raw


class Notify(ToClient, frozen=True, kw_only=True, array_like=True):
    """A monitored process ended; ``seq`` is the number of the record, None where there is none.

    ``after`` is the newest recorded Down that this monitor was sent before: one that has not had it
    has lost some. At first it is what ``Monitored`` says. ``number`` counts the notices to this
    client: one that comes twice counts once, and one that is missing is noticed.
    """

    down: Down
    seq: DownSeq | None = None
    after: DownSeq = DownSeq(0)
    number: int = 0


class ToWorker(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Daemon to worker."""


class Assign(ToWorker, frozen=True, kw_only=True, array_like=True):
    """Become the agent of a session; its ``History`` frames follow."""

    __repr__ = printed
    __rich_repr__ = printed_fields

    session_id: SessionId
    incarnation: Incarnation
    restarts: int
    next_index: EventIndex
    agent: msgspec.Raw
    parent_id: SessionId | None
    group_id: str | None
    last_reason: AnyReason | None
    unresponsive_after: float = 30.0
    max_open_files: int | None = None
    looks: bool = False
    """Be no agent, only answer how it stands: nothing is recorded or gone on with."""
    set_aside: tuple[int, ...] = ()
    """Steps of rebuilding that have killed processes before: they are left out."""
    is_contained: bool = True
    """False: it is not in its cgroup yet; ``Contained`` follows, and no tool runs before that."""
    keys: dict[str, str] = {}
    """Keys of providers, for requests that have none."""
    state_dir: str = ""
    """The daemon's folder for what outlives it; "": an older daemon does not say."""


class Contained(ToWorker, frozen=True, kw_only=True, array_like=True):
    """The agent is in its cgroup, and so is what it starts from now on: tools may run."""


MISPLACED: Final = "?"
"""The kind of a record whose number in the journal is none: who reads it does not apply it."""
MISSING: Final = "-"
"""The kind of what stands for rows that are gone from the journal; its body says which."""


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One durable record of a session."""

    kind: Word
    body: bytes


class JournalCommand(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One accepted command that has no answer yet."""

    id: CommandId
    body: bytes


class History(ToWorker, frozen=True, kw_only=True, array_like=True):
    """A slice of the session's journal, oldest first; the unanswered commands come last.

    The first slices have the ``snapshot`` that all records come after, piece by piece, if there is
    one.
    """

    records: tuple[JournalRecord, ...]
    commands: tuple[JournalCommand, ...]
    complete: bool
    snapshot: bytes = b""


class Deliver(ToWorker, frozen=True, kw_only=True, array_like=True):
    """A command; a durable one is in the journal already."""

    id: CommandId
    body: msgspec.Raw
    durable: bool


class Written(ToWorker, frozen=True, kw_only=True, array_like=True):
    """Every Write up to this ``number`` is in the journal, every event up to ``index`` is out.

    A worker keeps what is not acknowledged so, to send it again to the next daemon.
    """

    number: int
    index: EventIndex


OWN_SLOT: Final = -1


class Adopted(ToWorker, frozen=True, kw_only=True, array_like=True):
    """A new daemon takes over a running agent, which sends again what was not ``written``.

    ``output_id`` names it to the new daemon's output socket. ``slot`` is ``OWN_SLOT`` for an agent
    that brings the memory of its slot there; for another one, which a daemon of an earlier release
    knows alone, it is its slot in the file of heartbeats in the runtime directory.
    """

    daemon_pid: int
    written: int
    slot: int
    output_id: WorkerId


class HostLost(ToWorker, frozen=True, kw_only=True, array_like=True):
    """The tool host that was asked for at ``address`` can't be had or has ended.

    ``message`` says why.
    """

    address: str
    message: str


class HostServer(ToWorker, frozen=True, kw_only=True, array_like=True):
    """Be the host of the MCP server that is called ``key``, for the sessions that share it.

    It listens at ``address``, and hears who shows the ``token``. ``name`` and ``generation`` are
    the mark of what it starts, as a session's id and incarnation are. After ``linger_s`` seconds
    without anybody it ends.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    key: str
    name: str
    generation: Incarnation
    address: str
    token: str
    linger_s: float


class ServerFound(ToWorker, frozen=True, kw_only=True, array_like=True):
    """Where the host of a shared MCP server listens that was wanted, or why there is none.

    The process ``pid`` listens there.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields

    key: str
    address: str = ""
    token: str = ""
    pid: int = 0
    problem: str = ""


class Attend(ToWorker, frozen=True, kw_only=True, array_like=True):
    """Be ``Ready`` once more: a spare is asked so whether it lives, before it is handed out."""


class Terminate(ToWorker, frozen=True, kw_only=True, array_like=True):
    """End politely; SIGTERM and SIGKILL follow."""

    reason: str
    over: bool = False
    """The session ends with the process: no other one goes on with it."""


class FromWorker(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Worker to daemon; it speaks for the session that its connection was assigned to."""


class Ready(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The process is up and waits for an Assign; the answer to ``Attend``, too."""

    pid: int


class Started(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The agent is complete and takes commands."""


class NotStarted(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The agent cannot be built; the process ends with EXIT_BAD_OPTIONS."""

    stage: str
    message: str


class Answer(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The answer to a command that is not durable; with a ``page_id`` the beginning of it."""

    id: CommandName
    body: bytes
    page_id: Word = ""


class Refusal(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The failure of a command that is not durable."""

    id: CommandName
    code: Word
    message: str
    details: bytes


class Completed(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome of one durable command: a ValueReply or FailedReply, encoded for the client."""

    id: CommandName
    frame: bytes


class Detached(FromWorker, frozen=True, kw_only=True, array_like=True, tag="adrift"):
    """An agent whose daemon is gone announces itself to the next one, to be adopted.

    ``worker_id`` is what the daemon that forked it called it; ``first`` is the oldest event that it
    can send again, or else the next one.
    """

    worker_id: WorkerName
    session_id: SessionName
    incarnation: Generation
    first: Index


class Write(FromWorker, frozen=True, kw_only=True, array_like=True):
    """Records and outcomes for the journal, one transaction.

    The writes of an incarnation are numbered from 1, and one that comes twice counts once.
    ``snapshot`` is the state after these records and all before; empty for none.
    """

    records: tuple[JournalRecord, ...]
    completed: tuple[Completed, ...]
    number: WriteNumber
    snapshot: bytes = b""


class Batch(FromWorker, frozen=True, kw_only=True, array_like=True):
    """Events ``first`` to ``first + count - 1``; one more part holds them, encoded.

    The same two parts, behind the topic, are what subscribers get.
    """

    first: Index
    count: BatchCount
    durable: bool


class HostWanted(FromWorker, frozen=True, kw_only=True, array_like=True):
    """Start a tool host for this session; it connects to the Unix socket at ``address``."""

    address: str


class ServerWanted(FromWorker, frozen=True, kw_only=True, array_like=True):
    """Have a host for the MCP server that is called ``key``, the digest of what it is.

    The answer is ``ServerFound``. Who connects to it is known to the host alone.
    """

    key: ServerKey


class LitellmWanted(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The session's model is asked by litellm, which this process does not have.

    Of one that is not up: nothing was recorded or published, and another process takes its place.
    Else that holds for the next one.
    """


class SdkImported(FromWorker, frozen=True, kw_only=True, array_like=True):
    """The session has MCP servers, and this process had to import their SDK, which takes 1 s."""


class IdleNotice(FromWorker, frozen=True, kw_only=True, array_like=True, tag="doze"):
    """The session has been idle for long: its process can be given up if nobody waits for it.

    ``status`` is how it stands, for whoever asks while it hibernates; opaque to the daemon.
    """

    status: bytes = b""


class ExitNotice(FromWorker, frozen=True, kw_only=True, array_like=True, tag="last_words"):
    """Why the process is about to end, as it knows it."""

    reason: PlainReason


class Published(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Daemon to subscribers, behind the topic and the header."""


class Events(Published, frozen=True, kw_only=True, array_like=True):
    """Events ``first`` to ``first + count - 1``; one more part holds them, encoded."""

    first: EventIndex
    count: int


class Watermark(Published, frozen=True, kw_only=True, array_like=True):
    """The newest index of the topic's session; it answers a subscription, and shows lost events."""

    last: EventIndex


class Joined(Published, frozen=True, kw_only=True, array_like=True):
    """A session of the topic's group is about to start; the numbers of a group step by 1.

    Watermarks of the topic have the newest number.
    """

    session_id: SessionId
    number: int


class EventEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One event inside a batch."""

    at_ms: Milliseconds
    event: msgspec.Raw


def topic_of(session_id: SessionId) -> bytes:
    """Return the topic of one session; the NUL keeps ``s1`` from matching ``s10``."""
    return session_id.encode() + b"\0"


def group_topic_of(group_id: str) -> bytes:
    """Return the topic of one group."""
    return GROUP_TOPIC + group_id.encode() + b"\0"
