"""The application of the incidents: tools and plugins that go wrong, each in one way."""

import asyncio
import ctypes
import os
import sys
import time
from pathlib import Path

import msgspec

import cmdc_runtime as cmdc

PIECE_BYTES = 32 * 2**20
PIECES = 8
"""Together more than any limit that an incident sets."""
BLOCK_S = 3600.0
"""Longer than anybody waits."""
NO_LICENCE = 3


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@cmdc.tool(effects="write")
async def charge(order: str) -> str:
    """Charge a customer; a callback has a bug."""

    def booked() -> None:
        raise LookupError(f"no account for order {order}")

    asyncio.get_running_loop().call_soon(booked)
    await asyncio.Event().wait()
    return "never"


@cmdc.tool(effects="write", isolation="thread")
def render(page: int) -> str:
    """Draw a page with a C library that reads where it must not."""
    _say(f"render: page {page}, no font cache")
    return str(ctypes.string_at(0))


@cmdc.tool(effects="write", isolation="thread")
def convert(status: int) -> str:
    """Call a library that ends the process when it is at a loss."""
    _say(f"convert: giving up with status {status}")
    os._exit(status)


@cmdc.tool(effects="write", isolation="thread")
def load_catalogue() -> str:
    """Read everything into memory."""
    kept = [bytearray(PIECE_BYTES) for _ in range(PIECES)]
    time.sleep(BLOCK_S)
    return str(len(kept))


@cmdc.tool(effects="write")
async def fetch_prices() -> str:
    """Wait in a way that stops the whole agent."""
    time.sleep(BLOCK_S)  # noqa: ASYNC251 - this is the bug
    return "never"


@cmdc.tool(effects="read")
def look_up(word: str) -> str:
    """Find a reason to look further."""
    return f"see also {word}s"


class Spending(cmdc.Plugin):
    """Lets nobody spend anything."""

    def before_prompt(self, _event: cmdc.BeforePrompt, _context: cmdc.PluginContext) -> cmdc.Abort:
        """Refuse every prompt."""
        return cmdc.Abort("the monthly budget is spent")


class Licence(cmdc.Plugin):
    """Wants a licence file; without one it refuses, or ends the process as some libraries do."""

    class Config(msgspec.Struct, frozen=True):
        """Where the file is, and how to do without."""

        file: str
        is_rude: bool = False

    def session_start(
        self, _event: cmdc.SessionStart, _context: cmdc.PluginContext
    ) -> cmdc.Abort | None:
        """Look for the file."""
        if Path(self.config.file).exists():
            return None
        if self.config.is_rude:
            _say("licence: the file is gone")
            os._exit(NO_LICENCE)
        return cmdc.Abort("the licence file is gone")
