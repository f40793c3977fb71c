"""What the sessions of a soak can do: one tool for each effects class and each way of running.

Whatever has effects writes its ``serial`` into a file, where ``twice_done`` finds what happened
twice. To add a tool: its function, its place in ``CHOICES``, and its arguments in ``plan.py``.
"""

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.actions import Actions, UpdateSystemContext
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforePrompt
from scripts.soak.waves import Waves

EFFECTS_FILE: Final = "effects"
REPEATABLE_FILE: Final = "repeatable"
ASK_S: Final = 60.0
"""Longer than any daemon is away: an answer that comes in time must count."""
SUBAGENT_S: Final = 30.0
NOTED: Final = "noted"
"""The event of a plugin that has something to say to the model, with its text."""
AFTERWARDS_S: Final = 0.02
"""From an effect to the return of its call: here a crash must not make it happen again."""


def _note(context: cmdc.Context, file: str, line: str) -> None:
    place = Path(context.working_dir, file)
    opened = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(opened, f"{line}\n".encode())  # one call of the system: lines never mix
    finally:
        os.close(opened)


def _lines(working_dir: Path, file: str) -> list[str]:
    found = working_dir / file
    return found.read_text(encoding="utf-8").splitlines() if found.exists() else []


def effects(working_dir: Path) -> list[str]:
    """Return the serials of what was done by write tools, in order."""
    return _lines(working_dir, EFFECTS_FILE)


def twice_done(working_dir: Path) -> list[str]:
    """Return the serials of effects that happened more than once in a session."""
    return sorted(serial for serial, count in Counter(effects(working_dir)).items() if count > 1)


def keys_changed(working_dir: Path) -> list[str]:
    """Return the serials of idempotent calls that ran under more than one key."""
    pairs = {tuple(line.split(" ", 1)) for line in _lines(working_dir, REPEATABLE_FILE)}
    return sorted(serial for serial, count in Counter(one[0] for one in pairs).items() if count > 1)


@cmdc.tool(effects="read")
async def look_up(key: str) -> str:
    """Look a word up."""
    return f"{key} means something"


@cmdc.tool(effects="read")
def reckon(number: int) -> str:
    """Add numbers up in a process."""
    return str(sum(range(number)))


@cmdc.tool(effects="idempotent")
async def put(serial: str, context: cmdc.Context) -> str:
    """Have an effect that may happen again, under the same key."""
    _note(context, REPEATABLE_FILE, f"{serial} {context.idempotency_key}")
    await asyncio.sleep(AFTERWARDS_S)
    return f"put {serial}"


@cmdc.tool(effects="write")
def note_down(serial: str, context: cmdc.Context) -> str:
    """Have an effect, in a process."""
    _note(context, EFFECTS_FILE, serial)
    threading.Event().wait(AFTERWARDS_S)
    return f"noted {serial}"


@cmdc.tool(effects="write")
async def file_away(serial: str, context: cmdc.Context) -> str:
    """Have an effect, in the agent's loop."""
    _note(context, EFFECTS_FILE, serial)
    await asyncio.sleep(AFTERWARDS_S)
    return f"filed {serial}"


@cmdc.tool(effects="write", needs_approval=True)
async def launch(serial: str, context: cmdc.Context) -> str:
    """Have an effect that a person must allow."""
    _note(context, EFFECTS_FILE, serial)
    await asyncio.sleep(AFTERWARDS_S)
    return f"launched {serial}"


@cmdc.tool(effects="write")
async def pay(serial: str, context: cmdc.Context) -> str:
    """Have an effect; a plugin may hold the call until a person allows it."""
    _note(context, EFFECTS_FILE, serial)
    await asyncio.sleep(AFTERWARDS_S)
    return f"paid for {serial}"


@cmdc.tool(effects="read", name="extra")
async def _extra(key: str) -> str:
    """Do something that was not there at first."""
    return f"{key} of extra"


class Companion(cmdc.Plugin):
    """Does at each prompt whatever of a plugin's doings is written down."""

    class State(msgspec.Struct):
        """How many prompts it has heard."""

        heard: int = 0

    async def before_prompt(self, _event: BeforePrompt, context: PluginContext) -> Actions:
        """Ask a model, remember, order, and say something."""
        if context.session is not None:
            await context.session.complete("What do you make of it?")
        self.state.heard += 1
        order = UpdateSystemContext(key="companion", text=f"{self.state.heard} prompts so far.")
        return [cmdc.Intervene(f"This is prompt {self.state.heard}."), cmdc.Emit(order)]

    async def after_tool(self, event: AfterTool, _context: PluginContext) -> Actions:
        """Say something that waits for the rest of the batch, and publish it to observers."""
        text = f"{event.call_id} is over."
        return [cmdc.Intervene(text), cmdc.Emit(NOTED, text)]


PLUGINS: Final[dict[str, Any]] = {  # Any: whatever ``plugins=`` takes
    "holding": cmdc.plugins.HumanApproval(tools=("pay",), mode="hold"),
    "companion": Companion,
}
"""``holding`` has calls of ``pay`` wait for a person."""
PLUGIN_NAMES: Final = {"holding": "human_approval", "companion": "companion"}
"""What the session calls them."""
EXTRAS: Final[dict[str, Any]] = {"extra": _extra}  # Any: whatever ``tools=`` takes
CHOICES: Final[dict[str, Any]] = {
    "look_up": look_up,
    "reckon": reckon,
    "put": put,
    "note_down": note_down,
    "file_away": file_away,
    "launch": launch,
    "pay": pay,
    "write_todos": cmdc.tools.WriteTodos,
    "ask_user": cmdc.tools.AskUser(timeout=ASK_S),
    "compact_conversation": cmdc.tools.CompactConversation,
    "task": cmdc.tools.Task(timeout=SUBAGENT_S),
    "reason": cmdc.tools.Reason(strategies=[Waves]),
}
"""What the sessions of a soak have, by the names that a plan calls them by (Any: as above)."""
