"""The benchmark's own processes: each one module, asked by JSON lines on stdin and stdout.

Whoever starts one owns it as a context manager. A peer ends when its stdin ends, so it also ends
with a benchmark that was killed. A module that is a peer calls ``serve`` with its orders.
"""

import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parent.parent
ANSWER_S: Final = 300.0
"""Beyond it a peer hangs: the slowest order takes some 20 s on a busy machine."""
END_S: Final = 5.0
"""For a peer to end by itself before it is killed."""

LITELLM_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}
"""No download and no .env at import: the same terms as in the zygote."""

Order = Callable[..., Any]  # Any: whatever goes through JSON


def environment() -> dict[str, str]:
    """Return the variables for a process of a benchmark.

    Byte code is written, and what somebody has set for a daemon of his own is left out.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CMDC_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return kept | LITELLM_ENVIRONMENT


class Peer:
    """One process of the benchmark."""

    def __init__(self, module: str, *arguments: str) -> None:
        """Start ``python -m module``; what it prepares is done when its first answer comes."""
        self._name = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
            start_new_session=True,  # a Ctrl-C is for the benchmark, which ends its peers
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        """Return the peer."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()

    def ask(self, order: str, **arguments: object) -> Any:  # Any: what the order answers
        """Return the answer to one order."""
        self.post(order, **arguments)
        return self.answer()

    def post(self, order: str, **arguments: object) -> None:
        """Give an order and do not wait; its ``answer`` comes later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def has_answer(self) -> bool:
        """Whether ``answer`` would not have to wait."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def answer(self) -> Any:  # Any: what the order answers
        """Return the answer to the oldest order.

        Raises:
            RuntimeError: the process ended or hangs; its stderr says more.
        """
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], ANSWER_S)[0]:
            raise RuntimeError(f"{self._name} gave no answer within {ANSWER_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with status {self._process.poll()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        end(self._process, END_S)


def end(process: "subprocess.Popen[bytes]", patience_s: float) -> None:
    """Wait for a process that was asked to end, and kill it if that takes too long."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def serve(orders: Mapping[str, Order]) -> None:
    """Carry out orders from stdin until it ends."""
    for line in sys.stdin.buffer:
        order, arguments = json.loads(line)
        answer = json.dumps(orders[order](**arguments))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


async def serve_in_loop(orders: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
    """Carry out orders from stdin until it ends, in a loop that runs on in between."""
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        order, arguments = json.loads(line)
        answer = json.dumps(await orders[order](**arguments))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
