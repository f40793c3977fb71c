"""A cycle played through without a socket, a model or a clock, before the zygote freezes.

msgspec builds its decoders, and Python its caches, at the first use. Paid for here once, they are
shared by every agent: without this each one spends milliseconds on it between Assign and Started.
"""

from pathlib import Path
from typing import Final

import msgspec

from cmdc_runtime.commands import AwaitCycle, Command, GetMessages, Prompt, Status
from cmdc_runtime.extensions.sandbox import SandboxPlace
from cmdc_runtime.ids import CallId, CommandId, EventIndex, Incarnation, SessionId
from cmdc_runtime.messages import TokenUsage, ToolCall
from cmdc_runtime.options import Options
from cmdc_runtime.reasons import Signal
from cmdc_runtime.spec import AgentSpec, agent_spec
from cmdc_runtime.tools import ReadFile
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import (
    Answer,
    Assign,
    Completed,
    Deliver,
    History,
    JournalRecord,
    Ready,
    Started,
    ToWorker,
    Write,
)
from workers.build import PROVIDER, first_memory, policy_of
from workers.core import commands, recovery, results, snapshot
from workers.core.assemble import Reply
from workers.core.evolve import rebuild
from workers.core.inputs import (
    FirstChunk,
    Order,
    Result,
    StreamEnded,
    TextArrived,
    ToolBegun,
    ToolReturned,
)
from workers.core.records import decode_record
from workers.core.state import Memory
from workers.core.step import Publish, Step
from workers.loader import load_provider, open_sandbox
from workers.session_code import SessionCode

_SESSION: Final = SessionId("rehearsal")
_PROMPT: Final = CommandId("c-1")
_CALL: Final = ToolCall(call_id=CallId("call-1"), name="read_file", arguments={"path": "x"})


def rehearse() -> None:
    """Build an agent's parts, play one cycle with a tool, and rebuild it from its records."""
    assign = _assign()
    spec: AgentSpec = codec.decode_as(AgentSpec, assign.agent)
    policy = policy_of(assign, spec, load_provider(PROVIDER))
    first = first_memory(policy, spec, (), SessionCode().tools(spec.tools))
    here = str(Path.cwd())
    open_sandbox(None, SandboxPlace(session_id=_SESSION, working_dir=here, real_dir=here))
    step = Step(first)
    records: list[bytes] = []
    for given in _inputs():
        if isinstance(given, Order):
            step = commands.apply(step.memory, given)
        else:
            step = results.apply(step.memory, given)
        records += _encode(step)
    _resume(first, records)
    snapshot.restore(first, snapshot.encode(first))
    codec.encode(Answer(id=_PROMPT, body=codec.encode(_status())))


def _assign() -> Assign:
    packed = codec.raw(agent_spec(Options(model="openai/rehearsal", tools=[ReadFile])))
    assign = Assign(
        session_id=_SESSION,
        incarnation=Incarnation(1),
        restarts=0,
        next_index=EventIndex(1),
        agent=packed,
        parent_id=None,
        group_id=None,
        last_reason=Signal(number=9, name="SIGKILL"),
    )
    _through_the_wire(assign)
    return assign


def _inputs() -> list[Order | Result]:
    asks = Reply("", None, (_CALL,), TokenUsage(prompt_tokens=1), "tool_calls")
    says = Reply("text", None, (), TokenUsage(prompt_tokens=1), "stop")
    orders = (Prompt(text="u"), AwaitCycle(), GetMessages())
    return [
        *(Order(_PROMPT, _opened(command), 0) for command in orders),
        FirstChunk(1),
        StreamEnded(1, asks, 0),
        ToolBegun(2, _CALL.call_id, 0),
        ToolReturned(2, _CALL.call_id, ok=True, text="x", at_ms=0),
        FirstChunk(3),
        TextArrived(3, "text"),
        StreamEnded(3, says, 0),
    ]


def _opened(command: Command) -> Command:
    """Return a command as it comes out of its frame."""
    frame = _through_the_wire(Deliver(id=_PROMPT, body=codec.raw(command), durable=command.durable))
    assert isinstance(frame, Deliver)  # noqa: S101 - it is what was sent
    return codec.decode(Command, frame.body)


def _through_the_wire(frame: ToWorker) -> ToWorker:
    return codec.decode(ToWorker, codec.encode(frame))


def _encode(step: Step) -> list[bytes]:
    """Encode what the agent would send, and return the records."""
    bodies = [codec.encode(record) for record in step.records]
    events = [(0, one.event) for one in step.outgoing if isinstance(one, Publish)]
    codec.encode_events(events)
    kept = tuple(JournalRecord(kind="", body=body) for body in bodies)
    codec.encode(Write(records=kept, completed=(Completed(id=_PROMPT, frame=b""),), number=1))
    return bodies


def _resume(memory: Memory, records: list[bytes]) -> None:
    frame = History(
        records=tuple(JournalRecord(kind="", body=body) for body in records),
        commands=(),
        complete=True,
    )
    _through_the_wire(frame)
    rebuilt = rebuild(memory, map(decode_record, records))
    recovery.resume(rebuilt, Incarnation(2), Signal(number=9, name="SIGKILL"), 0)
    for said in (Ready(pid=0), Started()):
        msgspec.msgpack.encode(said)


def _status() -> Status:
    return Status(state="idle", session_id=_SESSION, incarnation=Incarnation(1))
