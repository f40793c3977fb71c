"""One MCP server that many agents speak to: who each message is for. Pure.

Every agent numbers its requests as if it were alone, so they are numbered anew on their way to the
server, and what answers them, says how far they are or belongs to a subscription goes back to the
agent that asked, under its own number. The handshake is the server's first: it is had once and sent
again to whoever comes later. What the server asks goes to the agent whose call runs, and to nobody
where that may be several. What belongs to no request is sent to nobody, since it may be of one
session's work; only that a list has changed is sent to all.

To let one more method through, add it to its table.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from workers.core.mcp_lines import Unread, mended_line, unread

OPENINGS: Final = frozenset({"initialize", "server/discover"})
"""What is had once for all agents."""
PASSED: Final = frozenset({"ping", "tools/list", "tools/call", "subscriptions/listen"})
"""What an agent may ask besides: nothing of it is remembered by the server for the next one."""
FOR_ALL: Final = frozenset(
    f"notifications/{what}/list_changed" for what in ("tools", "prompts", "resources")
)
ASKS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
"""What a server may ask of the agent whose call runs."""
CALL: Final = "tools/call"

REQUESTS_MAX: Final = 256
"""Of one agent, without an answer; a session runs fewer calls at a time."""
QUESTIONS_MAX: Final = 256
"""Of the server, without an answer."""
LINGER_S: Final = 10.0
"""How long a call that was cancelled may still be what the server asks about."""

INVALID: Final = -32600
UNKNOWN: Final = -32601
BUSY: Final = -32000
_TOKEN: Final = "progressToken"  # noqa: S105 - the protocol's name for a number
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_CANCELLED: Final = "notifications/cancelled"
_INITIALIZED: Final = "notifications/initialized"
_PROGRESS: Final = "notifications/progress"
_PROBE: Final = 0
"""Who asks what nobody of the agents has asked; they are numbered from 1."""

Id = int | str


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of JSON-RPC, opened no further than it has to be."""

    jsonrpc: str = "2.0"
    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class ToServer:
    """A line for the server; ``cancels``: it asks to give up a request."""

    line: bytes
    cancels: bool = False


@dataclass(frozen=True, slots=True)
class ToAgent:
    """A line for one agent."""

    agent: int
    line: bytes


Sent = ToServer | ToAgent

_DECODER: Final = msgspec.json.Decoder(Message)
_PARAMS: Final = msgspec.json.Decoder(dict[str, Raw])
_ID: Final = msgspec.json.Decoder(Id)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that the server has; ``token`` is what the agent calls its progress."""

    agent: int
    id: Id
    method: str
    token: Raw | None = None


@dataclass(slots=True)
class _Opening:
    """One of ``OPENINGS``: its result, once there is one, and until then who waits for it."""

    result: Raw | None = None
    number: int | None = None
    """Of the request that asks for it."""
    waiting: list[tuple[int, Id]] = field(default_factory=list)


def message_of(line: bytes) -> Message | None:
    """Return a line as a message, with U+FFFD for what is no character in it; None: it is none."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        return _DECODER.decode(line)
    plain = mended_line(line)
    if plain is not None:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return _DECODER.decode(plain)
    return None


class Switchboard:
    """Who has asked what; agents are known by numbers from 1. Times are seconds of one clock."""

    def __init__(self) -> None:
        """Know no agent."""
        self._agents: set[int] = set()
        self._requests: dict[int, _Request] = {}
        self._numbers: dict[tuple[int, Id], int] = {}
        self._openings: dict[str, _Opening] = {}
        self._questions: dict[Id, int] = {}
        self._lingering: dict[int, float] = {}
        self._last = 0
        self._is_initialized = False

    # --- agents ---------------------------------------------------------------------------------

    def join(self, agent: int) -> None:
        """Know one more agent."""
        self._agents.add(agent)

    def leave(self, agent: int, now_s: float) -> list[Sent]:
        """Forget an agent: its requests are cancelled, and what it was asked is refused."""
        self._agents.discard(agent)
        own = [number for number, of in self._requests.items() if of.agent == agent]
        sent: list[Sent] = [self._cancel(number, now_s) for number in own]
        for opening in self._openings.values():
            opening.waiting = [one for one in opening.waiting if one[0] != agent]
        for asked in [one for one, of in self._questions.items() if of == agent]:
            del self._questions[asked]
            sent.append(ToServer(_refused(asked, INVALID, "who was asked is gone")))
        return sent

    def from_agent(self, agent: int, line: bytes, now_s: float) -> list[Sent]:
        """Return what follows of a line of an agent's; one that is no message is nothing."""
        message = message_of(line)
        if message is None or agent not in self._agents:
            return []
        if message.method is UNSET:
            return self._answered(agent, message)
        if message.id is UNSET:
            return self._heard(agent, message.method, message.params, now_s)
        if message.id is None:
            return []
        return self._asked(agent, message.id, message.method, message.params)

    def _asked(self, agent: int, own: Id, method: str, params: Raw | UnsetType) -> list[Sent]:
        if method in OPENINGS:
            return self._open(agent, own, method, params)
        if method not in PASSED:
            return [
                ToAgent(agent, _refused(own, UNKNOWN, f"a shared server is not asked {method}"))
            ]
        if (agent, own) in self._numbers:
            return [ToAgent(agent, _refused(own, INVALID, "a request of this id runs"))]
        if sum(one.agent == agent for one in self._requests.values()) >= REQUESTS_MAX:
            problem = f"{REQUESTS_MAX} requests of this session wait for the server"
            return [ToAgent(agent, _refused(own, BUSY, problem))]
        number = self._next()
        token, params = _exchanged(params, _TOKEN, _json(number))
        self._requests[number] = _Request(agent, own, method, token)
        self._numbers[agent, own] = number
        return [ToServer(_line(Message(id=number, method=method, params=params)))]

    def _open(self, agent: int, own: Id, method: str, params: Raw | UnsetType) -> list[Sent]:
        opening = self._openings.setdefault(method, _Opening())
        if opening.result is not None:
            return [ToAgent(agent, _line(Message(id=own, result=opening.result)))]
        opening.waiting.append((agent, own))
        if opening.number is not None:
            return []
        opening.number = self._next()
        return [ToServer(_line(Message(id=opening.number, method=method, params=params)))]

    def _heard(self, agent: int, method: str, params: Raw | UnsetType, now_s: float) -> list[Sent]:
        if method == _INITIALIZED and not self._is_initialized:
            self._is_initialized = True
            return [ToServer(_line(Message(method=method, params=params)))]
        own = _id_in(params, "requestId") if method == _CANCELLED else None
        if own is None:
            return []
        for opening in self._openings.values():
            opening.waiting = [one for one in opening.waiting if one != (agent, own)]
        number = self._numbers.get((agent, own))
        return [] if number is None else [self._cancel(number, now_s)]

    def _answered(self, agent: int, message: Message) -> list[Sent]:
        """Pass on an answer to a question that this agent was asked."""
        own = message.id
        if isinstance(own, UnsetType) or own is None or self._questions.get(own) != agent:
            return []
        del self._questions[own]
        return [ToServer(_line(message))]

    def _cancel(self, number: int, now_s: float) -> ToServer:
        request = self._forget(number)
        if request.method == CALL:
            self._lingering[request.agent] = now_s + LINGER_S
        params = Raw(_json({"requestId": number}))
        return ToServer(_line(Message(method=_CANCELLED, params=params)), cancels=True)

    def _forget(self, number: int) -> _Request:
        request = self._requests.pop(number)
        self._numbers.pop((request.agent, request.id), None)
        return request

    def _next(self) -> int:
        self._last += 1
        return self._last

    # --- the server -----------------------------------------------------------------------------

    def probe(self) -> ToServer:
        """Return a request that every server answers, if only with an error."""
        number = self._next()
        self._requests[number] = _Request(_PROBE, number, "tools/list")
        return ToServer(_line(Message(id=number, method="tools/list")))

    def from_server(self, line: bytes, now_s: float) -> list[Sent]:
        """Return what follows of a line of the server's; what it prints besides is nothing."""
        message = message_of(line)
        if message is None:
            answer = unread(line)
            return [] if answer is None else list(self._unread(answer))
        if message.method is UNSET:
            return list(self._result(message))
        if message.id is UNSET:
            return self._notified(message.method, message.params)
        if message.id is None:
            return []
        return self._questioned(message.id, message.method, line, now_s)

    def _result(self, message: Message) -> Iterator[Sent]:
        """Answer all who wait; a result of an opening is kept, an error is not."""
        opening, waiting = self._waiting(message.id)
        if opening is not None and not isinstance(message.result, UnsetType):
            opening.result = message.result.copy()
        for agent, own in waiting:
            yield ToAgent(agent, _line(msgspec.structs.replace(message, id=own)))

    def _unread(self, answer: Unread) -> Iterator[Sent]:
        """Pass on an answer that can't be read as it is: who has asked says what is wrong."""
        _, waiting = self._waiting(answer.id)
        for agent, own in waiting:
            yield ToAgent(agent, answer.under(own))

    def _waiting(self, number: object) -> tuple[_Opening | None, list[tuple[int, Id]]]:
        """Return who waits for an answer, and for which opening; they wait no more."""
        for opening in self._openings.values():
            if opening.number is not None and opening.number == number:
                waiting, opening.waiting, opening.number = opening.waiting, [], None
                return opening, waiting
        if not isinstance(number, int) or number not in self._requests:
            return None, []  # it was cancelled, or never asked for
        request = self._forget(number)
        return None, [] if request.agent == _PROBE else [(request.agent, request.id)]

    def _notified(self, method: str, params: Raw | UnsetType) -> list[Sent]:
        if method == _PROGRESS:
            number = _id_in(params, _TOKEN)
            request = self._requests.get(number) if isinstance(number, int) else None
            if request is None or request.token is None:
                return []
            params = _with(params, _TOKEN, request.token)
            return [ToAgent(request.agent, _line(Message(method=method, params=params)))]
        if method == _CANCELLED:
            asked = _id_in(params, "requestId")
            agent = None if asked is None else self._questions.pop(asked, None)
            line = _line(Message(method=method, params=params))
            return [] if agent is None else [ToAgent(agent, line)]
        found, _ = _exchanged(params, _SUBSCRIPTION, b"0")
        if found is not None:
            return self._of_subscription(method, params, found)
        if method not in FOR_ALL:
            return []
        line = _line(Message(method=method, params=params))
        return [ToAgent(agent, line) for agent in sorted(self._agents)]

    def _of_subscription(self, method: str, params: Raw | UnsetType, found: Raw) -> list[Sent]:
        number = _as_id(found)
        request = self._requests.get(number) if isinstance(number, int) else None
        if request is None:
            return []
        _, params = _exchanged(params, _SUBSCRIPTION, _json(request.id))
        return [ToAgent(request.agent, _line(Message(method=method, params=params)))]

    def _questioned(self, asked: Id, method: str, line: bytes, now_s: float) -> list[Sent]:
        if method == "ping":
            return [ToServer(_line(Message(id=asked, result=Raw(b"{}"))))]
        if method not in ASKS:
            return [ToServer(_refused(asked, UNKNOWN, f"nobody is asked {method} here"))]
        meant = self._callers(now_s)
        if len(meant) != 1 or asked in self._questions or len(self._questions) >= QUESTIONS_MAX:
            problem = (
                "no call of a session runs, so nobody can be asked"
                if not meant
                else "several sessions share this server, and nobody knows which one is meant"
            )
            return [ToServer(_refused(asked, INVALID, problem))]
        (agent,) = meant
        if agent not in self._agents:
            return [ToServer(_refused(asked, INVALID, "whose call this was is gone"))]
        self._questions[asked] = agent
        return [ToAgent(agent, line.strip())]

    def _callers(self, now_s: float) -> set[int]:
        """Return whose calls run, those included that may do so though they were cancelled."""
        self._lingering = {one: until for one, until in self._lingering.items() if until > now_s}
        running = {one.agent for one in self._requests.values() if one.method == CALL}
        return running | self._lingering.keys()


# --- JSON -----------------------------------------------------------------------------------------


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)


def _line(message: Message) -> bytes:
    return msgspec.json.encode(message)


def _refused(own: Id, code: int, problem: str) -> bytes:
    return _line(Message(id=own, error=Raw(_json({"code": code, "message": problem}))))


def _opened_params(params: Raw | UnsetType) -> dict[str, Raw]:
    if isinstance(params, UnsetType):
        return {}
    try:
        return _PARAMS.decode(params)
    except (msgspec.DecodeError, RecursionError):
        return {}


def _with(params: Raw | UnsetType, name: str, value: Raw) -> Raw:
    return Raw(_json({**_opened_params(params), name: value}))


def _exchanged(
    params: Raw | UnsetType, name: str, value: bytes
) -> tuple[Raw | None, Raw | UnsetType]:
    """Put ``value`` in the place of what ``_meta`` has under a name; return that, and the params.

    Where there is nothing of the name, nothing is changed.
    """
    opened = _opened_params(params)
    meta = _opened_params(opened.get("_meta", UNSET))
    if name not in meta:
        return None, params
    meta_now = Raw(_json({**meta, name: Raw(value)}))
    return meta[name].copy(), Raw(_json({**opened, "_meta": meta_now}))


def _id_in(params: Raw | UnsetType, name: str) -> Id | None:
    found = _opened_params(params).get(name)
    return None if found is None else _as_id(found)


def _as_id(raw: Raw) -> Id | None:
    try:
        found: Id = _ID.decode(raw)
    except msgspec.DecodeError:
        return None
    return found
