"""``python -m benchmarks.peers``: the same work by this project and its peers, in turns.

The peers live in an environment of their own, which ``make bench-peers`` makes; who can't be
started there is left out and named. However a run ends, what it started is gone.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from benchmarks.peers.catalogue import CANDIDATES, Candidate
from benchmarks.peers.figures import Findings, Kill, text_table
from benchmarks.peers.play import PYTHON, Place, Play, cold_s, pss_mib
from benchmarks.peers.prompts import TURNS
from benchmarks.processes import Peer
from benchmarks.report import append

CROWD: Final = 50
ROUNDS: Final = 3
FIRSTS: Final = 4
"""Agents that are created one after another in a turn."""
SETTLE_S: Final = 0.3
"""Before each of them, so that whoever keeps something ready has it ready."""
PAGES: Final = 2
"""Long answers, and kills, of a turn."""
HISTORY: Final = 2 * TURNS
INTERRUPTED: Final = 130
_ASK_VERSIONS: Final = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a run measures."""

    rounds: int = ROUNDS
    crowd: int = CROWD
    firsts: int = FIRSTS
    pages: int = PAGES


class Tournament:
    """All turns of all peers."""

    def __init__(self, place: Place, server: Peer, size: Size) -> None:
        """Measure nothing yet."""
        self._place = place
        self._server = server
        self._size = size
        self.findings = Findings()

    def play(self, candidates: Sequence[Candidate]) -> None:
        """Play all rounds; in each of them another one begins."""
        for turn in range(self._size.rounds):
            at = turn % len(candidates)
            for candidate in (*candidates[at:], *candidates[:at]):
                start = time.monotonic()
                self._turn(candidate, is_first=turn == 0)
                took_s = time.monotonic() - start
                sys.stderr.write(f"round {turn + 1}: {candidate.name} in {took_s:.0f} s\n")

    def _turn(self, candidate: Candidate, *, is_first: bool) -> None:
        name, findings, size = candidate.name, self.findings, self._size
        findings.add("cold", name, cold_s(self._place, candidate))
        with Play(self._place, candidate) as play:
            play.ask("first")
            for _ in range(size.firsts):
                time.sleep(SETTLE_S)
                findings.add("warm", name, play.ask("first"))
            for _ in range(size.pages):
                own_us, all_us = play.cpu_us()
                findings.add("chunk", name, own_us)
                findings.add("chunk_all", name, all_us)
            if is_first:
                self._crowd(name, play)
            if is_first or findings.kills[name].goes_on:
                self._crash(name, play)

    def _crowd(self, name: str, play: Play) -> None:
        """Measure a crowd and its memory, once: it takes some peers most of a minute."""
        count = self._size.crowd
        before = pss_mib(play.family())
        self.findings.add("crowd", name, play.ask("crowd", count=count) / 1e3)
        total = pss_mib(play.family())
        self.findings.add("pss", name, total / count)
        self.findings.add("pss_added", name, (total - before) / count)
        play.ask("release")

    def _crash(self, name: str, play: Play) -> None:
        for _ in range(self._size.pages):
            took_ms, lives = play.crash()
            goes_on = took_ms is not None
            kept = self._server.ask("history") if goes_on else 0
            self.findings.kills[name] = Kill(name, goes_on, lives, HISTORY, kept)
            if took_ms is None:
                return
            self.findings.add("goes_on", name, took_ms)


def run(candidates: Sequence[Candidate], size: Size, python: str) -> Findings:
    """Measure who can be started; ``python`` is the interpreter of the peers' environment."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        server = stack.enter_context(Peer("benchmarks.peers.model_server"))
        tournament = Tournament(Place(python, folder, server.ask("url")), server, size)
        tournament.play(candidates)
        return tournament.findings


def main() -> int:
    """Run what the arguments say; return the exit status."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _interrupt)
    load = os.getloadavg()[0]
    versions = installed(arguments.python)
    candidates = [one for one in CANDIDATES if versions.keys() >= set(one.needs)]
    left_out = [one.name for one in CANDIDATES if one not in candidates]
    if left_out:
        sys.stderr.write(f"left out, since not installed: {', '.join(left_out)}\n")
    size = Size(rounds=arguments.rounds, crowd=arguments.crowd)
    try:
        findings = run(candidates, size, arguments.python)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    found = msgspec.to_builtins(
        {
            **asdict(size),
            "peers": versions,
            "left_out": left_out,
            "nice": os.nice(0),
            "kills": [asdict(kill) for kill in findings.kills.values()],
            "metrics": findings.metrics(),
        }
    )
    print(text_table(found))
    if not arguments.no_save:
        append("peers", found, load)
    return 0


def installed(python: str) -> Mapping[str, str]:
    """Return which of the peers' distributions an environment has, with their versions."""
    names = sorted({need for one in CANDIDATES for need in one.needs})
    if not Path(python).exists():
        return {}
    done = subprocess.run(
        [python, "-c", _ASK_VERSIONS, *names], capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--python", default=str(PYTHON), help="of the peers' environment")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--crowd", type=int, default=CROWD)
    parser.add_argument("--no-save", action="store_true", help="leave no record")
    return parser.parse_args()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
