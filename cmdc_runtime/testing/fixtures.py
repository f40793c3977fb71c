"""The pytest plugin: a real daemon for a whole test run, and sessions that end with their test.

pytest finds it by itself where ``cmdc-runtime[testing]`` is installed. It does nothing, and loads
nothing of the package but this module, until a test asks for a fixture of it. While a test runs
that asks for ``cmdc_daemon``, directly or not, the functions of ``cmdc_runtime`` and of
``cmdc_runtime.aio``, and programs that it starts, speak with that daemon. When the run ends, so
does the daemon, and what it leaves behind, process, socket or temporary file, is an error of the
last test.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from cmdc_runtime.client.sync.session import Session
    from cmdc_runtime.testing.daemon import DaemonProcess

    SessionMaker = Callable[..., Session]

_DAEMON: Final = "cmdc_daemon"
_REDIRECTED: Final = "_cmdc_redirected"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have the calls of a test that uses the daemon go there, from its first fixture on."""
    names: list[str] = getattr(item, "fixturenames", [])
    if _DAEMON in names and _REDIRECTED not in names:
        names.insert(0, _REDIRECTED)


@pytest.fixture(scope="session")
def cmdc_daemon() -> "Iterator[DaemonProcess]":
    """Lend the run's daemon: ``address``, ``client()``, ``pid`` and ``log_text()``."""
    try:
        from cmdc_runtime.testing.daemon import DaemonProcess  # noqa: PLC0415 - for who uses it
    except ModuleNotFoundError as error:
        if error.name != "psutil":
            raise
        pytest.fail("cmdc_daemon needs psutil: pip install 'cmdc-runtime[testing]'", pytrace=False)
    daemon = DaemonProcess()
    yield daemon
    try:
        daemon.close()
    except AssertionError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def _cmdc_redirected(cmdc_daemon: "DaemonProcess") -> Iterator[None]:
    from cmdc_runtime.client.default import redirected  # noqa: PLC0415 - as above

    with redirected(cmdc_daemon.address):
        yield


@pytest.fixture
def cmdc_session(cmdc_daemon: "DaemonProcess") -> "Iterator[SessionMaker]":
    """Lend ``cmdc_session(model, **options)``, which starts a session that ends with the test.

    ``model`` is what ``create_agent`` takes, or a list of steps for a ``ScriptedModel`` of its own.
    """
    from cmdc_runtime.errors import InvalidSession, SessionNotAlive  # noqa: PLC0415 - as above
    from cmdc_runtime.testing.scripted import ScriptedModel  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        client = stack.enter_context(contextlib.closing(cmdc_daemon.client()))

        def stop(session: "Session") -> None:
            with contextlib.suppress(SessionNotAlive, InvalidSession):
                session.stop()

        def start(model: Any, **options: Any) -> "Session":  # Any: see Options
            if isinstance(model, list):
                model = stack.enter_context(ScriptedModel(model))
            session = client.create_agent(model=model, **options)
            stack.callback(stop, session)
            return session

        yield start
