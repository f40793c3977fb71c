"""A command takes effect once and has one answer, however often it is sent and whoever dies."""

import asyncio
import contextlib
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import msgspec
import pytest
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime import events
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.ids import new_command_id
from cmdc_runtime.requests import SessionInfo, StopSession
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from cmdc_runtime.wire.codec import decode, decode_as, encode, raw
from cmdc_runtime.wire.frames import HEADER, Ask, FailedReply, Notify, Send, ToClient, of_router
from cmdc_runtime.wire.sockets import Role, open_socket
from tests.fault.reviving import reviving
from tests.fault.streams.wire import Faults, Wire
from tests.sent import sent

pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.stream_case("S10"),
]

TURN_S = 30.0
LOOK_S = 0.1
COPIES = 100
CONNECTIONS = 5
RESTARTS = 20
ROUGH = Faults(lost=0.15, doubled=0.3, delayed=0.2)


@cmdc.tool(needs_approval=True)
def launch(log: str) -> str:
    """Launch it; a person must allow each launch."""
    with Path(log).open("a") as file:
        file.write("launched ")
    return "launched"


@cmdc.tool
def extra() -> str:
    """Do nothing."""
    return "nothing"


@dataclass(frozen=True)
class Deed:
    """One kind of command: what has to be there, and the event that shows its effect."""

    name: str
    effect: type
    steps: tuple = ()
    waits_for: type | None = None
    tools: tuple = ()
    holds: bool = False

    def order(self, found):
        """Return the command; ``found`` is the event that it answers."""
        return {
            "prompt": lambda: sent.prompt("Once."),
            "steer": lambda: sent.steer("Once."),
            "approve": lambda: sent.approve(found.id),
            "reject": lambda: sent.reject(found.id),
            "user_respond": lambda: sent.user_respond(found.ref, "blue"),
            "switch_model": lambda: sent.switch_model("openai:other"),
            "attach_tool": lambda: sent.attach_tool(extra),
            "detach_tool": lambda: sent.detach_tool("extra"),
        }[self.name]()


def deeds(log):
    """Return every kind of command that is to take effect once."""
    launching = ToolCalls(ToolUse("launch", {"log": str(log)}))
    asking = ToolCalls(ToolUse("ask_user", {"question": "Which?"}))
    return [
        Deed("prompt", events.PromptReceived),
        Deed("steer", events.SteeringReceived, ((Hold(), "never"),), holds=True),
        Deed("approve", events.ToolApproved, (launching,), events.ApprovalRequired, (launch,)),
        Deed("reject", events.ToolRejected, (launching,), events.ApprovalRequired, (launch,)),
        Deed(
            "user_respond", events.UserResponded, (asking,), events.AskUser, (cmdc.tools.AskUser,)
        ),
        Deed("switch_model", events.ModelSwitched),
        Deed("attach_tool", events.ToolAttached),
        Deed("detach_tool", events.ToolDetached, tools=(extra,)),
    ]


DEEDS = [deed.name for deed in deeds("")]


@dataclass
class Scene:
    """One session in the state in which its command can be given."""

    session: object
    stream: object
    order: object
    deed: Deed

    def effects(self):
        """Count what the command has done, by every event up to now."""
        last, found = self.session.last_index(), []
        with self.session.subscribe(since=0) as stream:
            while not found or found[-1].index < last:
                found.append(stream.get(TURN_S))
        return sum(isinstance(one.event, self.deed.effect) for one in found)


@pytest.fixture
def scene(scripted, tmp_path):
    """Make sessions that are ready for a command."""
    with contextlib.ExitStack() as stack:

        def create(client, name, session_id=None):
            log = tmp_path / f"{name}.log"
            deed = next(one for one in deeds(log) if one.name == name)
            model = scripted(*deed.steps, default="fine")
            session = client.create_agent(
                model=model, tools=list(deed.tools), session_id=session_id
            )
            stream = stack.enter_context(session.subscribe())
            found = None
            if deed.steps:
                session.prompt("Go.")
            if deed.holds:
                model.wait_held()
            while deed.waits_for is not None and not isinstance(found, deed.waits_for):
                found = stream.get(TURN_S).event
            return Scene(session, stream, deed.order(found), deed)

        yield create


class Caller:
    """A client that says exactly what the test wants, as often as it wants."""

    def __init__(self, address):
        self._context = zmq.Context()
        self._socket = open_socket(
            self._context, Role.CLIENT, identity=f"c-{new_command_id()}".encode()
        )
        self._socket.connect(f"ipc://{address}/control.sock")
        self._token = read_token(address)

    def close(self):
        self._socket.close()
        self._context.term()

    def send(self, frame, copies=1):
        shown = msgspec.structs.replace(frame, token=self._token)
        for _ in range(copies):
            self._socket.send_multipart([HEADER, encode(shown)])

    def answer(self, wait_s=TURN_S):
        """Return the next answer, None when there is none in time."""
        while self._socket.poll(round(wait_s * 1000)):
            frame = decode(ToClient, of_router(self._socket.recv_multipart()))
            if not isinstance(frame, Notify):
                return frame
        return None


@pytest.fixture
def caller():
    """Make callers."""
    with contextlib.ExitStack() as stack:
        yield lambda address: stack.enter_context(contextlib.closing(Caller(address)))


def first_answer(callers):
    """Return what one of those that asked is answered; which one is not known."""
    in_turn = islice(cycle(callers), round(TURN_S / LOOK_S))
    return next(answer for one in in_turn if (answer := one.answer(LOOK_S)) is not None)


def durable(session_id, order):
    return Send(id=new_command_id(), session_id=session_id, durable=True, body=raw(order))


@pytest.fixture(scope="module")
def place(shared_daemon):
    """A daemon for the commands whose daemon does not die."""
    shared_daemon.start()
    return shared_daemon


@pytest.mark.parametrize("name", DEEDS)
def test_a_hundred_copies_have_one_effect_and_one_answer(place, scene, caller, name):
    """At once, over several connections, and again when all is over."""
    with place.client() as client:
        found = scene(client, name)
        frame = durable(found.session.id, found.order)
        callers = [caller(place.address) for _ in range(CONNECTIONS)]
        for one in callers:
            one.send(frame, COPIES // CONNECTIONS)
        first = first_answer(callers)
        late = [caller(place.address) for _ in range(CONNECTIONS)]
        for one in late:
            one.send(frame)
        answers = [one.answer() for one in late]

        assert not isinstance(first, FailedReply), first
        assert answers == [first] * CONNECTIONS
        assert found.effects() == 1
        found.session.stop()


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.usefixtures("_quick")
def test_lost_and_doubled_frames_change_nothing(place, scene, tmp_path, name):
    """On a rough wire a call returns once, with one effect."""
    wire = Wire(tmp_path / "run", place.address, seed=len(name), control=ROUGH)
    with contextlib.closing(wire), place.client() as client, cmdc.Client(wire.directory) as rough:
        found = scene(client, name)
        ordering(rough, found.session.id, found.order)()

        assert found.effects() == 1
        found.session.stop()


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("point", ["accept.after", "append.*outcome*.after"])
@pytest.mark.timeout(300)
def test_daemon_killed_between_a_command_and_its_answer(own_daemon, armed, scene, point):
    """Before it reached the agent, and after its effect was recorded: one effect, one answer."""
    own_daemon.start()
    with own_daemon.client() as client:
        scenes = [scene(client, name, name) for name in DEEDS]
        for found in scenes:
            session_id, order = found.session.id, found.order
            armed(session_id, f"{point}:1=daemon")
            _, deaths = reviving(own_daemon, ordering(client, session_id, order))

            assert (session_id, deaths) == (session_id, 1)
            assert (session_id, found.effects()) == (session_id, 1)
        for found in scenes:
            found.session.stop()


def ordering(client, session_id, order):
    """Return what gives a command by a client."""
    return lambda: client._run(lambda exchange: exchange.send(session_id, order))


def test_start_is_known_by_its_id(place, caller, scripted):
    """Copies of one start are one start; a failed one fails again in the same way, untried."""
    options = {"model": scripted(default="fine"), "session_id": "s-once"}
    request = start_request(None, options)
    bad = start_request(None, {"session_id": "s-bad", "model": "openai:x", "plugins": [Refusing]})
    callers = [caller(place.address) for _ in range(CONNECTIONS)]
    for one in callers:
        one.send(Ask(id=new_command_id(), body=raw(request)))
    answers = [one.answer() for one in callers]
    failures = []
    for one in callers:
        one.send(Ask(id=new_command_id(), body=raw(bad)))
        failures.append(one.answer())
    other = callers[0]
    other.send(Ask(id=new_command_id(), body=raw(start_request(None, options))))
    refused = other.answer()
    other.send(Ask(id=new_command_id(), body=raw(StopSession(session_id="s-once"))))
    other.answer()
    other.send(Ask(id=new_command_id(), body=raw(request)))
    ended = other.answer()

    assert len({bytes(one.body) for one in answers}) == 1
    assert {(one.code, one.message) for one in failures} == {("start_failed", failures[0].message)}
    assert refused.code == "session_exists"
    assert decode_as(SessionInfo, ended.body).phase == "ended"


class Refusing(cmdc.Plugin):
    """Wants no session."""

    name = "refusing"

    def session_start(self, event, context):
        """Refuse."""
        return cmdc.Abort("no")


@pytest.mark.timeout(300)
def test_command_over_twenty_restarts(own_daemon, scripted, caller):
    """The same frame, sent again to each next daemon, has one effect and one answer."""
    own_daemon.grace = 60.0
    own_daemon.start()
    model = scripted((Hold(), "done"), default="more")
    with own_daemon.client() as client:
        session = client.create_agent(model=model)
        frame = durable(session.id, sent.prompt("Once."))
        answers = []
        for _ in range(RESTARTS):
            one = caller(own_daemon.address)
            one.send(frame)
            answers.append(one.answer())
            own_daemon.kill()
            own_daemon.start()
        model.release()
        asked = asyncio.run(asked_of(own_daemon.address, session.id))

    assert answers == [answers[0]] * RESTARTS
    assert asked == (["Once."], 1)


async def asked_of(address, session_id):
    """Return what the user said, and how many cycles it began, when one is over."""
    begun = 0
    async with cmdc.AsyncClient(address) as client:
        async with await client.subscribe(session_id, since=0) as stream:
            async for envelope in stream:
                begun += isinstance(envelope.event, events.AgentStart)
                if isinstance(envelope.event, events.AgentEnd):
                    break
        messages = await client.messages(session_id)
    return [one.content for one in messages if one.role == "user"], begun
