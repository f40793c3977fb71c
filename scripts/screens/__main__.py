"""``make screens``: pictures of ``chat``, ``ps``, ``tree`` and ``tail``, for the docs.

Each is what the real program writes to a terminal of 80 columns, with a daemon, agents and a model
server that run for it; rich makes an SVG of it. What the model says is written here.
"""

import contextlib
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel, ToolCalls, ToolUse
from scripts.screens.terminal import COLUMNS, ROWS, Terminal

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs/screens"
CMDC: Final = Path(sys.executable).with_name("cmdc")
WAIT_S: Final = 60.0
_WHERE, _HERE = b"\x1b[6n", b"\x1b[23;1R"
SETTLE_S: Final = 20.0
"""For a program that ends by itself; a chat is looked at then as it stands."""
ON_TERMINAL: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
ANSWER: Final = """Three things stand out:

1. **The index** on `orders.created_at` is missing, so each report reads the whole table.
2. `report.py` opens a connection *per row*.
3. Nothing is cached.

Shall I begin with the index?"""


@cmdc.tool(effects="read")
def read_plan(table: str) -> str:
    """Read the plan of the database for the reports of a table."""
    return f"Seq Scan on {table}  (cost=0.00..431872.20 rows=18012345)\n  Filter: created_at > $1"


@cmdc.tool(needs_approval=True)
def deploy(where: str) -> str:
    """Deploy."""
    return f"deployed to {where}"


class Program:
    """A command on a terminal, and the person before it."""

    def __init__(self, *words: str) -> None:
        """Start it."""
        self._fd, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", ON_TERMINAL, str(CMDC), *words],
            env=os.environ | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen = Terminal()
        self._written = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._fd, text.encode())

    def expect(self, text: str) -> None:
        """Return when this was written, behind what was expected before."""
        deadline_s = time.monotonic() + WAIT_S
        while text not in self._written:
            if time.monotonic() > deadline_s or not self._read():
                raise TimeoutError(f"no {text!r} in {self._written!r}")
        self._written = self._written.partition(text)[2]

    def shown(self) -> str:
        """Return what is to be seen when it has ended, or goes on after ``SETTLE_S``."""
        deadline_s = time.monotonic() + SETTLE_S
        while (left_s := deadline_s - time.monotonic()) > 0 and self._read(left_s):
            pass
        return self._screen.text()

    def end(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(WAIT_S)
        os.close(self._fd)

    def _read(self, idle_s: float = WAIT_S) -> bool:
        if not select.select([self._fd], [], [], idle_s)[0]:
            return False
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        if _WHERE in piece:
            os.write(self._fd, _HERE)
        text = piece.decode(errors="replace")
        self._written += text
        self._screen.write(text)
        return bool(piece)


def cmdc_of(*words: str) -> None:
    """Run a command of which nothing is to be seen."""
    subprocess.run([CMDC, *words], check=True, stdout=subprocess.DEVNULL, timeout=WAIT_S)  # noqa: S603 - our own program


@contextlib.contextmanager
def daemon() -> Iterator[None]:
    """Have a daemon of one's own, which all commands find."""
    with tempfile.TemporaryDirectory(prefix="cmdc-") as folder:
        for name in [name for name in os.environ if name.startswith("CMDC_")]:
            del os.environ[name]
        os.environ.update(CMDC_RUNTIME_DIR=f"{folder}/run", CMDC_STATE_DIR=f"{folder}/state")
        cmdc_of("serve", "--detach")
        try:
            yield
        finally:
            cmdc_of("shutdown")


def draw(name: str, command: str, text: str) -> None:
    """Write the picture of what a command has shown."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(f"\x1b[32m$\x1b[0m {command}\n{text}"))
    FOLDER.mkdir(exist_ok=True)
    svg = console.export_svg(title="cmdc", unique_id=f"cmdc-{name}")
    (FOLDER / f"{name}.svg").write_text(
        re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8"
    )
    sys.stdout.write(f"docs/screens/{name}.svg\n")


def listing(*words: str) -> str:
    """Return what a command shows that ends by itself."""
    program = Program(*words)
    try:
        return program.shown()
    finally:
        program.end()


def chat() -> str:
    """Return a chat in which a tool is called."""
    call = ToolCalls(ToolUse("read_plan", {"table": "orders"}), text="Let me look at the plan.")
    with (
        ScriptedModel([call, ANSWER]) as model,
        cmdc.create_agent(model=model, tools=[read_plan], session_id="reports"),
    ):
        program = Program("attach", "reports")
        try:
            program.expect("tokens")
            program.type("Why are the reports slow?\r")
            program.expect("begin with the index?")
            program.type("Yes, and show me th")
            return program.shown()
        finally:
            program.end()


def listings() -> None:
    """Draw what lists sessions, with one that works, one that waits and one that has ended."""
    busy = ScriptedModel([("Reading the ", "first of the ", "invoices …", Hold())])
    careful = ScriptedModel(
        [ToolCalls(ToolUse("deploy", {"where": "production"}))], default="Waiting."
    )
    done = ScriptedModel(["The report is in report.md."])
    with busy, careful, done, contextlib.ExitStack() as stack:
        one = stack.enter_context(cmdc.create_agent(model=busy, session_id="invoices"))
        two = stack.enter_context(
            cmdc.create_agent(model=careful, tools=[deploy], session_id="release", group_id="ops")
        )
        three = cmdc.create_agent(model=done, session_id="report")
        one.prompt("Check the invoices of November.")
        busy.wait_held()
        two.run("Deploy it.")
        three.run("Write the report.")
        three.stop()
        draw("ps", "cmdc ps --all", listing("ps", "--all"))
        draw("tree", "cmdc tree", listing("tree"))
        draw("tail", "cmdc tail report --since 0", listing("tail", "report", "--since", "0"))
        one.abort()


def main() -> None:
    """Draw all."""
    with daemon():
        draw("chat", "cmdc attach reports", chat())
        listings()


if __name__ == "__main__":
    main()
