"""What the zygote imports and warms before it forks: everything that an agent needs.

Rules: whatever fails lands in the report's ``problems`` and never raises; when ``preload`` is done
there is one thread, no ZeroMQ context, no event loop, and nothing for the garbage
collector to touch. To preload one more module, add its name to ``_MODULES``.
"""

import gc
import importlib
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cmdc_runtime.prctl import collapse, set_dumpable
from cmdc_runtime.wire.forks import PreloadReport
from workers.limits import step_forward

# Before the first import of litellm: no download at import (its thread would live on in the
# zygote), no reading of a .env file that happens to lie around, no chatter on stderr.
_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "CRITICAL",  # as errors it writes what servers and models have said
}

_MODULES: Final = (
    "cmdc_runtime.structlog_alone",
    "asyncio",
    "cloudpickle",
    "jsonschema",
    "zmq",
    "cmdc_runtime.process",
    "cmdc_runtime.guarded_task",
    "workers.builtin.providers.default",
    "workers.worker",
    "workers.toolhost.start",
)
_FOLDERS: Final = tuple(f"workers.builtin.{kind}" for kind in ("plugins", "sandboxes", "tools"))
"""Packages of which every module is preloaded: a new built-in needs no line here."""
_BESIDE: Final = {
    # What litellm loads at the first call, late in a stream, or for another wire than OpenAI's.
    "mcp": ("workers.mcp.connection",),
    "litellm": (
        "workers.builtin.providers.litellm",
        "anyio._backends._asyncio",
        "openai.resources",
        "openai.resources.chat",
        "litellm.litellm_core_utils.default_encoding",
        "litellm.litellm_core_utils.streaming_chunk_builder_utils",
    ),
}
"""What belongs to a module that only some zygotes need."""

THREADS_WAIT_S: Final = 2.0
"""How long threads of the warm-up may take to end; anyio's is asked to and not joined."""


def preload(needs: Iterable[str]) -> PreloadReport:
    """Import and warm everything, and let the garbage collector never look at it again.

    ``needs`` are modules that not every zygote has.
    """
    _close_to_others()
    os.environ.update(_ENVIRONMENT)
    problems: list[str] = []
    with _kept_for_good(problems):
        import_ms = sum(_timed(name, _import, name, problems) for name in _MODULES)
        import_ms += sum(_import_needed(name, problems) for name in needs)
        import_ms += sum(_timed(name, _import_all, name, problems) for name in _FOLDERS)
        warm_ms = _timed("rehearsal", _rehearse, "", problems)
        warm_ms += _timed("warm-up", _warm, "", problems)
    huge_bytes, _ = collapse()
    return PreloadReport(
        origin=str(Path(__file__).parent),
        modules=len(sys.modules),
        import_ms=import_ms,
        warm_ms=warm_ms,
        huge_bytes=huge_bytes,
        problems=tuple(problems),
    )


def learn(name: str) -> list[str]:
    """Import one more module, as if it were one of the ``needs``; return the problems of that."""
    problems: list[str] = []
    with _kept_for_good(problems):
        _import_needed(name, problems)
    collapse()
    return problems


@contextmanager
def _kept_for_good(problems: list[str]) -> Iterator[None]:
    """Keep what is made within from the collector, and look for what a fork must not copy."""
    gc.disable()  # 300,000 objects are made to stay: collecting between is 15-30 % of the time
    before_fds = _open_fds()
    yield
    problems += _left_over(before_fds)
    gc.collect()
    gc.freeze()
    gc.enable()


def _import_needed(name: str, problems: list[str]) -> float:
    """Import one of the ``needs`` and what belongs to it; return how long it took in ms."""
    parts = (name, *_BESIDE.get(name, ()))
    return sum(_timed(part, _import, part, problems) for part in parts)


def _close_to_others() -> None:
    """Let no other process of this user look into this one, or into what is forked from it.

    They have the keys in their environment. Before that it takes the score that its children have:
    a process that nobody may look into can't set its own unless it is root's.
    """
    step_forward()
    with suppress(OSError):  # a seccomp filter; the doctor says what a tool can read
        set_dumpable(is_dumpable=False)


def _timed(what: str, do: Callable[[str], None], name: str, problems: list[str]) -> float:
    """Return how long ``do(name)`` took in ms, or 0 and one more problem."""
    start = time.perf_counter()
    try:
        do(name)
    except Exception as problem:  # noqa: BLE001 - foreign code at import: reported, not hidden
        problems.append(f"{what}: {type(problem).__name__}: {problem}")
        return 0.0
    return (time.perf_counter() - start) * 1e3


def _import(name: str) -> None:
    importlib.import_module(name)


def _import_all(package: str) -> None:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def _rehearse(_name: str) -> None:
    from workers.rehearsal import rehearse  # noqa: PLC0415 - it imports all that an agent is

    rehearse()


def _warm(_name: str) -> None:
    from workers.warmup import warm  # noqa: PLC0415 - after the environment is set

    warm()


def _open_fds() -> dict[str, str]:
    fds = {}
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that iterdir itself had open
            fds[fd.name] = str(fd.readlink())
    return fds


def _left_over(before_fds: dict[str, str]) -> list[str]:
    """Name what a fork would copy and must not: threads, sockets, pipes, event polls."""
    threads = _threads_after_wait()
    problems = [f"{threads} threads are running"] if threads != 1 else []
    new = _open_fds().items() - before_fds.items()
    problems += [
        f"left open: {target}"
        for _fd, target in sorted(new)
        if target.startswith(("socket:", "pipe:", "anon_inode:"))
    ]
    return problems


def _threads_after_wait() -> int:
    """Count the threads; one that was asked to end may need a moment to be gone."""
    deadline = time.monotonic() + THREADS_WAIT_S
    while (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.001)
    return threads
