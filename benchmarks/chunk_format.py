"""The bytes of a streamed answer of a chat: who sends one and who reads one agree on these.

A request names what it wants by its path, ``/CHUNKS/INTERVAL_US/chat/completions``: how many chunks
with a text, and the pause before each; where there is no interval, there is no pause.
"""

from typing import Final

MODEL: Final = "openai:gpt-4o"
KEY: Final = "no-key-at-all"
TEXT: Final = "word "
HOST: Final = "127.0.0.1"
PATH: Final = "/chat/completions"
HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
CHUNK: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o",'
    b'"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}\n\n'
)
END_OF_HEAD: Final = b"\r\n\r\n"


def framed(data: bytes) -> bytes:
    """Return a piece of the body as HTTP has it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunk(text: str) -> bytes:
    """Return the piece of a chunk with a text that JSON has as it is."""
    return framed(CHUNK % (text.encode(), b"null"))


EVENT: Final = chunk(TEXT)
LAST: Final = framed(CHUNK % (b"", b'"stop"') + b"data: [DONE]\n\n") + b"0\r\n\r\n"


def wanted(head: bytes) -> tuple[int, int]:
    """Return the chunks and the interval in us that the head of a request asks for."""
    parts = head.split()[1].split(b"/")
    return int(parts[1]), int(parts[2]) if parts[2].isdigit() else 0


def body_bytes(head: bytes) -> int:
    """Return how long the body behind the head of a request is."""
    _, _, behind = head.lower().partition(b"content-length:")
    return int(behind.split()[0])
