"""What does it cost to start: the import of the package, the daemon's own, and until READY?

Expected: ``import zmq, msgspec`` about 60 ms and ours no more than twice that; the daemon's sockets
are there after 0.3 s; its zygote is warm after what ``import litellm`` takes and half a second.
"""  # noqa: D400 - a question

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.daemon import WARM_S, Daemon
from benchmarks.metrics import Metric, at_most, measured
from benchmarks.processes import ROOT, environment
from benchmarks.settings import Settings

IMPORT: Final = at_most(2.0)
READY: Final = at_most(1.3)
NOTICE_BYTES: Final = 4096

_TIMED: Final = """
import json, sys, time
start = time.perf_counter()
{statement}
took_ms = (time.perf_counter() - start) * 1e3
with open("/proc/self/status") as status:
    rss_kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
print(json.dumps([took_ms, len(sys.modules), rss_kib / 1024]))
"""
BASE: Final = "import zmq, msgspec"
PACKAGE: Final = "import cmdc_runtime"
CLIENT: Final = "import cmdc_runtime; cmdc_runtime.Client, cmdc_runtime.Options"
DAEMON: Final = "import supervisor.entry"


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    statements = (BASE, PACKAGE, CLIENT, DAEMON)
    for statement in statements:  # byte code and page cache
        _imported(statement)
    found: dict[str, list[list[float]]] = {statement: [] for statement in statements}
    for _ in range(settings.repeats):
        for statement in statements:
            found[statement].append(_imported(statement))
    times = {statement: [sample[0] for sample in found[statement]] for statement in statements}
    yield measured("import.package", "ms", times[PACKAGE], baseline=times[BASE], bar=IMPORT)
    yield measured("import.client", "ms", times[CLIENT], baseline=times[BASE], bar=IMPORT)
    yield measured("import.daemon", "ms", times[DAEMON], baseline=times[BASE])
    modules, rss = ([sample[at] for sample in found[DAEMON]] for at in (1, 2))
    yield measured("import.daemon_modules", "modules", modules)
    yield measured("import.daemon_rss", "MiB", rss)
    yield from _started(settings)


def _started(settings: Settings) -> Iterator[Metric]:
    litellm: list[float] = []
    bound: list[float] = []
    warm: list[float] = []
    for turn in range(settings.rounds + 1):
        litellm_s = _litellm()
        bound_s, warm_s = _served()
        if turn:  # the first one warms the page cache up
            litellm.append(litellm_s)
            bound.append(bound_s)
            warm.append(warm_s)
    yield measured("import.serve_ready", "s", warm, baseline=litellm, bar=READY)
    yield measured("import.serve_sockets", "s", bound, baseline=litellm)


def _imported(statement: str) -> list[float]:
    """Return ms, modules and MiB of one import in a new interpreter."""
    command = [sys.executable, "-c", _TIMED.format(statement=statement)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def _litellm() -> float:
    start = time.perf_counter()
    command = [sys.executable, "-c", "import litellm"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)
    return time.perf_counter() - start


def _served() -> tuple[float, float]:
    """Return the seconds from exec to bound sockets, and to READY=1 as systemd gets it."""
    with tempfile.TemporaryDirectory(prefix="cmdc-bench-") as folder:
        address = str(Path(folder, "notify"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(address)
            notices.settimeout(WARM_S)
            start = time.perf_counter()
            with Daemon(notify_socket=address) as daemon:
                daemon.await_ready()
                bound_s = time.perf_counter() - start
                while b"READY=1" not in notices.recv(NOTICE_BYTES):
                    continue
                return bound_s, time.perf_counter() - start
