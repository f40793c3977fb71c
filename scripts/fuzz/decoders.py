"""The decoders that run in any process: frames, bodies, files, rows, tool arguments.

Each target calls what the daemon or the agent calls on such bytes, lets pass what that raises on
purpose, and goes on as they do: what was taken has to be written down, shown and sent on.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Union

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.commands import Command
from cmdc_runtime.errors import CheckpointUnreadable, CmdcError, ProtocolError
from cmdc_runtime.events import Event, UnknownEvent
from cmdc_runtime.extensions.provider import Chunk, TextChunk, ToolCallChunk, UsageChunk
from cmdc_runtime.extensions.tool import ToolError
from cmdc_runtime.ids import CallId, CommandId, SessionId
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.requests import Request, StartSession
from cmdc_runtime.transfer import Assembly, Header, Part, Seal, check_whole, frame_of
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import Ask, EventEntry, FromClient, FromWorker, Send
from scripts.fuzz.entropy import Entropy, one_in, pick
from scripts.fuzz.providers import kept
from scripts.fuzz.shapes import message_pack, mutated, value_of
from scripts.fuzz.wires import argument_text, call_id, tool_name
from supervisor.core.session_tree import check_session
from supervisor.sessions.assignment import spec_of
from workers.core import omissions
from workers.core.assemble import assemble
from workers.core.records import Record, decode_record
from workers.core.snapshot import encode as encode_memory
from workers.core.snapshot import restore, saved
from workers.core.state import Memory, Policy
from workers.performers.toolbox import checked

PARTS_MAX: Final = 6
RECORDS_MAX: Final = 6


def union_of(base: type[msgspec.Struct]) -> Any:  # Any: a type
    """Return the union of the classes below ``base``, as its decoder has it."""
    kinds = [one for one in base.__subclasses__() if one is not UnknownEvent]
    return Union[tuple(kinds)]  # noqa: UP007 - made of a list


FROM_CLIENT: Final = union_of(FromClient)
FROM_WORKER: Final = union_of(FromWorker)
REQUESTS: Final = union_of(Request)
COMMANDS: Final = union_of(Command)
EVENTS: Final = union_of(Event)
PARTS: Final = union_of(Part)
RECORDS: Final = union_of(Record)


def client_frame(entropy: Entropy, token: str = "") -> bytes:
    """Return a frame as a client might send it, with a body as it might be.

    ``token`` is shown in nine of ten, so that what is behind the gate has something to do.
    """
    if one_in(entropy, 6):
        return message_pack(FROM_CLIENT, entropy)
    is_request = one_in(entropy, 2)
    body = msgspec.Raw(message_pack(REQUESTS if is_request else COMMANDS, entropy))
    command_id = CommandId(f"f-{entropy.below(10**9)}")
    shown = "" if one_in(entropy, 10) else token
    if is_request:
        frame: FromClient = Ask(id=command_id, body=body, token=shown)
    else:
        frame = Send(
            id=command_id,
            session_id=SessionId(pick(entropy, ("s-1", "fuzzed", "", "\0", "_supervisor"))),
            durable=one_in(entropy, 2),
            looks=one_in(entropy, 3),
            waits=one_in(entropy, 4),
            ends=one_in(entropy, 4),
            carries_code=one_in(entropy, 4),
            body=body,
            token=shown,
        )
    return mutated(codec.encode(frame), entropy)


def take_client_frame(entropy: Entropy) -> None:
    """Decode a frame and its body, as the daemon and the agent do."""
    with contextlib.suppress(ProtocolError):
        frame = codec.decode(FromClient, client_frame(entropy))
        if isinstance(frame, Ask):
            codec.encode(codec.decode(Request, frame.body))
        elif isinstance(frame, Send):
            codec.encode(codec.decode(Command, frame.body))


def take_worker_frame(entropy: Entropy) -> None:
    """Decode a frame, and a batch of events as a subscriber does."""
    with contextlib.suppress(ProtocolError):
        codec.encode(codec.decode(FromWorker, message_pack(FROM_WORKER, entropy)))
    entries = [value_of(EventEntry, entropy) for _ in range(entropy.below(3))]
    events = [[1, value_of(EVENTS, entropy)] for _ in range(entropy.below(3))]
    with contextlib.suppress(ProtocolError):
        decoded = codec.decode_events(mutated(msgspec.msgpack.encode([*entries, *events]), entropy))
        codec.encode_events(decoded)


def imported_frames(entropy: Entropy) -> Iterator[bytes]:
    """Yield the frames of a file: well-formed and sealed, with parts as they might be."""
    seal = Seal()
    shapes = [Header, *(PARTS for _ in range(entropy.below(PARTS_MAX)))]
    for shape in shapes:
        body = message_pack(shape, entropy)
        frame = mutated(_framed(body), entropy, 40)
        seal.add(frame)
        yield frame
    yield mutated(frame_of(seal.end()), entropy, 20)


def _framed(body: bytes) -> bytes:
    import zlib  # noqa: PLC0415 - as transfer.frame_of, for a body that is no part

    return len(body).to_bytes(4) + zlib.crc32(body).to_bytes(4) + body


def take_import(entropy: Entropy) -> None:
    """Put a file together and look at its definition, as the daemon does before it begins."""
    assembly = Assembly()
    with contextlib.suppress(CmdcError):
        for frame in imported_frames(entropy):
            assembly.add(frame)
        check_session(check_whole(assembly.whole()))


def take_definition(body: bytes) -> None:
    """Read a session's definition and check it, as an import and a daemon's start do."""
    with contextlib.suppress(CmdcError):
        check_session(spec_of(body))


def take_rows(entropy: Entropy) -> None:
    """Rebuild a session from what the journal has: its definition, a snapshot, records."""
    take_definition(message_pack(StartSession, entropy))
    memory = Memory(policy=Policy(session_id=SessionId("s-1")), model="openai:small")
    if one_in(entropy, 3):
        with contextlib.suppress(CheckpointUnreadable):
            state = msgspec.structs.replace(saved(memory), state=msgspec.Raw(b"\x80"))
            restore(memory, mutated(msgspec.msgpack.encode(state), entropy, 2))
    bodies = [message_pack(RECORDS, entropy) for _ in range(1 + entropy.below(RECORDS_MAX))]
    if not one_in(entropy, 8):  # else one that is no record has all of it refused
        bodies = [body for body in bodies if _is_record(body)]
    with contextlib.suppress(msgspec.DecodeError):
        rebuilt = take_records(memory, [("record", body) for body in bodies])
        restore(memory, encode_memory(rebuilt))


def _is_record(body: bytes) -> bool:
    try:
        return isinstance(decode_record(body), Record)
    except msgspec.DecodeError:
        return False


def take_records(memory: Memory, bodies: list[tuple[str, bytes]]) -> Memory:
    """Rebuild a memory as agents do, one process after the other.

    What kills the one that reads it is left out by the next, so each try gets further than the one
    before; in the end there is a memory, with something of the history or with nothing.

    Raises:
        msgspec.DecodeError: a record is of no program, or of a newer one: it is left as it is.
    """
    killing: set[int] = set()
    at = 0

    def note(step: int) -> None:
        nonlocal at
        at = step

    while True:
        try:
            records, _ = omissions.read_records(bodies, frozenset(killing), note)
            return omissions.fold(memory, records, note)[0]
        except msgspec.DecodeError:
            raise
        except Exception:
            if at in killing:
                raise
            killing.add(at)


@cmdc.tool(effects="read")
def sample(
    path: str,
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10,
    ratio: float = 0.5,
    names: list[str] | None = None,
    extra: dict[str, Any] | None = None,  # Any: whatever a model makes up
) -> str:
    """Take parameters of the usual types."""
    return f"{path}{limit}{ratio}{names}{extra}"


def take_arguments(entropy: Entropy) -> None:
    """Put calls together from pieces, keep them, and check them against a tool's parameters."""
    chunks: list[Chunk] = [
        ToolCallChunk(
            index=pick(entropy, (0, 0, 1, 2, -1, 10**9)),
            call_id=CallId(call_id(entropy)) if one_in(entropy, 2) else None,
            name=tool_name(entropy) if one_in(entropy, 2) else None,
            arguments=_cut(argument_text(entropy), entropy),
        )
        for _ in range(1 + entropy.below(4))
    ]
    if one_in(entropy, 3):
        chunks.append(TextChunk(text=call_id(entropy)))
    if one_in(entropy, 3):
        raw = {"prompt_tokens": value_of(int, entropy), "total_tokens": value_of(int, entropy)}
        chunks.append(UsageChunk(usage=TokenUsage.from_raw(raw)))
    kept(chunks, list)
    for call in assemble(chunks, id_prefix="f").tool_calls:
        with contextlib.suppress(ToolError):
            checked(call, _TOOL)


def _cut(text: str, entropy: Entropy) -> str:
    return text[: entropy.below(len(text) + 1)] if one_in(entropy, 4) else text


_TOOL: Final = sample


@contextlib.contextmanager
def only(take: Callable[[Entropy], None]) -> Iterator[Callable[[Entropy], None]]:
    """Yield a target that needs nothing around it."""
    yield take
