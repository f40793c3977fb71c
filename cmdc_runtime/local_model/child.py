"""``LocalModel``: the local model as a child process of whoever needs it."""

import contextlib
import importlib.util
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Final, Self

from cmdc_runtime.closing import Closing
from cmdc_runtime.errors import TransientError, UsageError
from cmdc_runtime.local_model.weights import ENGINE, INSTALL, Unavailable, weights

READY_S_MAX: Final = 60.0
"""From the start of the process to its answer; the weights are read from disk in this time."""
STOP_S_MAX: Final = 5.0
COMPLAINT_BYTES_MAX: Final = 4096
OUTPUT_BYTES_MAX: Final = 4096
"""Of what the process prints before it is ready, the newest bytes that are searched."""
_READY: Final = re.compile(rb"^ready (\S+)\n", re.MULTILINE)


class LocalModel(Closing):
    """A small real model in a process of its own; usable as ``model=`` and as a context manager.

    The process starts when it is first needed and ends with ``close``, or with this process.
    """

    def __init__(self, *, gguf: Path | None = None, threads: int = 1) -> None:
        """Start nothing yet; ``gguf`` None: the small model, fetched once by the first start."""
        self._gguf = gguf
        self._threads = threads
        self._process: subprocess.Popen[bytes] | None = None
        self._url: str | None = None

    def __enter__(self) -> Self:
        """Start; see ``start``."""
        self.start()
        return self

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return None if self._process is None else self._process.pid

    def model_source(self) -> tuple[str, dict[str, str]]:
        """Return the model's name and the provider options that lead to it; starts it."""
        return "openai/local", {"api_base": self.start(), "api_key": "local"}

    def start(self) -> str:
        """Return the base URL of the model's API once it answers; starts the process if needed.

        The first start of all fetches the weights, a hundred megabytes, and blocks meanwhile.

        Raises:
            UsageError: the library or the weights are missing; says how to get them.
            TransientError: it was not ready within ``READY_S_MAX`` seconds.
        """
        if self._url is None:
            gguf = self._weights()
            with tempfile.TemporaryFile() as complaints:
                self._process = self._started(gguf, complaints)
                try:
                    self._url = _ready_url(self._process, complaints)
                except BaseException:
                    self.close()
                    raise
        return self._url

    def close(self) -> None:
        """End the process and wait for its end; does nothing if there is none."""
        process, self._process, self._url = self._process, None, None
        if process is None:
            return
        with process:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S_MAX)
            process.kill()

    def _weights(self) -> Path:
        if self._gguf is None and importlib.util.find_spec(ENGINE) is None:
            raise UsageError(f"the local model needs {ENGINE}; {INSTALL}")
        try:
            return weights(self._gguf)
        except Unavailable as error:
            raise UsageError(str(error)) from error

    def _started(self, gguf: Path, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cmdc_runtime.local_model"]
        command += [f"--threads={self._threads}", f"--owner-pid={os.getpid()}", f"--gguf={gguf}"]
        return subprocess.Popen(  # noqa: S603 - our own module, with options of ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for the owner, who then closes this
        )


def _ready_url(process: subprocess.Popen[bytes], complaints: IO[bytes]) -> str:
    assert process.stdout is not None, "started with a pipe"  # noqa: S101 - holds by construction
    output = process.stdout.fileno()
    readable = select.poll()
    readable.register(output, select.POLLIN)
    deadline_s = time.monotonic() + READY_S_MAX
    said = b""
    while not (ready := _READY.search(said)):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not readable.poll(left_s * 1000):
            raise TransientError(f"the local model was not ready within {READY_S_MAX} s")
        part = os.read(output, select.PIPE_BUF)
        if not part:
            process.wait(STOP_S_MAX)
            raise UsageError(_complaint(complaints) or f"it ended with {process.returncode}")
        said = (said + part)[-OUTPUT_BYTES_MAX:]
    return ready[1].decode()


def _complaint(complaints: IO[bytes]) -> str:
    size = complaints.seek(0, os.SEEK_END)
    complaints.seek(max(0, size - COMPLAINT_BYTES_MAX))
    return complaints.read().decode(errors="replace").strip()
