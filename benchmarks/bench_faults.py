"""How many page faults does an agent take until it is ready, until its status, until its answer?

Expected: 1,500 until it is ready, 2,300 until its first status, 3,500 until its first answer; a raw
fork of a process with litellm 300 until it has answered a ping. Counts do not know the load.
"""  # noqa: D400 - a question

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chunk_format import HOST, KEY, MODEL
from benchmarks.daemon import Daemon
from benchmarks.metrics import Metric, measured, no_more_than
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.commands import AwaitCycle, Prompt, Status
from cmdc_runtime.requests import StopSession

READY: Final = no_more_than(700)
STATUS: Final = no_more_than(1_000)
CHUNKS: Final = 20
"""Of the answer: a sentence."""
MINOR: Final = 7
"""The place of the minor faults in a stat file, behind the name of the program; see proc(5)."""


@dataclass(slots=True)
class Counts:
    """Minor faults since the fork, of one agent after the other."""

    raw: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    status: list[float] = field(default_factory=list)
    answer: list[float] = field(default_factory=list)


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    counts = Counts()
    with ExitStack() as stack:
        port = stack.enter_context(Peer("benchmarks.stream_server")).ask("port")
        base = f"http://{HOST}:{port}/{CHUNKS}"
        raw = stack.enter_context(Peer("benchmarks.frozen", "litellm"))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        wire = stack.enter_context(Wire(daemon.runtime_dir))
        for _ in range(settings.repeats):
            counts.raw += [minor_faults(pid) for pid in raw.ask("hold", count=1)]
            raw.ask("release")
            _count(daemon, wire, base, counts)
    name, unit = "faults", "faults"
    yield measured(f"{name}.ready", unit, counts.ready, baseline=counts.raw, bar=READY)
    yield measured(f"{name}.first_status", unit, counts.status, baseline=counts.raw, bar=STATUS)
    yield measured(f"{name}.first_answer", unit, counts.answer, baseline=counts.raw)


def _count(daemon: Daemon, wire: Wire, base: str, counts: Counts) -> None:
    """Let a spare become a session that is asked for its status and for an answer."""
    daemon.await_spares(wire)
    before = {process.pid: minor_faults(process.pid) for process in daemon.family()}
    session_id = wire.start(
        model=MODEL, provider_opts={"api_base": base, "api_key": KEY}
    ).session_id
    status: Status = wire.status(session_id)
    assert status.pid is not None
    counts.ready.append(before[status.pid])
    counts.status.append(minor_faults(status.pid))
    receipt = wire.send(session_id, Prompt(text="say something"))
    wire.send(session_id, AwaitCycle(prompt_id=receipt.command_id))
    counts.answer.append(minor_faults(status.pid))
    wire.ask(StopSession(session_id=session_id))


def minor_faults(pid: int) -> int:
    """Return how many pages a process has touched so far that took no reading from a disk."""
    return faults_in(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))


def faults_in(stat: str) -> int:
    """Return the minor faults in the text of a stat file.

    The program's name stands in brackets, and may itself have blanks and brackets.
    """
    return int(stat.rpartition(")")[2].split()[MINOR])
