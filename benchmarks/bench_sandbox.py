"""What does each layer of a sandbox cost a call?

Expected: for a file nothing, as each layer opens it in the agent's process in the same way; for a
tool in a process of its own some milliseconds, as the layer is put on in its fork; for a command
those, and with Bubblewrap the start of its program and of its namespaces on top. A call comes right
behind another one, so no process is ready that was confined ahead of it.
"""  # noqa: D400 - a question

import asyncio
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_tool_call import Stage, idle_tool
from benchmarks.metrics import Metric, measured
from benchmarks.settings import Settings
from cmdc_runtime import sandbox, tools
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.packing import BuiltInSandbox, pack

LAYERS: Final[Mapping[str, BuiltInSandbox]] = {
    "local": sandbox.Local(),
    "landlock": sandbox.Landlock(),
    "landlock_proxy": sandbox.Landlock(network="proxy", allow_hosts=["example.org"]),
    "bubblewrap": sandbox.Bubblewrap(),
    "bubblewrap_proxy": sandbox.Bubblewrap(network="proxy", allow_hosts=["example.org"]),
}
"""The first is what every session has."""
FILE: Final = "notes.txt"
CALLS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "file": ("read_file", {"path": FILE}),
    "process": ("nothing", {"number": 1}),
    "command": ("shell", {"command": "true"}),
}
"""What is called, and with what, by the word that it has in the metric's name; Any: arguments."""
WARM_UP: Final = 3


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject; of a layer that can't be had here, say so."""
    with ExitStack() as stack:
        loop = stack.enter_context(asyncio.Runner())
        stages = dict(_stages(stack, loop))
        for call, (name, arguments) in CALLS.items():
            found = _timed(settings, loop, stages, partial(Stage.call, name=name, **arguments))
            [plain, *_] = found.values()
            for layer, samples in found.items():
                yield measured(f"sandbox.{layer}_{call}", "ms", samples, baseline=plain)


def _timed(
    settings: Settings,
    loop: asyncio.Runner,
    stages: Mapping[str, Stage],
    call: Callable[[Stage], Coroutine[Any, Any, float]],  # Any: of no coroutine of ours
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {layer: [] for layer in stages}
    for number in range(-WARM_UP, settings.repeats):
        for layer, stage in stages.items():
            loop.run(call(stage))
            took_ms = loop.run(call(stage))
            if number >= 0:
                found[layer].append(took_ms)
    return found


def _stages(stack: ExitStack, loop: asyncio.Runner) -> Iterator[tuple[str, Stage]]:
    parcels = [
        idle_tool("process"),
        pack(tools.ReadFile(), "read_file"),
        pack(tools.Shell(), "shell"),
    ]

    async def staged(folder: Path, layer: BuiltInSandbox) -> Stage:
        return Stage(folder, parcels, pack(layer, "sandbox"))

    for name, layer in LAYERS.items():
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="cmdc-bench-"))
        folder = Path(made).resolve()
        (folder / FILE).write_text("A line.\n", encoding="utf-8")
        try:
            stage = loop.run(staged(folder, layer))
        except SandboxUnavailable as missing:
            sys.stderr.write(f"{name} is left out: {missing}\n")
            continue
        stack.callback(_close, loop, stage)
        yield name, stage


def _close(loop: asyncio.Runner, stage: Stage) -> None:
    loop.run(stage.close())
