"""The commands that the calls of a client send, without a daemon.

``sent.steer("left")`` is the command that ``client.steer(session, "left")`` would send.
"""

import asyncio
from functools import partial

from cmdc_runtime.client.session import AsyncClient


class Sent(BaseException):
    """What a call came to."""


class Recorder:
    """A connection, and the way to it, that goes no further than a command."""

    async def connected(self, session_id=None):
        return self

    async def disconnect(self):
        return None

    async def send(self, session_id, command, *, timeout_s):
        raise Sent(command)


class Commands:
    """Each call by its name."""

    def __getattr__(self, name):
        return partial(_command_of, name)


def _command_of(name, *args, **given):
    client = AsyncClient(connector=Recorder())
    try:
        asyncio.run(getattr(client, name)("s-1", *args, **given))
    except Sent as found:
        return found.args[0]
    raise AssertionError(f"{name} sent nothing")


sent = Commands()
