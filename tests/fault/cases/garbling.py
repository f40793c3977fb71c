"""A daemon whose frames to its agents arrive spoiled where a plan says so.

The plan of a session is a file of its name in the folder ``GARBLED_FRAMES``; each line names a kind
of frame and how the next one of it is spoiled, the first line first. What goes to a process that
an earlier daemon has started is in the file of its kind.
"""

import os
from pathlib import Path

import msgspec

from cmdc_runtime.wire.codec import encode
from cmdc_runtime.wire.frames import HEADER, Assign
from supervisor import entry
from supervisor.adapters.router import Router

SECRET = "sk-not-to-be-shown"
COMMAND = "import garbling; garbling.main()"
"""What runs it, where this folder is on the path: nothing else that it starts imports this file."""


def fields(frame):
    return msgspec.msgpack.decode(frame)


# fmt: off
WAYS = {
    "cut":     lambda frame: HEADER + frame[:-1],
    "more":    lambda frame: HEADER + frame + b"\xc0",
    "unknown": lambda frame: HEADER + msgspec.msgpack.encode([SECRET, *fields(frame)[1:]]),
    "fields":  lambda frame: HEADER + msgspec.msgpack.encode([fields(frame)[0], {SECRET: SECRET}]),
    "header":  lambda frame: b"cmdc\xff" + frame,
    "nothing": lambda _frame: b"",
}
# fmt: on


def spoil_frames(folder):
    """Have the daemon of this process send what the plans in ``folder`` say."""
    plain, sessions = Router.send, {}

    def send(router, peer, frame):
        if isinstance(frame, Assign):
            sessions[peer] = frame.session_id
        plan = folder / sessions.get(peer, type(frame).__name__)
        lines = plan.read_text().split("\n") if plan.exists() else [""]
        kind, _, way = lines[0].partition(" ")
        if kind != type(frame).__name__:
            return plain(router, peer, frame)
        plan.write_text("\n".join(lines[1:]))
        return router._pump.send((WAYS[way](encode(frame)),), peer=peer)

    Router.send = send


def main():
    """Be a daemon."""
    spoil_frames(Path(os.environ["GARBLED_FRAMES"]))
    entry.main()
