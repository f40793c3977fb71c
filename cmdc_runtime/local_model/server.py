"""The local model behind HTTP: OpenAI's chat completions on the loopback, a thread per connection.

A client that goes away ends the computation of its answer with the next token.

The model itself is llama.cpp in this process, by way of xllamacpp. Both the library and the weights
are optional; ``Unavailable`` says how to get them.
"""

import importlib
import json
import select
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, TypeAlias

from cmdc_runtime.local_model.answers import MODEL, AnswerPlan, Gathered, cleaned, plan
from cmdc_runtime.local_model.weights import ENGINE, INSTALL, Unavailable

# --- the engine -----------------------------------------------------------------------------------

Json: TypeAlias = dict[str, Any]  # Any: JSON

SLOTS: Final = 2
"""Answers that are computed at once; more requests wait in the engine."""
CONTEXT_TOKENS: Final = 4096
"""Of one slot: prompt and answer together."""


class Declined(Exception):
    """The engine refused a request; ``body`` is its word, in OpenAI's shape."""

    def __init__(self, status: int, body: Json) -> None:
        """Keep status and body."""
        self.status = status
        self.body = body
        super().__init__(body["error"]["message"])


class Engine:
    """A loaded model; ``stream`` may be called from several threads."""

    def __init__(self, gguf: Path, threads: int) -> None:
        """Load the weights, which takes a second or more.

        Raises:
            Unavailable: the library is missing, or it cannot load the weights.
        """
        try:
            llama = importlib.import_module(ENGINE)
        except ImportError as error:
            raise Unavailable(f"{ENGINE} cannot be imported ({error}); {INSTALL}") from error
        params = llama.CommonParams()
        params.model.path = str(gguf)
        params.n_ctx = SLOTS * CONTEXT_TOKENS
        params.n_parallel = SLOTS
        params.hostnames = ["127.0.0.1"]
        params.verbosity = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        try:
            self._server = llama.Server(params)
        except Exception as error:
            raise Unavailable(f"cannot load {gguf}: {error}") from error

    def stream(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        """Pass each chunk of the answer to ``on_chunk`` until its end or until that says False.

        Raises:
            Declined: the engine does not answer this request.
        """
        refusals: list[Json] = []

        def is_over(chunk: Json) -> bool:
            if "error" in chunk:
                refusals.append(chunk)
                return True
            return not on_chunk(chunk)

        options = {"stream": True, "stream_options": {"include_usage": True}}
        try:
            self._server.handle_chat_completions(body | options, is_over)
        except ValueError as error:
            raise Declined(400, {"error": {"message": str(error), "code": 400}}) from error
        if refusals:
            raise Declined(int(refusals[0]["error"].get("code", 500)), refusals[0])


# --- HTTP -----------------------------------------------------------------------------------------

HOST: Final = "127.0.0.1"
REQUESTS_MAX: Final = 32
"""Requests that are answered or wait for a slot; one more gets a 429."""
BODY_BYTES_MAX: Final = 16 * 1024 * 1024
IDLE_S_MAX: Final = 30.0
"""How long a client may be silent while it sends its request."""
_DONE: Final = b"data: [DONE]\n\n"
_MODELS: Final[Json] = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "cmdc_runtime"}],
}
_PAGES: Final[dict[str, Json]] = {"/v1/models": _MODELS, "/health": {"status": "ok"}}


class LocalServer(ThreadingHTTPServer):
    """Serves one engine; port 0 lets the system choose."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine, port: int) -> None:
        """Bind; serve nothing yet.

        Raises:
            OSError: the port is taken.
        """
        self.engine = engine
        self.vacancies = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__((HOST, port), _Connection)

    @property
    def url(self) -> str:
        """The base URL of the API."""
        return f"http://{HOST}:{self.server_port}/v1"


class _Connection(BaseHTTPRequestHandler):
    """One request and its answer; the connection is closed after it."""

    server: LocalServer
    timeout = IDLE_S_MAX
    protocol_version = "HTTP/1.1"
    _is_begun = False

    def log_message(self, *_: object) -> None:
        """Log nothing: the paths say little, and bodies are never logged."""

    def do_GET(self) -> None:
        """Answer with one of the fixed pages."""
        page = _PAGES.get(self.path)
        if page is None:
            self._fail(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        else:
            self._whole(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        """Answer a chat completion."""
        if self.path != "/v1/chat/completions":
            self._fail(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        elif not self.server.vacancies.acquire(blocking=False):
            self._fail(HTTPStatus.TOO_MANY_REQUESTS, f"{REQUESTS_MAX} requests are waiting")
        else:
            try:
                self._complete()
            except ConnectionError:
                self.close_connection = True
            finally:
                self.server.vacancies.release()

    def _complete(self) -> None:
        try:
            request = json.loads(self._body())
            planned = plan(request)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._fail(HTTPStatus.BAD_REQUEST, f"malformed request: {error!r}")
            return
        is_streamed = bool(request.get("stream"))
        has_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        try:
            if is_streamed and not planned.is_call:
                self._stream_text(planned, has_usage=has_usage)
            elif is_streamed:
                self._stream_call(planned, has_usage=has_usage)
            else:
                gathered = self._gathered(planned)
                self._whole(HTTPStatus.OK, gathered.completion(is_call=planned.is_call))
        except Declined as declined:
            self._decline(declined)

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= BODY_BYTES_MAX:
            raise ValueError(f"the body has {length} bytes, the bound is {BODY_BYTES_MAX}")
        return self.rfile.read(length)

    def _stream_text(self, planned: AnswerPlan, *, has_usage: bool) -> None:
        def on_chunk(chunk: Json) -> bool:
            # An exception would be lost inside the engine, so a lost client is an answer.
            try:
                if chunk["choices"] or has_usage:
                    self._event(cleaned(chunk))
            except OSError:
                return False
            return not self._is_client_gone()

        self.server.engine.stream(planned.body, on_chunk)
        self.wfile.write(_DONE)

    def _stream_call(self, planned: AnswerPlan, *, has_usage: bool) -> None:
        gathered = self._gathered(planned)
        for chunk in gathered.call_chunks():
            self._event(chunk)
        if has_usage:
            self._event(gathered.usage_chunk())
        self.wfile.write(_DONE)

    def _gathered(self, planned: AnswerPlan) -> Gathered:
        gathered = Gathered()

        def on_chunk(chunk: Json) -> bool:
            gathered.add(chunk)
            return not self._is_client_gone()

        self.server.engine.stream(planned.body, on_chunk)
        return gathered

    def _is_client_gone(self) -> bool:
        connection: socket.socket = self.connection
        # Asked first: a socket with a time-out waits for it even with MSG_DONTWAIT.
        if not select.select([connection], [], [], 0)[0]:
            return False
        try:
            return not connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _decline(self, declined: Declined) -> None:
        if self._is_begun:
            self._event(declined.body)
        else:
            self._whole(declined.status, declined.body)

    def _fail(self, status: HTTPStatus, message: str) -> None:
        self._whole(status, {"error": {"message": message, "code": status.value}})

    def _event(self, body: Json) -> None:
        if not self._is_begun:
            self._head(HTTPStatus.OK, "text/event-stream")
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _whole(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self._head(status, "application/json", len(data))
        self.wfile.write(data)

    def _head(self, status: int, content_type: str, length: int | None = None) -> None:
        self._is_begun = True
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")  # without a length, the close ends the body
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
