"""What the sessions of a soak can do: one tool for each way in which a call runs and goes wrong.

``CHOICES`` are what a session may start with, ``EXTRAS`` what is attached and detached on the way.
Whatever has effects writes its ``serial`` into a file, where ``twice_done`` finds what happened
twice. To add a tool: its function, its place in ``CHOICES``, and its arguments in ``model.py``.
"""

import asyncio
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

import cmdc_runtime as cmdc

EFFECTS_FILE: Final = "effects"
IMMUNE: Final = "file_away"
"""A tool of ours that neither an abort nor a steering ends."""
ASK_S: Final = 1.5
SHELL_S: Final = 5.0
OVERRUN_S: Final = 0.2
SUBAGENT_S: Final = 20.0
PAY_FREELY_MAX: Final = 50
EXTRAS_COUNT: Final = 4
AFTERWARDS_S: Final = 0.1
"""From an effect to the return of its call: here a crash must not make it happen again."""


def _note(context: cmdc.Context, serial: str) -> None:
    line = f"{serial}\n".encode()
    place = Path(context.working_dir, EFFECTS_FILE)
    file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, line)  # one call of the system: lines of two processes never mix
    finally:
        os.close(file)


def twice_done(working_dir: Path) -> list[str]:
    """Return the serials of effects that happened more than once in a session."""
    file = working_dir / EFFECTS_FILE
    done = Counter(file.read_text().splitlines()) if file.exists() else Counter[str]()
    return sorted(serial for serial, count in done.items() if count > 1)


@cmdc.tool(effects="read")
async def look_up(key: str) -> str:
    """Look a word up."""
    return f"{key} means something"


@cmdc.tool(effects="read")
async def linger(seconds: float) -> str:
    """Wait in the agent's loop."""
    await asyncio.sleep(seconds)
    return "waited"


@cmdc.tool(effects="read", timeout=OVERRUN_S)
async def overrun(seconds: float) -> str:
    """Wait for longer than a call may take."""
    await asyncio.sleep(seconds)
    return "never"


@cmdc.tool(effects="read")
def reckon(number: int) -> str:
    """Add numbers up in a process."""
    return str(sum(range(number)))


@cmdc.tool(effects="read")
def dawdle(seconds: float) -> str:
    """Wait in a process."""
    threading.Event().wait(seconds)
    return "waited"


@cmdc.tool(effects="read", isolation="thread")
def doze(seconds: float) -> str:
    """Wait in a thread of the agent."""
    threading.Event().wait(seconds)
    return "waited"


@cmdc.tool(effects="read", max_retries=1)
def perish() -> str:
    """Die with the process of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@cmdc.tool(effects="read", max_retries=1)
async def stumble(how: str) -> str:
    """Fail as expected, or as a bug does."""
    if how == "told":
        raise cmdc.ToolError("it did not work, as was to be expected")
    raise RuntimeError(how)


@cmdc.tool
def note_down(serial: str, context: cmdc.Context) -> str:
    """Have an effect, in a process."""
    _note(context, serial)
    threading.Event().wait(AFTERWARDS_S)
    return f"noted {serial}"


@cmdc.tool
async def file_away(serial: str, seconds: float, context: cmdc.Context) -> str:
    """Have an effect, in the agent's loop, and take some time over it."""
    _note(context, serial)
    await asyncio.sleep(seconds)
    return f"filed {serial}"


@cmdc.tool(needs_approval=True)
async def launch(serial: str, context: cmdc.Context) -> str:
    """Have an effect that a person must always allow."""
    _note(context, serial)
    await asyncio.sleep(AFTERWARDS_S)
    return f"launched {serial}"


@cmdc.tool(needs_approval=lambda args: args["amount"] > PAY_FREELY_MAX)
def pay(serial: str, amount: int, context: cmdc.Context) -> str:
    """Have an effect that a person must allow if it is large."""
    _note(context, serial)
    threading.Event().wait(AFTERWARDS_S)
    return f"paid {amount} for {serial}"


@cmdc.tool(effects="read")
async def tell(word: str, context: cmdc.Context) -> str:
    """Tell observers."""
    if context.session is not None:
        context.session.emit("told", {"word": word})
    return "told"


def _extra(number: int) -> object:
    @cmdc.tool(effects="read", name=f"extra_{number}")
    async def extra(key: str) -> str:
        """Do something that was not there at first."""
        return f"{key} of extra {number}"

    return extra


EXTRAS: Final = {f"extra_{number}": _extra(number) for number in range(1, EXTRAS_COUNT + 1)}
CHOICES: Final[dict[str, Any]] = {  # Any: whatever ``tools=`` takes
    "look_up": look_up,
    "linger": linger,
    "overrun": overrun,
    "reckon": reckon,
    "dawdle": dawdle,
    "doze": doze,
    "perish": perish,
    "stumble": stumble,
    "note_down": note_down,
    "file_away": file_away,
    "launch": launch,
    "pay": pay,
    "tell": tell,
    "write_todos": cmdc.tools.WriteTodos,
    "write_file": cmdc.tools.WriteFile,
    "read_file": cmdc.tools.ReadFile,
    "ask_user": cmdc.tools.AskUser(timeout=ASK_S),
    "shell": cmdc.tools.Shell(timeout=SHELL_S),
    "compact_conversation": cmdc.tools.CompactConversation,
    "task": cmdc.tools.Task(timeout=SUBAGENT_S),
}
