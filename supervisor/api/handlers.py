"""What the daemon answers to each request: one table, request -> coroutine.

To add a request: its class in ``cmdc_runtime/requests.py`` and its row here.

A session's past is answered in parts of bounded size. A start or a stop may be asked for again,
since the answer to a request is lost with the connection, or with the daemon that gave it; what was
answered once holds for every daemon. So a start is known by the id that its caller gave it, which
the journal keeps with the session, and a stop is answered when the journal has it: the next daemon
would go on with the session otherwise.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cmdc_runtime import requests
from cmdc_runtime.checked_struct import COMMAND_VALUES_MAX, NAME_CHARS_MAX
from cmdc_runtime.checkpoints import CheckpointFacts
from cmdc_runtime.errors import (
    AccessDenied,
    DaemonUnavailable,
    InvalidSession,
    SessionNotAlive,
    UsageError,
    start_error,
)
from cmdc_runtime.ids import EventIndex, SessionId
from cmdc_runtime.message_parts import PART_BYTES_MAX
from cmdc_runtime.pages import Page, Pages
from cmdc_runtime.plain import VALUES_MAX, packed_problem, text_problem
from cmdc_runtime.reasons import AnyReason, Other
from cmdc_runtime.reasons import StartFailed as StartFailedReason
from cmdc_runtime.requests import (
    DaemonFacts,
    PastCommand,
    PastPage,
    PastPart,
    PastRecord,
    Replayed,
    SessionInfo,
    StartSession,
    TreeNode,
)
from cmdc_runtime.wire.codec import decode_as, encode
from supervisor.adapters.hub import Hub
from supervisor.adapters.journal.base import Past
from supervisor.adapters.journal.operations import (
    FindBlob,
    FindSession,
    ListBlobs,
    ReadHistoryPart,
)
from supervisor.api import transfer
from supervisor.api.backups import Backups
from supervisor.api.transfer import Imports, begin_imported
from supervisor.core.limits import HISTORY_ITEMS_MAX, PAST_BYTES_MAX, STOP_TIMEOUT_S_MAX
from supervisor.core.session_tree import (
    AGENT,
    FULL_ZYGOTE,
    SERVERS,
    SESSIONS,
    SUBAGENTS,
    TOOL_HOST,
    ZYGOTE,
)
from supervisor.core.tree.specs import Strategy
from supervisor.sessions.assignment import spec_of
from supervisor.sessions.monitors import MonitorService
from supervisor.sessions.server_hosts import ServerHost
from supervisor.sessions.session import Session
from supervisor.sessions.sessions import Sessions

# --- a session's past in parts --------------------------------------------------------------------


def page_of(past: Past, part: PastPart, after: int) -> PastPage:
    """Return one part of ``past``, of records and commands those behind ``after``.

    At least one of them, if there is one, and else as many as ``PAST_BYTES_MAX`` and
    ``HISTORY_ITEMS_MAX`` allow.
    """
    return _PARTS[part](past, after)


def _spec(past: Past, _after: int) -> PastPage:
    return PastPage(spec=past.row.spec, snapshot_seq=past.snapshot_seq)


def _snapshot(past: Past, _after: int) -> PastPage:
    return PastPage(snapshot=past.snapshot, snapshot_seq=past.snapshot_seq)


def _records(past: Past, after: int) -> PastPage:
    left = [row for row in past.records if row.seq > after]
    fits = _fitting([len(row.body) for row in left])
    records = tuple(PastRecord(row.seq, row.incarnation, row.kind, row.body) for row in left[:fits])
    return PastPage(records=records, snapshot_seq=past.snapshot_seq, is_last=fits == len(left))


def _commands(past: Past, after: int) -> PastPage:
    left = [row for row in past.commands if row.seq > after]
    fits = _fitting([len(row.body) + len(row.answer or b"") for row in left])
    commands = tuple(
        PastCommand(row.seq, row.command_id, row.at_ms, row.body, row.answer) for row in left[:fits]
    )
    return PastPage(commands=commands, snapshot_seq=past.snapshot_seq, is_last=fits == len(left))


def _fitting(sizes: list[int]) -> int:
    """Return how many of these go into one answer, the first ones."""
    total = 0
    for count, size in enumerate(sizes[:HISTORY_ITEMS_MAX]):
        total += size
        if count and total > PAST_BYTES_MAX:
            return count
    return min(len(sizes), HISTORY_ITEMS_MAX)


_PARTS: Final[Mapping[PastPart, Callable[[Past, int], PastPage]]] = {
    "spec": _spec,
    "snapshot": _snapshot,
    "records": _records,
    "commands": _commands,
}


# --- starts and stops that are asked for again ----------------------------------------------------


async def started_before(sessions: Sessions, request: StartSession) -> SessionInfo | None:
    """Return what became of this very start if it was asked for before; waits until that is known.

    A session that has ended meanwhile is returned as one that has, but for a subagent: the parent
    who asks has given it nothing to do yet, and wants one that lives.

    Raises:
        StartFailed: its agent could not be started.
    """
    row = None
    if request.session_id not in sessions.live:
        row = await sessions.journal.read(FindSession(request.session_id))
    session = sessions.live.get(request.session_id)
    if session is not None:
        if session.spec.start_id != request.start_id:
            return None
        await asyncio.shield(session.started)
        return session.info()
    if row is None or row.reason is None or spec_of(row.spec).start_id != request.start_id:
        return None
    reason = decode_as(AnyReason, row.reason)
    if isinstance(reason, StartFailedReason):
        raise start_error(reason)
    if request.parent_id is not None:
        return None
    return await sessions.look_up(request.session_id)


async def check_end(sessions: Sessions, session_id: SessionId) -> None:
    """Return when the end of a session that was stopped is in the journal.

    Raises:
        DaemonUnavailable: it is not, because the daemon ends, too.
        TransientError: it could not be written.
    """
    row = await sessions.journal.read(FindSession(session_id))
    if row is not None and row.ended_ms is None and session_id not in sessions.live:
        raise DaemonUnavailable(
            f"the end of session {session_id} is not in the journal, so the next daemon goes on "
            "with it: stop it again there"
        )


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiContext:
    """What the handlers work with."""

    sessions: Sessions
    monitors: MonitorService
    hub: Hub
    accepts_code: bool
    facts: Callable[[], DaemonFacts]
    backups: Backups
    imports: Imports = field(default_factory=Imports)
    pieces: transfer.Pieces = field(default_factory=transfer.Pieces)
    blob_pieces: transfer.Pieces = field(
        default_factory=lambda: transfer.Pieces("an image or a file", PART_BYTES_MAX)
    )
    pages: Pages = field(default_factory=lambda: Pages(time.monotonic, encode))
    """Of the answers to requests that are too long for a frame."""


def check_code(context: ApiContext, *, carries_code: bool) -> None:
    """Refuse code by value where the daemon takes none.

    Raises:
        AccessDenied: it does not.
    """
    if carries_code and not context.accepts_code:
        raise AccessDenied(
            "this daemon takes no code by value (allow_code_by_value); install the tools where it "
            "runs and name them as 'module:name'"
        )


def _check_names(request: requests.StartSession) -> None:
    for name in ("group_id", "start_id"):
        text = getattr(request, name)
        problem = text_problem(text, chars_max=NAME_CHARS_MAX, one_line=True) if text else None
        if problem is not None:
            raise UsageError(f"{name}: {problem}")


def check_body(body: msgspec.Raw) -> None:
    """Refuse a command that could harm whoever opens it; what it says is the agent's to judge.

    Raises:
        UsageError: it nests too deep, has too many values, or is none.
    """
    if (problem := packed_problem(body, values_max=COMMAND_VALUES_MAX)) is not None:
        raise UsageError(f"the command's body: {problem}")


async def start_session(
    context: ApiContext, _client: bytes, request: requests.StartSession
) -> SessionInfo:
    """Start a session once, however often it is asked for, and answer when its agent is up."""
    check_code(context, carries_code=request.carries_code)
    _check_names(request)
    problem = await asyncio.to_thread(packed_problem, request.agent, values_max=VALUES_MAX)
    if problem is not None:
        raise UsageError(f"the agent's definition: {problem}")
    if request.start_id and (found := await started_before(context.sessions, request)) is not None:
        return found
    session = await context.sessions.start(request)
    return session.info()


async def stop_session(context: ApiContext, _client: bytes, request: requests.StopSession) -> None:
    """End a session and its children, and answer when that is written down, too."""
    if not 0 <= request.timeout <= STOP_TIMEOUT_S_MAX:
        raise UsageError(f"timeout: expected 0 to {STOP_TIMEOUT_S_MAX:g} s, got {request.timeout}")
    if (problem := requests.stop_reason_problem(request.reason)) is not None:
        raise UsageError(f"reason: {problem}")
    await context.sessions.stop(request.session_id, request.reason, request.timeout)
    await check_end(context.sessions, request.session_id)


async def find_session(
    context: ApiContext, _client: bytes, request: requests.FindSession
) -> SessionInfo:
    """Answer what is known of a session."""
    return await context.sessions.look_up(request.session_id)


async def list_sessions(
    context: ApiContext, _client: bytes, request: requests.ListSessions
) -> tuple[SessionInfo, ...]:
    """Answer all live sessions, or those of one group."""
    infos = (session.info() for session in context.sessions.live.values())
    return tuple(
        info
        for info in infos
        if info.phase != "ended" and request.group_id in {None, info.group_id}
    )


async def list_inactive(
    context: ApiContext, _client: bytes, _request: requests.ListInactive
) -> tuple[SessionInfo, ...]:
    """Answer the parked sessions, and of those that ended the newest."""
    return await context.sessions.inactive()


async def get_tree(context: ApiContext, _client: bytes, _request: requests.GetTree) -> TreeNode:
    """Answer the supervision tree."""
    return tree_of(context.facts(), context.sessions)


async def get_facts(context: ApiContext, client: bytes, _request: requests.GetFacts) -> DaemonFacts:
    """Answer who the daemon is, and how many notices it has sent to the client."""
    notices = context.monitors.notices(client)
    return msgspec.structs.replace(context.facts(), notices=notices)


async def monitor(
    context: ApiContext, client: bytes, request: requests.Monitor
) -> requests.Monitored:
    """Set a monitor for this client."""
    if (problem := text_problem(request.ref, chars_max=NAME_CHARS_MAX)) is not None:
        raise UsageError(f"ref: {problem}")
    return await context.monitors.set(request, client)


async def demonitor(context: ApiContext, _client: bytes, request: requests.Demonitor) -> None:
    """Forget a monitor."""
    context.monitors.demonitor(request.ref)


async def replay(context: ApiContext, _client: bytes, request: requests.Replay) -> Replayed:
    """Answer events again; of a live session none that its agent has still to send us."""
    found = await context.sessions.look_up(request.session_id)
    through = request.through
    if found.phase != "ended":
        through = EventIndex(min(through, found.last_index))
    return await context.hub.replay(request.session_id, request.after, through)


async def resize_buffer(
    context: ApiContext, _client: bytes, request: requests.ResizeBuffer
) -> None:
    """Keep another number of a living session's events."""
    if request.session_id not in context.sessions.live:
        found = await context.sessions.look_up(request.session_id)
        raise SessionNotAlive(found.reason or Other(detail="its reason is not known"))
    context.hub.resize(request.session_id, request.events)


async def keep_checkpoint(
    context: ApiContext, _client: bytes, request: requests.KeepCheckpoint
) -> None:
    """Keep what an agent has saved."""
    await transfer.keep(context.sessions, context.pieces, request)


async def list_checkpoints(
    context: ApiContext, _client: bytes, request: requests.ListCheckpoints
) -> tuple[CheckpointFacts, ...]:
    """Answer the checkpoints of a session."""
    return await transfer.listed(context.sessions, request)


async def get_checkpoint(
    context: ApiContext, _client: bytes, request: requests.GetCheckpoint
) -> requests.CheckpointFound:
    """Answer one checkpoint."""
    return await transfer.get(context.sessions, request)


async def delete_checkpoint(
    context: ApiContext, _client: bytes, request: requests.DeleteCheckpoint
) -> None:
    """Delete checkpoints."""
    await transfer.delete(context.sessions, request)


async def keep_blob(context: ApiContext, _client: bytes, request: requests.KeepBlob) -> None:
    """Keep the bytes of an image or a file."""
    await transfer.keep_blob(context.sessions, context.blob_pieces, request)


async def get_blob(
    context: ApiContext, _client: bytes, request: requests.GetBlob
) -> requests.BlobFound:
    """Answer the bytes of an image or a file."""
    found = FindBlob(request.session_id, request.digest)
    return requests.BlobFound(body=await context.sessions.journal.read(found))


async def list_blobs(
    context: ApiContext, _client: bytes, request: requests.ListBlobs
) -> tuple[tuple[str, int], ...]:
    """Answer what images and files a session holds."""
    return tuple(await context.sessions.journal.read(ListBlobs(request.session_id)))


async def get_definition(
    context: ApiContext, _client: bytes, request: requests.GetDefinition
) -> requests.SessionDefinition:
    """Answer what a session was started from."""
    return await transfer.definition(context.sessions, request)


async def put_part(context: ApiContext, _client: bytes, request: requests.PutPart) -> None:
    """Take a part of a session's file; it may hold code that nobody here can look at."""
    check_code(context, carries_code=True)
    context.imports.put(request)


async def finish_import(
    context: ApiContext, _client: bytes, request: requests.FinishImport
) -> SessionInfo:
    """Start the session that came in."""
    return await begin_imported(context.sessions, context.imports, request)


async def read_past(
    context: ApiContext, _client: bytes, request: requests.ReadPast
) -> requests.PastPage:
    """Answer a page of a session's past."""
    past = await context.sessions.journal.read(
        ReadHistoryPart(request.session_id, request.part, request.after)
    )
    if past is None:
        raise InvalidSession(f"no session {request.session_id!r} was ever seen here")
    return page_of(past, request.part, request.after)


async def back_up(
    context: ApiContext, _client: bytes, request: requests.BackUp
) -> requests.BackupFacts:
    """Copy the journal, and answer when the copy is where it was wanted."""
    return await context.backups.make(request)


async def read_page(context: ApiContext, _client: bytes, request: requests.ReadPage) -> Page:
    """Answer the next page of a long answer."""
    return context.pages.after(request.page_id, request.offset)


Handler = Callable[[ApiContext, bytes, Any], Awaitable[object]]  # Any: the request of its own row
# fmt: off
HANDLERS: Final[Mapping[type[requests.Request], Handler]] = {
    requests.StartSession: start_session,
    requests.StopSession:  stop_session,
    requests.FindSession:  find_session,
    requests.ListSessions: list_sessions,
    requests.ListInactive: list_inactive,
    requests.GetTree:      get_tree,
    requests.GetFacts:     get_facts,
    requests.Monitor:      monitor,
    requests.Demonitor:    demonitor,
    requests.Replay:       replay,
    requests.ReadPast:     read_past,
    requests.ReadPage:     read_page,
    requests.KeepCheckpoint:    keep_checkpoint,
    requests.ListCheckpoints:   list_checkpoints,
    requests.GetCheckpoint:     get_checkpoint,
    requests.DeleteCheckpoint:  delete_checkpoint,
    requests.KeepBlob:          keep_blob,
    requests.GetBlob:           get_blob,
    requests.ListBlobs:         list_blobs,
    requests.GetDefinition:     get_definition,
    requests.ResizeBuffer:      resize_buffer,
    requests.PutPart:           put_part,
    requests.FinishImport:      finish_import,
    requests.BackUp:            back_up,
}
# fmt: on


# --- the tree as it is shown ----------------------------------------------------------------------


def tree_of(facts: DaemonFacts, sessions: Sessions) -> TreeNode:
    """Return the tree: root, zygote, and every session below its parent."""
    children: defaultdict[SessionId | None, list[Session]] = defaultdict(list)
    for session in sessions.live.values():
        parent = session.spec.parent_id
        children[parent if parent in sessions.live else None].append(session)
    zygote = TreeNode(
        id=ZYGOTE,
        kind="worker",
        restart="permanent",
        state=facts.nursery,
        pid=sessions.pool.zygotes.lean.pid,
    )
    full = sessions.pool.zygotes.full
    zygotes = [zygote]
    if full.pid is not None:
        state = "ready" if full.is_warm else "warming"
        zygotes.append(
            TreeNode(id=FULL_ZYGOTE, kind="worker", restart="temporary", state=state, pid=full.pid)
        )
    roots = TreeNode(
        id=SESSIONS,
        kind="supervisor",
        strategy=Strategy.DYNAMIC,
        restart="permanent",
        state="up",
        children=tuple(_node(session, children) for session in children[None]),
    )
    return TreeNode(
        id="root",
        kind="supervisor",
        strategy=Strategy.ONE_FOR_ONE,
        pid=facts.pid,
        state="up",
        children=(*zygotes, *_servers(sessions), roots),
    )


def _servers(sessions: Sessions) -> tuple[TreeNode, ...]:
    """Return the MCP servers that sessions share, if there are any."""
    hosts = sorted(sessions.server_hosts.all.values(), key=lambda one: one.name)
    if not hosts:
        return ()
    return (
        TreeNode(
            id=SERVERS,
            kind="supervisor",
            strategy=Strategy.DYNAMIC,
            restart="permanent",
            state="up",
            children=tuple(map(_server, hosts)),
        ),
    )


def _server(host: ServerHost) -> TreeNode:
    """Return the host of one of them, as a child without its own supervisor."""
    return TreeNode(
        id=host.name,
        kind="worker",
        restart="transient",
        pid=None if host.worker is None else host.worker.pid,
        state=host.state,
        restarts=host.restarts,
    )


def _node(session: Session, children: defaultdict[SessionId | None, list[Session]]) -> TreeNode:
    info = session.info()
    agent = TreeNode(
        id=AGENT,
        kind="worker",
        restart=session.spec.supervision.restart,
        pid=info.pid,
        state=info.phase,
        restarts=info.restarts,
    )
    below = tuple(_node(child, children) for child in children[session.id])
    subagents = TreeNode(
        id=SUBAGENTS, kind="supervisor", strategy=Strategy.DYNAMIC, state="up", children=below
    )
    hosts = () if session.worker is None else tuple(session.worker.hosts.all)
    host = tuple(
        TreeNode(id=TOOL_HOST, kind="worker", restart="temporary", pid=one.child.pid, state="up")
        for one in hosts
    )
    return TreeNode(
        id=session.path[-1],
        kind="supervisor",
        strategy=Strategy.REST_FOR_ONE,
        restart="temporary",
        state=info.phase,
        restarts=info.restarts,
        children=(agent, *host, subagents) if below else (agent, *host),
    )
