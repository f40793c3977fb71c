"""A model server that sends bytes as a test gives them, one answer for each request."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    """Answers every POST with the next of the server's answers, the last one again and again."""

    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        with self.server.turn:
            self.server.asked += 1
            answers = self.server.answers
            status, headers, pieces = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except OSError as error:
            self.server.broken = error  # the client has had enough


class Sender(ThreadingHTTPServer):
    """``asked`` counts requests; an answer is a status, headers and an iterable of bytes.

    ``broken`` is what ended the last answer that was not sent whole.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = [*answers]
        self.asked = 0
        self.broken = None
        self.turn = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def options(self):
        """What leads a session here."""
        return {"api_base": f"http://127.0.0.1:{self.server_port}/v1", "api_key": "none"}

    def __exit__(self, *args):
        self.shutdown()
        self._thread.join()
        super().__exit__(*args)


def stream(*events):
    """Return an answer of server-sent events; bytes are sent as they are."""
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in events]
    body = b"".join(b"data: " + line + b"\n\n" for line in (*lines, b"[DONE]"))
    return 200, {"content-type": "text/event-stream"}, [body]


def chunk(delta, finish=None, **more):
    """Return one chunk of a reply."""
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} | more


def said(text, **more):
    """Return a whole reply of one text."""
    return stream(chunk({"content": text}), chunk({}, "stop", **more))


def called(*calls):
    """Return a whole reply that calls tools: (id, name, arguments) each."""
    pieces = [
        {"index": at, "id": id_, "type": "function", "function": {"name": name, "arguments": raw}}
        for at, (id_, name, raw) in enumerate(calls)
    ]
    return stream(chunk({"tool_calls": pieces}), chunk({}, "tool_calls"))
