"""A client's own thread: any thread may call, the work is done in this one.

The thread runs an event loop and nothing of the application's; callbacks have a second thread, so
that they may call the client.
"""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from cmdc_runtime.client.address import Address, checked_address
from cmdc_runtime.client.calls import Calls
from cmdc_runtime.client.engine import Engine
from cmdc_runtime.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class Threaded:
    """What every call of a synchronous client stands on: the connection's life."""

    _renews: ClassVar[bool] = False
    """Whether the end of an embedded daemon is followed by the next one."""

    def __init__(self, address: Address | None = None) -> None:
        """Connect at the first call, to the daemon at ``address``, a runtime directory.

        Without one: ``CMDC_ADDRESS``, a running daemon in a default place, or a private one.
        """
        self._address = checked_address(address)
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        """Connect."""
        try:
            self._run(Calls.connect)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connection with its streams and monitors.

        A private daemon ends with its last client; the sessions of another one go on.
        """
        with self._lock:
            self._is_closed = True
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _run(
        self,
        method: Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        engine = self._started()
        return engine.call(method(engine.calls, *args, **kwargs))

    def _started(self) -> Engine:
        engine = self._engine
        if engine is not None and engine.pid == os.getpid():
            return engine
        with self._lock:
            if self._engine is not None and self._engine.pid != os.getpid():
                self._on_fork(self._engine)
            if self._is_closed:
                raise UsageError("the client is closed")
            if self._engine is None:
                self._engine = Engine(self._address, renews=self._renews)
                weakref.finalize(self, self._engine.close)
            return self._engine

    def _on_fork(self, _inherited: Engine) -> None:
        raise UsageError("this client was made before the fork: make one in each process")
