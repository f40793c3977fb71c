"""What does a cold start cost: a script's until its first token, a daemon's until a session is up?

Expected: a script that imports the openai SDK and asks by it has its first token after 1 to 1.5 s,
most of it the import; one that starts a private daemon first after about as long, and a session of
a daemon that has just been started is up earlier than ``import openai`` is done.
"""  # noqa: D400 - a question

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.chunk_format import HOST, KEY, MODEL
from benchmarks.daemon import Daemon
from benchmarks.metrics import Metric, at_most, measured
from benchmarks.processes import ROOT, Peer, end, environment
from benchmarks.settings import Settings
from benchmarks.wire import Wire
from cmdc_runtime.runtime_dir import find_daemon

COLD: Final = at_most(1.0)
CHUNKS: Final = 3
"""Of the answer: a script ends when it has all."""
END_S: Final = 30.0
SERVE: Final = (str(Path(sys.executable).with_name("cmdc")), "serve")
IMPORT: Final = "import openai"

OURS: Final = """
import sys
import cmdc_runtime as cmdc
opts = {{"api_base": "{base}", "api_key": "{key}"}}
with cmdc.create_agent(model="{model}", provider_opts=opts) as session:
    for text in session.stream("say something"):
        print(text, end="", flush=True)
"""
THEIRS: Final = """
import openai
client = openai.OpenAI(base_url="{base}", api_key="{key}")
asked = [{{"role": "user", "content": "say something"}}]
model = "{model}".partition(":")[2]
for chunk in client.chat.completions.create(model=model, messages=asked, stream=True):
    print(chunk.choices[0].delta.content, end="", flush=True)
"""


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    _refuse_a_daemon()
    with ExitStack() as stack:
        port = stack.enter_context(Peer("benchmarks.stream_server")).ask("port")
        given = {"base": f"http://{HOST}:{port}/{CHUNKS}", "key": KEY, "model": MODEL}
        ours, theirs = (_python(script.format(**given)) for script in (OURS, THEIRS))
        yield from _compared(settings, ours, theirs)


def _compared(settings: Settings, ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Metric]:
    scripts: list[float] = []
    by_sdk: list[float] = []
    served: list[float] = []
    imports: list[float] = []
    for turn in range(settings.fewer + 1):
        found = (_first_token(ours), _first_token(theirs), _session_up(), _imported())
        if turn:  # the first one writes byte code and warms the page cache up
            for samples, took_s in zip((scripts, by_sdk, served, imports), found, strict=True):
                samples.append(took_s)
    yield measured("cold.first_token", "s", scripts, baseline=by_sdk, bar=COLD)
    yield measured("cold.session_up", "s", served, baseline=imports, bar=COLD)


def _python(script: str) -> Sequence[str]:
    return [sys.executable, "-c", script]


def _first_token(command: Sequence[str]) -> float:
    """Return the seconds from the start of a script to the first byte that it prints.

    Raises:
        RuntimeError: it failed; its stderr says more.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)
    stdout = process.stdout
    assert stdout is not None
    try:
        first = os.read(stdout.fileno(), 1)
        took_s = time.perf_counter() - start
        stdout.read()
    except BaseException:
        process.terminate()
        raise
    finally:
        end(process, END_S)
        stdout.close()
    if not first or process.returncode:
        raise RuntimeError(f"a script ended with status {process.returncode}")
    return took_s


def _session_up() -> float:
    """Return the seconds from the start of ``cmdc serve`` to the first status of a session."""
    start = time.perf_counter()
    with Daemon(program=SERVE) as daemon:
        daemon.await_ready()
        with Wire(daemon.runtime_dir) as wire:
            wire.status(wire.start(model=MODEL).session_id)
            return time.perf_counter() - start


def _imported() -> float:
    start = time.perf_counter()
    subprocess.run(_python(IMPORT), cwd=ROOT, env=environment(), check=True)
    return time.perf_counter() - start


def _refuse_a_daemon() -> None:
    """Raise where a script would find a daemon, and start none."""
    found = find_daemon(environment(), uid=os.getuid(), home=Path.home())
    if found is not None:
        raise RuntimeError(f"a daemon runs in {found.directory}: no script is without one")
