"""Processes that hang before they are agents: whoever wants a session does not wait for them."""

import os
import signal
import time
from pathlib import Path

import msgspec
import psutil
import pytest

import cmdc_runtime as cmdc
from tests.fault.cases.test_storage import facts

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
SOON_S = 10.0
"""For a start that meets a process that hangs: far below the 30 s that one may take."""


class Stopping(cmdc.Plugin):
    """Stops its process once, in the midst of the session's start."""

    class Config(msgspec.Struct, frozen=True):
        path: str

    async def session_start(self, event, context):
        stop_once(self.config.path)


def stop_once(path):
    """Leave word, and be stopped; later processes go on."""
    if not Path(path).exists():
        Path(path).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)


def began(agent, **options):
    """Start a session, and return it with how long that took."""
    started_s = time.monotonic()
    session = agent(**options)
    assert session.run("Are you there?", timeout=TURN_S).text == "fine"
    return session, time.monotonic() - started_s


@pytest.mark.fault_case("F77")
def test_a_stopped_spare_is_not_handed_out(place, audit, agent, client):
    """It is killed and counted, another process takes its place, and there are spares again."""
    assert place.poll(lambda: facts(client).spares >= place.spares)
    spares = audit._spares()
    for pid in spares:
        os.kill(pid, signal.SIGSTOP)
    session, took_s = began(agent)

    assert took_s < SOON_S
    assert session.agent_pid() not in spares
    assert session.status().incarnation == 1
    assert place.poll(lambda: not any(map(psutil.pid_exists, spares)))
    assert place.log.read_text().count("spare.hung") == len(spares)


@pytest.mark.fault_case("F77")
def test_a_process_that_is_stopped_while_it_starts_is_replaced(place, agent, tmp_path):
    """The caller has his session from the next one, and nobody hears of an end."""
    word = tmp_path / "stopped"
    session, took_s = began(agent, plugins=[Stopping(path=str(word))])
    stopped = int(word.read_text())

    assert took_s < SOON_S
    assert session.agent_pid() != stopped
    assert (session.status().incarnation, session.status().restarts) == (1, 0)
    assert place.poll(lambda: not psutil.pid_exists(stopped))
    assert "process.hung" in place.log.read_text()
