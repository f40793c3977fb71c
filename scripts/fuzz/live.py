"""A real daemon under frames that nobody should send: by clients, and by an agent of its own.

What no single frame shows is asked for: after every few hundred the daemon has to list its sessions
and a bystander has to answer; at the end it is the same process, about as large as it was, and its
log names no failure of its own.
"""

import asyncio
import contextlib
import gc
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import psutil
import zmq

import cmdc_runtime as cmdc
from cmdc_runtime.errors import AccessDenied, CmdcError, ProtocolError, SessionExists
from cmdc_runtime.ids import CommandId, EventIndex, SessionId
from cmdc_runtime.requests import ListSessions
from cmdc_runtime.runtime_dir import read_token
from cmdc_runtime.testing import ScriptedModel, Text, ToolCalls, ToolUse
from cmdc_runtime.wire.codec import decode, encode
from cmdc_runtime.wire.frames import (
    HEADER,
    Ask,
    Batch,
    FailedReply,
    PagedReply,
    ToClient,
    ValueReply,
    of_router,
)
from cmdc_runtime.wire.sockets import Role, open_socket
from scripts.fuzz.decoders import FROM_WORKER, client_frame
from scripts.fuzz.entropy import Entropy, Seeded, one_in, pick
from scripts.fuzz.shapes import message_pack
from scripts.soak.house import House

LOOK_EVERY: Final = 500
"""Inputs from one look at the daemon to the next."""
BYSTANDER: Final = SessionId("bystander")
"""A session that no input names: what becomes of it is nobody's wish."""
ANSWER_S: Final = 30.0
GROWTH_BYTES_MAX: Final = 128 * 2**20
"""Of the daemon: its buffers and rings are bounded, and may be full at the end."""
STORM_FRAMES: Final = 10
"""Frames of one agent. The first one that breaks the contract ends it, so that few more count."""
NAMED: Final = SessionId("fuzzed")
"""The session that some frames name: it is there, and is begun anew where a frame has ended it."""
REFUSED_SHARE_MAX: Final = 0.5
"""Of the answers, those that no handler has given: else nothing behind the gate was tried."""
ANSWERED_SHARE_MIN: Final = 0.5
"""Of the frames that are sent: some are no frames any more, and a wait may go on; nine in ten are
answered."""
SHARES_FROM: Final = 300
"""Frames that shares are said of: of fewer, half may be nonsense by chance."""
_FAILED: Final = re.compile(r"Traceback|request\.failed|\[critical|could not be handled")
_SHOWN_CHARS: Final = 2_000


class _Watched:
    """A daemon with a bystander, looked at from time to time."""

    def __init__(self, house: House) -> None:
        """Start the bystander."""
        self.house = house
        self.client = house.client()
        self._model = ScriptedModel([], default=Text("done"))
        self._model.__enter__()
        self.client.create_agent(model=self._model, session_id=BYSTANDER)
        self._size = self._resident_bytes()

    def look(self) -> None:
        """Check that the daemon works.

        Raises:
            CmdcError, TimeoutError: it does not answer.
            AssertionError: the bystander is gone.
        """
        states = {one.session_id: one.state for one in self.client.list_sessions()}
        assert states.get(BYSTANDER) == "idle", f"the bystander is {states.get(BYSTANDER)}"  # noqa: S101 - the oracle
        assert self.client.status(BYSTANDER).pid, "the bystander has no process"  # noqa: S101

    def end(self) -> None:
        """Look once more, at its size and its log, too.

        Raises:
            AssertionError: with what was wrong.
        """
        self.look()
        grown = self._resident_bytes() - self._size
        assert grown <= GROWTH_BYTES_MAX, f"the daemon grew by {grown:,} bytes"  # noqa: S101 - the oracle
        log = self.house.log_text()
        failed = _FAILED.search(log)
        assert failed is None, log[max(0, failed.start() - 200) :][:_SHOWN_CHARS]  # noqa: S101

    def begin(self, session_id: SessionId) -> None:
        """Have a session of this id, if there is none."""
        with contextlib.suppress(SessionExists):
            self.client.create_agent(model=self._model, session_id=session_id)

    def close(self) -> None:
        """End the model; the daemon is ended by whoever started it."""
        self._model.__exit__(None, None, None)

    def _resident_bytes(self) -> int:
        return int(psutil.Process(self.house.pid).memory_info().rss)


@contextlib.contextmanager
def _watched() -> Iterator[_Watched]:
    house = House()
    try:
        with contextlib.closing(_Watched(house)) as watched:
            yield watched
            watched.end()
    finally:
        house.close()


@contextlib.contextmanager
def clients_target() -> Iterator[Callable[[Entropy], None]]:
    """Yield a target that sends each input to the control socket, as a client would."""
    with _watched() as watched, zmq.Context() as context:
        sent = 0
        token = read_token(Path(watched.house.address))
        answers: Counter[str] = Counter()
        peers = [_connected(context, watched) for _ in range(4)]

        def send(entropy: Entropy) -> None:
            nonlocal sent
            if sent % LOOK_EVERY == 0:
                watched.look()
                watched.begin(NAMED)
            sent += 1
            peer = pick(entropy, peers)
            header = entropy.blob(6) if one_in(entropy, 50) else HEADER
            _send(peer, [header, client_frame(entropy, token)])
            answers.update(_kinds(_answers(peer)))

        try:
            yield send
            for number, peer in enumerate(peers):
                last = Ask(
                    id=CommandId(f"over-{number}"),
                    body=msgspec.Raw(encode(ListSessions())),
                    token=token,
                )
                answers.update(_kinds(_answers_until(peer, last)))
        finally:
            for peer in peers:
                peer.close()
        check_answers(answers, sent)


def check_answers(answers: Mapping[str, int], sent: int) -> None:
    """Check that so many frames were answered as frames are that are nearly right.

    Of fewer than ``SHARES_FROM`` nothing is known.

    Raises:
        AssertionError: too few have an answer, or too few of the answers are a handler's.
    """
    if sent < SHARES_FROM:
        return
    refused, given = answers.get(_REFUSED, 0), sum(answers.values())
    least, most = sent * ANSWERED_SHARE_MIN, given * REFUSED_SHARE_MAX
    assert given >= least, f"of {sent} frames {given} were answered"  # noqa: S101 - the oracle
    assert refused <= most, f"of {given} answers no handler gave {refused}"  # noqa: S101


def _connected(context: "zmq.Context[zmq.Socket[bytes]]", watched: _Watched) -> "zmq.Socket[bytes]":
    peer = open_socket(context, Role.CLIENT)
    peer.setsockopt(zmq.IMMEDIATE, 0)
    peer.connect(f"ipc://{watched.house.address}/control.sock")
    return peer


def _send(peer: "zmq.Socket[bytes]", parts: list[bytes]) -> None:
    if not peer.poll(round(ANSWER_S * 1000), zmq.POLLOUT):
        raise TimeoutError("the daemon takes no frames")
    peer.send_multipart(parts, zmq.NOBLOCK)


def _answers(peer: "zmq.Socket[bytes]") -> Iterator[bytes]:
    """Yield the frames that have come by now."""
    with contextlib.suppress(zmq.Again):
        while True:
            yield of_router(peer.recv_multipart(zmq.NOBLOCK)) or b""


def _answers_until(peer: "zmq.Socket[bytes]", asked: Ask) -> Iterator[bytes]:
    """Send a request that is right and yield what comes, to the end of its answer.

    Raises:
        TimeoutError: it is not answered: nothing that this peer has sent may have been heard.
    """
    _send(peer, [HEADER, encode(asked)])
    deadline_s = time.monotonic() + ANSWER_S
    while peer.poll(round(max(0.0, deadline_s - time.monotonic()) * 1000)):
        frame = of_router(peer.recv_multipart()) or b""
        yield frame
        answer = decode(ToClient, frame)
        if isinstance(answer, ValueReply | PagedReply | FailedReply) and answer.id == asked.id:
            return
    raise TimeoutError("the daemon does not answer one of its clients")


def _kinds(frames: Iterable[bytes]) -> Iterator[str]:
    """Yield of each answer whether a handler gave it."""
    for frame in frames:
        answer = decode(ToClient, frame)
        is_refused = isinstance(answer, FailedReply) and answer.code in _OF_THE_GATE
        yield _REFUSED if is_refused else type(answer).__name__


_REFUSED: Final = "refused"
_OF_THE_GATE: Final = frozenset({AccessDenied.code, ProtocolError.code})


STORMS_CHECKED_MIN: Final = 5
"""As few may all be harmless."""


@cmdc.tool(effects="read", timeout=120.0)
async def storm(seed: str, frames: int) -> str:
    """Send frames by the connection of the agent that this runs in; each by a seed of its own."""
    import workers.link  # noqa: PLC0415 - only an agent has it

    links = [one for one in gc.get_objects() if isinstance(one, workers.link.Link)]
    pump = links[0]._pump  # noqa: SLF001 - a hostile tool asks nobody
    for number in range(frames):
        entropy = Seeded(f"{seed}.{number}")
        parts = [HEADER, message_pack(FROM_WORKER, entropy)]
        if one_in(entropy, 3):
            batch = Batch(
                first=EventIndex(entropy.below(2**40)), count=entropy.below(2**40), durable=False
            )
            parts.append(cmdc_encode(batch))
            parts.append(entropy.blob(20))
        pump.send(parts)
        if number % 50 == 0:
            await asyncio.sleep(0)
    return "sent"


def cmdc_encode(frame: object) -> bytes:
    """Return a frame as the wire has it."""
    from cmdc_runtime.wire.codec import encode  # noqa: PLC0415 - travels with the tool

    return encode(frame)


@contextlib.contextmanager
def workers_target() -> Iterator[Callable[[Entropy], None]]:
    """Yield a target of which each input is a storm of frames by an agent of its own.

    An agent that breaks the contract may be ended, and its session with it; nobody else may. Not
    one that was ended so in all storms means that nothing arrived.
    """
    storms = ended = 0
    with _watched() as watched:

        def send(entropy: Entropy) -> None:
            nonlocal storms, ended
            storms += 1
            seed = entropy.blob(8).hex()
            call = ToolCalls(ToolUse("storm", {"seed": seed, "frames": STORM_FRAMES}))
            with ScriptedModel([call, Text("done")], default=Text("done")) as model:
                session = watched.client.create_agent(model=model, tools=[storm])
                try:
                    session.run("go", timeout=ANSWER_S)
                except CmdcError as error:
                    ended += "it broke the contract of the wire" in str(error)
                watched.look()
                deadline_s = time.monotonic() + ANSWER_S
                with contextlib.suppress(CmdcError):
                    session.stop()
                assert time.monotonic() < deadline_s, "the session did not stop"  # noqa: S101

        yield send
        assert ended or storms < STORMS_CHECKED_MIN, f"none of {storms} storms arrived"  # noqa: S101
