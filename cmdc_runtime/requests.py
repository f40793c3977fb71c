"""Everything a client may ask of the daemon itself, and what it answers.

To add a request: its class here and its row in ``supervisor/api/handlers.py``.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from cmdc_runtime.checked_struct import (
    INDEX_MAX,
    STOP_REASON_CHARS_MAX,
    Checked,
    Cores,
    Count,
    MemoryBytes,
    Moment,
    Positive,
    RingEvents,
    Seconds,
    Silence,
)
from cmdc_runtime.checkpoints import CheckpointFacts
from cmdc_runtime.ids import CommandId, DownSeq, EventIndex, Incarnation, MonitorRef, SessionId
from cmdc_runtime.pages import Page
from cmdc_runtime.plain import text_problem
from cmdc_runtime.reasons import AnyReason, snake
from cmdc_runtime.redaction import printed, printed_fields

RestartType = Literal["permanent", "transient", "temporary"]
SessionPhase = Literal["starting", "up", "restarting", "hibernated", "stopping", "ended", "parked"]


class Supervision(msgspec.Struct, frozen=True, kw_only=True):
    """How the daemon keeps one session; the words are OTP's.

    Times are seconds, ``memory_limit`` is bytes, ``cpu_limit`` is cores. None: no limit.
    """

    restart: RestartType = "transient"
    max_restarts: Count = 3
    max_seconds: Moment = 5.0
    restart_delay: tuple[Seconds, Seconds] = (0.1, 5.0)
    shutdown: Seconds | None = 5.0
    start_timeout: Seconds = 30.0
    unresponsive_after: Silence = 30.0
    memory_limit: MemoryBytes | None = None
    cpu_limit: Cores | None = None
    max_processes: Positive | None = None
    max_open_files: Positive | None = None
    event_buffer_size: RingEvents = 1000


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon knows about a session without asking it.

    ``created_ms`` sets it apart from another that had or will have its id, and ``ended_ms`` is when
    it ended, 0 where it has not or nobody knows; wall times. ``asleep`` is the status
    with which its agent fell asleep, while it sleeps; opaque to the daemon. ``own_checkpoints`` are
    in a backend of the application's own: the session is asked for them, and not the journal.
    """

    session_id: SessionId
    phase: SessionPhase
    incarnation: Incarnation
    restarts: int
    pid: int | None
    parent_id: SessionId | None
    group_id: str | None
    last_index: EventIndex
    reason: AnyReason | None = None
    created_ms: int = 0
    asleep: bytes = b""
    ended_ms: int = 0
    own_checkpoints: bool = False


class TreeNode(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One node of the supervision tree; ``strategy`` is empty for a worker."""

    id: str
    kind: Literal["supervisor", "worker"]
    strategy: str = ""
    restart: str = ""
    pid: int | None = None
    state: str = ""
    restarts: int = 0
    children: tuple["TreeNode", ...] = ()


class LayerFact(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds one kind of bound of sessions (``memory``, ``kill``, ...), and why nobody better.

    ``by`` is cgroup v2, cgroup v1, rlimit, watch, process session, or none.
    """

    what: str
    by: str
    why: str


class StartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How processes become agents: ``at_once`` of them may, and ``waiting`` would.

    ``peak`` is the most that were about to become one together. ``alarms`` counts how often so many
    waited that it was published, which is over when none waits any more.
    """

    at_once: int
    waiting: int
    peak: int
    alarms: int


class DaemonFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers; ``nursery`` is ready, warming, or lost and why.

    ``journal`` is open, or else full or failed and why. ``notices`` steps by 1 with each Down
    notice to the client that asks: one that has counted fewer since the answer before has lost
    some. None where no client asks. ``cut_connections`` counts those that cost too much memory,
    ``lost_log_lines`` those lines of its log that could not be written in time. ``starts`` is None
    of a daemon that does not count them. ``log`` is the file that its log goes to, empty where that
    is none.
    """

    pid: int
    instance: str
    version: str
    nursery: str
    sessions: int
    spares: int
    events_address: str
    refused_frames: int
    notices: int | None = None
    layers: tuple[LayerFact, ...] = ()
    journal: str = "open"
    cut_connections: int = 0
    lost_log_lines: int = 0
    starts: StartFacts | None = None
    log: str = ""


class ReplayedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Events ``first`` to ``first + count - 1``, encoded."""

    first: EventIndex
    count: int
    body: bytes


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the range asked for, in order; ``last`` is the session's newest index.

    ``through`` says how far this answer reaches: ask again from there for more.
    """

    batches: tuple[ReplayedBatch, ...]
    through: EventIndex
    last: EventIndex


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=snake):
    """Base of all requests."""

    answer: ClassVar[Any] = None  # Any: a type, as msgspec takes it
    changes: ClassVar[bool] = True
    """It has an effect; else it only asks."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session's history begins: with a checkpoint, or with all that another one recorded.

    A session that ended may go on from its own.
    """

    session_id: SessionId
    checkpoint_id: str | None = None


class StartSession(Request, frozen=True, kw_only=True):
    """Start a session; answered when its agent is ready. ``agent`` is opaque to the daemon.

    A session with a parent ends with the parent's process; ``parent_incarnation`` names the one
    that asks, so that what a dead process had still asked for is not started. ``start_id`` is the
    caller's own, one for each start: who asks again, because the answer was lost, is answered as
    before, also by the next daemon. An empty one is no name. ``keys`` are not journaled.
    """

    __repr__ = printed
    __rich_repr__ = printed_fields
    answer: ClassVar[Any] = SessionInfo
    called: ClassVar[str] = "the request that starts a session"

    session_id: SessionId
    supervision: Supervision
    agent: msgspec.Raw
    carries_code: bool
    parent_id: SessionId | None = None
    parent_incarnation: Incarnation | None = None
    group_id: str | None = None
    origin: Origin | None = None
    start_id: str = ""
    keys: dict[str, str] = {}
    own_checkpoints: bool = False
    """See ``SessionInfo``."""


class StopSession(Request, frozen=True, kw_only=True):
    """End a session and its children; answered when no process of theirs is left.

    SIGKILL follows after ``timeout`` seconds.
    """

    session_id: SessionId
    reason: str = "normal"
    timeout: float = 5.0


def stop_reason_problem(reason: object) -> str | None:
    """Return what is wrong with the reason of a stop: it is a line that everybody reads."""
    return text_problem(reason, chars_max=STOP_REASON_CHARS_MAX, one_line=True)


class FindSession(Request, frozen=True, kw_only=True):
    """Answer what the daemon knows about one session."""

    answer: ClassVar[Any] = SessionInfo
    changes: ClassVar[bool] = False

    session_id: SessionId


class ListSessions(Request, frozen=True, kw_only=True):
    """Answer what the daemon knows about all live sessions, or about those of one group."""

    answer: ClassVar[Any] = tuple[SessionInfo, ...]
    changes: ClassVar[bool] = False

    group_id: str | None = None


class ListInactive(Request, frozen=True, kw_only=True):
    """Answer the sessions that are not alive: the parked ones, and of the ended the newest.

    The reason of a parked one says why it could not be taken over.
    """

    answer: ClassVar[Any] = tuple[SessionInfo, ...]
    changes: ClassVar[bool] = False


class GetTree(Request, frozen=True, kw_only=True):
    """Answer the supervision tree."""

    answer: ClassVar[Any] = TreeNode
    changes: ClassVar[bool] = False


class GetFacts(Request, frozen=True, kw_only=True):
    """Answer who the daemon is and how it stands."""

    answer: ClassVar[Any] = DaemonFacts
    changes: ClassVar[bool] = False


class Monitored(msgspec.Struct, frozen=True, kw_only=True):
    """The monitor is set; ``since`` is the newest Down that is not for it."""

    since: DownSeq


class Monitor(Request, frozen=True, kw_only=True):
    """Send a Down notice when the session's process ends; ``persistent`` means every process.

    ``since`` is None when the monitor is new. Who sets it again, because a notice was lost or
    another daemon took over, names the newest Down that it has had, or else what the first answer
    said: what was recorded after that is sent at once.
    """

    answer: ClassVar[Any] = Monitored

    session_id: SessionId
    ref: MonitorRef
    persistent: bool = False
    since: Annotated[DownSeq, Meta(ge=0, le=INDEX_MAX)] | None = None


class Demonitor(Request, frozen=True, kw_only=True):
    """Forget a monitor; after the answer no Down of it follows."""

    ref: MonitorRef


class KeepCheckpoint(Request, frozen=True, kw_only=True):
    """Keep what an agent has saved, in the place of a checkpoint of the same id.

    A long body comes in pieces, in their order: this one begins at ``offset`` of ``size`` bytes,
    and nothing is kept before the last one. 0 where this is all of it.
    """

    facts: CheckpointFacts
    body: bytes
    offset: int = 0
    size: int = 0


class ResizeBuffer(Request, frozen=True, kw_only=True):
    """Keep so many of a session's newest events for replays from now on; 0: none.

    It holds until the session is started anew, or the daemon.
    """

    session_id: SessionId
    events: RingEvents


class ListCheckpoints(Request, frozen=True, kw_only=True):
    """Answer the checkpoints of a session, newest first."""

    answer: ClassVar[Any] = tuple[CheckpointFacts, ...]
    changes: ClassVar[bool] = False

    session_id: SessionId


class CheckpointFound(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint with its body."""

    facts: CheckpointFacts
    body: bytes


class GetCheckpoint(Request, frozen=True, kw_only=True):
    """Answer one checkpoint, or with None the newest."""

    answer: ClassVar[Any] = CheckpointFound
    changes: ClassVar[bool] = False

    session_id: SessionId
    checkpoint_id: str | None = None


class DeleteCheckpoint(Request, frozen=True, kw_only=True):
    """Delete one checkpoint, or with None all of the session; none to delete is no error."""

    session_id: SessionId
    checkpoint_id: str | None = None


class SessionDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is started from; ``agent`` is opaque to the daemon."""

    agent: msgspec.Raw
    group_id: str | None
    is_alive: bool


class GetDefinition(Request, frozen=True, kw_only=True):
    """Answer what a session was started from, also one that has ended."""

    answer: ClassVar[Any] = SessionDefinition
    changes: ClassVar[bool] = False

    session_id: SessionId


class KeepBlob(Request, frozen=True, kw_only=True):
    """Keep the bytes of an image or a file for a session, by their SHA-256 in hex.

    Long ones come in pieces, as those of a checkpoint do.
    """

    session_id: SessionId
    digest: str
    body: bytes
    offset: int = 0
    size: int = 0


class BlobFound(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of an image or a file; None: the session holds none of this digest."""

    body: bytes | None


class GetBlob(Request, frozen=True, kw_only=True):
    """Answer the bytes of an image or a file that a session holds."""

    answer: ClassVar[Any] = BlobFound
    changes: ClassVar[bool] = False

    session_id: SessionId
    digest: str


class ListBlobs(Request, frozen=True, kw_only=True):
    """Answer the digests and sizes of the images and files that a session holds."""

    answer: ClassVar[Any] = tuple[tuple[str, int], ...]
    changes: ClassVar[bool] = False

    session_id: SessionId


class PutPart(Request, frozen=True, kw_only=True):
    """Take part ``number``, from 0, of a session's file; see ``transfer``."""

    import_id: str
    number: int
    frame: bytes


class FinishImport(Request, frozen=True, kw_only=True):
    """Start the session whose file has come in, under ``as_id`` if it is not to have its own."""

    answer: ClassVar[Any] = SessionInfo

    import_id: str
    as_id: SessionId | None = None


class BackupFacts(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """A backup that was made: where, how large, and how many sessions are in it, ended ones too.

    ``made_ms`` is wall time: what was acknowledged before the call is in it, and some of what came
    until then. ``device`` and ``inode`` say which file it is.
    """

    file: str
    size_bytes: int
    sessions: int
    made_ms: int
    device: int
    inode: int


class BackUp(Request, frozen=True, kw_only=True):
    """Copy the journal to a file, while sessions work; answered when it is durable there.

    ``file`` is an absolute path as the daemon sees it. A former backup there is replaced, any other
    file only with ``force``.
    """

    answer: ClassVar[Any] = BackupFacts

    file: str
    force: bool = False


class Replay(Request, frozen=True, kw_only=True):
    """Answer the events after ``after``, up to and including ``through``."""

    answer: ClassVar[Any] = Replayed
    changes: ClassVar[bool] = False

    session_id: SessionId
    after: Annotated[EventIndex, Meta(ge=0, le=INDEX_MAX)]
    through: Annotated[EventIndex, Meta(ge=0, le=INDEX_MAX)]


class PastRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record of a session, as its agent wrote it."""

    seq: int
    incarnation: Incarnation
    kind: str
    body: bytes


class PastCommand(msgspec.Struct, frozen=True, array_like=True):
    """One accepted command; ``answer`` is None while it has none. ``seq`` counts with the records.

    ``at_ms`` is when it was accepted, wall time.
    """

    seq: int
    id: CommandId
    at_ms: int
    body: bytes
    answer: bytes | None


class PastPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what the journal keeps of a session; of the parts only the one asked for is there.

    ``spec`` is the request that started it. ``snapshot`` is the state after record
    ``snapshot_seq``, from which ``records`` go on, empty where they reach back to the start.
    ``is_last``: nothing of the part follows.
    """

    spec: bytes = b""
    snapshot: bytes = b""
    snapshot_seq: int = 0
    records: tuple[PastRecord, ...] = ()
    commands: tuple[PastCommand, ...] = ()
    is_last: bool = True


PastPart = Literal["spec", "snapshot", "records", "commands"]


class ReadPast(Request, frozen=True, kw_only=True):
    """Answer a part of what the journal keeps of a session, live or ended; its events apart.

    Records and commands are those whose ``seq`` is above ``after``, as many as fit into an answer.
    """

    answer: ClassVar[Any] = PastPage
    changes: ClassVar[bool] = False

    session_id: SessionId
    part: PastPart
    after: Annotated[int, Meta(ge=0, le=INDEX_MAX)] = 0


class ReadPage(Request, frozen=True, kw_only=True):
    """Answer what follows the first ``offset`` bytes of an answer that came as ``Paged``."""

    answer: ClassVar[Any] = Page
    changes: ClassVar[bool] = False

    page_id: str
    offset: int
