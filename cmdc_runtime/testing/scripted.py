"""``ScriptedModel``: a model whose every answer a test has written down beforehand.

It is a real OpenAI-compatible server on the loopback, so that the provider path that a session
takes in production runs in the test too. Rules: the script is an exact FIFO, a step is taken at
the moment its request has arrived, and everything that tests wait for has a bound. Methods block
the calling thread; from a coroutine use ``asyncio.to_thread``.

An answer's HTTP head goes out with the first bytes of the body, so whatever comes first in a script
also comes before the head. Every wait is cancelled from outside when the client goes away.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final

import msgspec
import structlog

from cmdc_runtime.closing import Closing
from cmdc_runtime.testing import wire
from cmdc_runtime.testing.server import HOST, HttpReply, HttpRequest, ServerThread, Torn
from cmdc_runtime.testing.steps import (
    Delay,
    Disconnect,
    Error,
    Hold,
    Piece,
    Request,
    Sequence,
    Stall,
    Step,
    ToolCalls,
    Truncate,
    sequence_of,
)

# --- one answer -----------------------------------------------------------------------------------

STALL_S_MAX: Final = 300.0
"""A stalled connection is closed after this time if its client waits that long."""

Wait = Callable[[], Awaitable[None]]


class Performance:
    """One answer to one request."""

    def __init__(
        self, heading: wire.Heading, request: Request, answer: Sequence, *, hold: Wait
    ) -> None:
        """Take everything that the answer depends on; ``hold`` returns when released."""
        self._heading = heading
        self._request = request
        self._pieces = answer.pieces
        self._hold = hold
        self._calls_sent = 0

    async def send(self, reply: HttpReply) -> None:
        """Answer.

        Raises:
            Torn: the script wants the connection closed in the middle.
        """
        if self._request.get("stream"):
            await self._stream(reply)
        else:
            await self._whole(reply)

    async def _stream(self, reply: HttpReply) -> None:
        opening: wire.Json = {"role": "assistant"}
        for piece in self._pieces:
            await self._wait(piece)
            if isinstance(piece, Error):
                await self._fail(piece, reply)
                return
            for at, delta in enumerate(wire.deltas(piece, self._heading, self._calls_sent)):
                if at:
                    await asyncio.sleep(getattr(piece, "delay", 0.0))
                await reply.event(wire.event(self._heading.chunk(opening | delta)))
                opening = {}
            await self._cut(piece)
            self._calls_sent += len(piece.calls) if isinstance(piece, ToolCalls) else 0
        if isinstance(self._pieces[-1], Truncate):
            await reply.end(wire.event(self._heading.chunk(opening)))
        else:
            await self._finish(opening, reply)

    async def _finish(self, opening: wire.Json, reply: HttpReply) -> None:
        last = self._heading.chunk(opening, wire.finish_reason(self._pieces))
        await reply.event(wire.event(last))
        options = self._request.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            usage = wire.usage(self._pieces, self._request)
            await reply.event(wire.event(self._heading.usage_chunk(usage)))
        await reply.end(wire.DONE)

    async def _whole(self, reply: HttpReply) -> None:
        for piece in self._pieces:
            await self._wait(piece)
            if isinstance(piece, Error):
                await self._fail(piece, reply)
                return
        body = wire.encode(
            self._heading.completion(
                wire.message(self._pieces, self._heading),
                wire.finish_reason(self._pieces),
                wire.usage(self._pieces, self._request),
            )
        )
        last = self._pieces[-1]
        if not isinstance(last, Stall | Disconnect):
            await reply.whole(200, body)
        elif last.after_chars:
            await reply.whole(200, body, sent=min(last.after_chars, len(body) - 1))
        await self._cut(last)

    async def _wait(self, piece: Piece) -> None:
        if isinstance(piece, Delay):
            await asyncio.sleep(piece.seconds)
        elif isinstance(piece, Hold):
            await self._hold()

    async def _cut(self, piece: Piece) -> None:
        if isinstance(piece, Stall):
            await asyncio.sleep(STALL_S_MAX)
        if isinstance(piece, Stall | Disconnect):
            raise Torn

    async def _fail(self, error: Error, reply: HttpReply) -> None:
        body = wire.error_body(error)
        if reply.is_begun:
            await reply.end(wire.event(body))
            return
        wait = () if error.retry_after is None else (f"Retry-After: {error.retry_after:g}",)
        await reply.whole(error.status, wire.encode(body), headers=wait)


# --- the model ------------------------------------------------------------------------------------

MODEL: Final = "scripted"
REQUESTS_KEPT_MAX: Final = 10_000
"""Older requests are forgotten, not refused: a model may serve a long benchmark."""
PROBLEMS_KEPT_MAX: Final = 100
HOLD_S_MAX: Final = 120.0
"""A stream that nobody releases is torn after this time and counts as a problem."""
WAIT_S: Final = 10.0
QUOTE_CHARS_MAX: Final = 120
_MODELS: Final = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "cmdc_runtime"}],
}

log = structlog.get_logger(__name__)


class ScriptedModel(Closing):
    """Answers each request with the next step; usable as ``model=`` and as a context manager.

    ``default`` answers once the steps are used up. Without it such a request is refused for good
    (HTTP 410, after which no session asks again) in words that say which one it was and what it
    asked, and ``assert_complete`` fails. The server starts when it is first needed. A step that is
    a callable gets the decoded request, runs in the server's loop and must not block: what waits is
    written as ``Hold`` or ``Delay``. An answer that is longer than the ``max_tokens`` of its
    request is cut there, as real servers do it, unless ``keeps_to_max_tokens`` is false.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        *,
        default: Step | None = None,
        keeps_to_max_tokens: bool = True,
    ) -> None:
        """Check the steps; start nothing yet.

        Raises:
            TypeError: a step is no step, or ``steps`` is a str, which would be read by letters.
            ValueError: a piece follows one that ends its answer.
        """
        if isinstance(steps, str):
            raise TypeError(f"steps is a list of answers, got the str {_quote(steps)}")
        self._steps = deque(_checked(step) for step in steps)
        self._steps_count = len(self._steps)
        self._default = None if default is None else _checked(default)
        self._keeps_to_max_tokens = keeps_to_max_tokens
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque(maxlen=REQUESTS_KEPT_MAX)
        self._requests_count = 0
        self._abandoned_count = 0
        self._problems: deque[str] = deque(maxlen=PROBLEMS_KEPT_MAX)
        self._held: deque[asyncio.Event] = deque()
        self._releases = 0
        self._server = ServerThread(self._handle, self._note_abandoned)
        self._port: int | None = None
        self._is_closed = False

    @property
    def url(self) -> str:
        """The base URL of the API, ``http://127.0.0.1:PORT/v1``; starts the server."""
        with self._changed:
            if self._is_closed:
                raise RuntimeError("this ScriptedModel is closed")
            if self._port is None:
                self._port = self._server.start()
            return f"http://{HOST}:{self._port}/v1"

    def model_source(self) -> tuple[str, dict[str, str]]:
        """Return the model's name and the provider options that lead to this server."""
        return f"openai/{MODEL}", {"api_base": self.url, "api_key": MODEL}

    @property
    def requests(self) -> list[Request]:
        """The decoded bodies of the newest ``REQUESTS_KEPT_MAX`` requests, oldest first."""
        with self._changed:
            return list(self._requests)

    def wait_request(self, n: int = 1, timeout: float = WAIT_S) -> Request:
        """Return the ``n``-th request (from 1) once it has arrived.

        Raises:
            TimeoutError: fewer than ``n`` requests arrived within ``timeout`` seconds.
            LookupError: it is not among the newest ``REQUESTS_KEPT_MAX``.
        """
        self._wait(lambda: self._requests_count >= n, timeout, f"request {n}")
        with self._changed:
            oldest = self._requests_count - len(self._requests) + 1
            if n < oldest:
                raise LookupError(f"request {n} is forgotten, the oldest one kept is {oldest}")
            return self._requests[n - oldest]

    def wait_held(self, timeout: float = WAIT_S, count: int = 1) -> None:
        """Return once ``count`` streams wait in a ``Hold``.

        Raises:
            TimeoutError: fewer streams reached one within ``timeout`` seconds.
        """
        self._wait(lambda: len(self._held) >= count, timeout, f"{count} held")

    def wait_abandoned(self, n: int = 1, timeout: float = WAIT_S) -> None:
        """Return once ``n`` clients have gone away before the end of their answer.

        Raises:
            TimeoutError: fewer did within ``timeout`` seconds.
        """
        self._wait(lambda: self._abandoned_count >= n, timeout, f"{n} abandoned")

    def release(self, count: int = 1) -> None:
        """Let ``count`` held streams go on, the longest held first.

        What is released beyond the held ones is kept for streams that reach a ``Hold`` later; call
        ``wait_held`` first where the order matters.
        """
        with self._changed:
            ready = [self._held.popleft() for _ in range(min(count, len(self._held)))]
            self._releases += count - len(ready)
        for gate in ready:
            self._server.call(gate.set)

    def assert_complete(self) -> None:
        """Check that every step was taken and every request found one.

        Raises:
            AssertionError: not so; says what is left and what went wrong.
        """
        with self._changed:
            left = [_quote(repr(step)) for step in self._steps]
            problems = list(self._problems)
        lines = [f"{len(left)} of {self._steps_count} steps were not taken:", *left] if left else []
        if lines or problems:
            raise AssertionError("\n  ".join(["the script was not followed", *problems, *lines]))

    def close(self) -> None:
        """Free the port and end every stream and the thread; does nothing the second time.

        Raises:
            TimeoutError: the thread did not end in time.
        """
        with self._changed:
            was_serving = self._port is not None and not self._is_closed
            self._is_closed = True
        if was_serving:
            self._server.close()

    def _wait(self, reached: Callable[[], bool], timeout_s: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, timeout_s):
                raise TimeoutError(
                    f"waited {timeout_s} s for {what}: {self._requests_count} requests, "
                    f"{len(self._held)} held, {self._abandoned_count} abandoned"
                )

    async def _handle(self, request: HttpRequest, reply: HttpReply) -> None:
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                await self._complete(request.body, reply)
            case "GET", "/v1/models":
                await reply.whole(HTTPStatus.OK, wire.encode(_MODELS))
            case "GET", "/health" | "/v1/health":
                await reply.whole(HTTPStatus.OK, wire.encode({"status": "ok"}))
            case _:
                await _refuse(reply, HTTPStatus.NOT_FOUND, f"no such path: {request.path}")

    async def _complete(self, body: bytes, reply: HttpReply) -> None:
        try:
            request = msgspec.json.decode(body, type=dict)
        except msgspec.DecodeError as error:
            await _refuse(reply, HTTPStatus.BAD_REQUEST, f"the body is no JSON object: {error}")
            return
        number, step = self._taken(request)
        answer = self._answered(number, step, request)
        heading = wire.Heading(number=number, model=str(request.get("model", MODEL)))
        if self._keeps_to_max_tokens:
            answer = Sequence(*wire.cut(answer.pieces, request))
        performance = Performance(heading, request, answer, hold=self._hold)
        await performance.send(reply)

    def _taken(self, request: Request) -> tuple[int, Step | None]:
        with self._changed:
            self._requests.append(request)
            self._requests_count += 1
            step = self._steps.popleft() if self._steps else self._default
            self._changed.notify_all()
            return self._requests_count, step

    def _answered(self, number: int, step: Step | None, request: Request) -> Sequence:
        if step is None:
            taken = f"the script has {self._steps_count}, and all were taken"
            return self._problem(f"request {number} found no step, {taken}; {_asked(request)}")
        if not callable(step):
            return sequence_of(step)
        try:
            return sequence_of(step(request))
        except Exception as error:
            log.exception("step.failed", request=number)
            return self._problem(
                f"the step of request {number} raised {type(error).__name__}: {error}; "
                f"{_asked(request)}"
            )

    def _problem(self, text: str) -> Sequence:
        with self._changed:
            self._problems.append(text)
        message = f"ScriptedModel: {text}"
        # Of the refusals one that no words make into another kind of failure.
        return Sequence(Error(HTTPStatus.GONE, message, code="script_not_followed"))

    def _note_abandoned(self) -> None:
        with self._changed:
            self._abandoned_count += 1
            self._changed.notify_all()

    async def _hold(self) -> None:
        gate = asyncio.Event()
        with self._changed:
            if self._releases:
                self._releases -= 1
                return
            self._held.append(gate)
            self._changed.notify_all()
        try:
            async with asyncio.timeout(HOLD_S_MAX):
                await gate.wait()
        except TimeoutError as error:
            self._problem(f"a held stream was not released within {HOLD_S_MAX} s")
            raise Torn from error
        finally:
            with self._changed:
                if gate in self._held:
                    self._held.remove(gate)


def _checked(step: Step) -> Step:
    return step if callable(step) else sequence_of(step)


def _asked(request: Request) -> str:
    """Return what a request was, for who finds out why the script had no answer to it."""
    last = wire.last_entry(request)
    said = f"its last user message: {_quote(wire.last_user_text(request))}"
    if last.get("role") != "tool":
        return said
    result = f"it followed the result of {last.get('tool_call_id')}: {_quote(wire.text_of(last))}"
    return f"{result}; {said}"


def _quote(text: str) -> str:
    return repr(text if len(text) <= QUOTE_CHARS_MAX else text[:QUOTE_CHARS_MAX] + "…")


async def _refuse(reply: HttpReply, status: HTTPStatus, message: str) -> None:
    await reply.whole(status, wire.encode(wire.error_body(Error(status, message))))
