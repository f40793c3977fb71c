"""A whole daemon in this process, on a machine where no zygote can be had."""

import asyncio
import tempfile
from functools import partial
from pathlib import Path

import pytest

from supervisor import daemon as module
from supervisor.adapters.journal.operations import CreateSession, ListLiveSessions
from supervisor.adapters.journal.sqlite import SqliteJournal
from supervisor.adapters.systemd import Notifier
from supervisor.adapters.zygote import Zygote, ZygoteOptions
from supervisor.config import DaemonConfig
from supervisor.core import session_tree
from supervisor.daemon import Daemon, RootGaveUp
from supervisor.processes.pool import WorkerPool
from supervisor.sessions.assignment import spec_bytes
from tests.integration.supervisor.test_sessions import row_of
from tests.unit.supervisor.services import PlayedWorker, spec

pytestmark = [pytest.mark.process, pytest.mark.slow]

WAIT_S = 30.0
STOP_S = 0.2


@pytest.fixture
def config(monkeypatch):
    """Say where a daemon lives that gives up when its zygote has failed twice."""
    monkeypatch.setattr(session_tree, "ROOT_RESTARTS_MAX", 1)
    monkeypatch.setattr(session_tree, "ZYGOTE_DELAY_S", (0.0, 0.0))
    options = ZygoteOptions(preload="no_such_module", needs=())
    monkeypatch.setattr(module, "Zygote", partial(Zygote, options))
    monkeypatch.setattr(module, "STOP_ALL_S", STOP_S)
    monkeypatch.setattr(module, "set_child_subreaper", lambda: None)  # this is no daemon
    # Other children of this process are daemons of other tests, and no strangers.
    monkeypatch.setattr(module, "end_strangers", lambda _own: 0)
    with tempfile.TemporaryDirectory(prefix="d-") as name:
        folder = Path(name)
        yield DaemonConfig(runtime_dir=folder / "run", state_dir=folder / "state", spares=0)


def test_root_that_gives_up_ends_the_daemon_and_no_session(config, monkeypatch):
    """It ends within its bound, whatever sessions may take, and the next one goes on with them."""

    async def acquire(_pool, _is_waiting, *, has_litellm=False):
        return PlayedWorker(2**22 + 1)  # it hears nothing and never ends

    async def main():
        journal = SqliteJournal(config.state_dir)
        await journal.open()
        patient = spec_bytes(spec("patient", shutdown=None))
        await journal.write(CreateSession(row_of("patient", patient)))
        await journal.close()
        monkeypatch.setattr(WorkerPool, "acquire", acquire)
        with Notifier.from_environment({}, pid=0) as notifier, pytest.raises(RootGaveUp) as caught:
            async with asyncio.timeout(WAIT_S):
                await Daemon(config, notifier, lambda: config).run()
        await journal_of(config, left)
        return str(caught.value)

    left = []
    reported = asyncio.run(main())

    assert reported.startswith("the supervision tree gave up: 1 restarts")
    assert left == ["patient"]


async def journal_of(config, left):
    """Read which sessions the journal has as alive."""
    journal = SqliteJournal(config.state_dir)
    await journal.open()
    left += [row.session_id for row in await journal.read(ListLiveSessions())]
    await journal.close()
