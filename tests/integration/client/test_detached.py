"""Daemons that outlive who started them: ``serve --detach``, ``shutdown``, ``CMDC_AUTOSTART``."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cmdc_runtime.client.detached import LOG_BYTES_KEPT, default_log
from cmdc_runtime.runtime_dir import running_daemon
from tests.ended import has_ended

pytestmark = [pytest.mark.process, pytest.mark.slow]

CMDC = Path(sys.executable).with_name("cmdc")
RUN_S = 90.0
"""For one command, the machine being busy."""
PRINT_PID = """
import cmdc_runtime as cmdc
from cmdc_runtime.requests import GetFacts
from cmdc_runtime.client.engine import ClientEngine
engine = ClientEngine(None)

async def facts():
    return await (await engine.exchange._connector.connected()).ask(GetFacts())

print(engine.call(facts()).pid)
engine.close()
"""


@pytest.fixture(name="place")
def _place(tmp_path):
    """Return the environment of a user without a daemon; one that is left is ended."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    runtime, state = tmp_path / "run", tmp_path / "state"
    yield ours | {"CMDC_RUNTIME_DIR": str(runtime), "CMDC_STATE_DIR": str(state)}
    if (left := running_daemon(runtime)) is not None:
        os.kill(left.holder.pid, signal.SIGKILL)
        raise AssertionError(f"daemon {left.holder.pid} was left")


def cmdc(*words, place):
    """Run one command to its end."""
    return subprocess.run(
        [CMDC, *words], env=place, capture_output=True, text=True, timeout=RUN_S, check=False
    )


def test_a_detached_daemon_serves_until_it_is_shut_down(place):
    """The command returns when it takes calls; its parent is nobody who waits; its end is seen."""
    begun = cmdc("serve", "--detach", "--json", place=place)
    printed = json.loads(begun.stdout)
    daemon = psutil.Process(printed["pid"])
    title = daemon.cmdline()[0]
    facts = (
        title.startswith("cmdcd --detached "),
        daemon.terminal(),
        Path(printed["log"]).exists(),
    )
    listed = cmdc("ps", "--json", place=place)
    ended = cmdc("shutdown", "--json", place=place)

    assert (begun.returncode, begun.stderr) == (0, "")
    assert printed["address"] == place["CMDC_RUNTIME_DIR"]
    assert facts == (True, None, True)
    assert json.loads(listed.stdout) == []
    assert json.loads(ended.stdout)["stopped"] is True
    assert has_ended(daemon)
    assert cmdc("shutdown", place=place).returncode == 3


def test_what_keeps_a_daemon_from_its_start_is_reported_to_the_caller(place):
    """Wrong options are status 2 and another daemon status 3, with the daemon's own words."""
    wrong = cmdc("serve", "--detach", "--spares", "many", place=place)
    begun = cmdc("serve", "--detach", place=place)
    second = cmdc("serve", "--detach", place=place)
    pid = re.match(r"daemon (\d+) serves at ", begun.stdout)[1]
    ended = cmdc("shutdown", place=place)

    assert (wrong.returncode, "--spares" in wrong.stderr, wrong.stdout) == (2, True, "")
    assert (second.returncode, pid in second.stderr, second.stdout) == (3, True, "")
    assert "Traceback" not in wrong.stderr + second.stderr
    assert (ended.returncode, ended.stdout.startswith(f"daemon {pid} ")) == (0, True)


def test_programs_that_start_at_once_share_one_daemon(place):
    """``CMDC_AUTOSTART=1``: who comes second gets the daemon of the first, which outlives both."""
    environment = place | {"CMDC_AUTOSTART": "1"}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PRINT_PID], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    pids = {program.communicate(timeout=RUN_S)[0].strip() for program in programs}
    statuses = [program.returncode for program in programs]
    (pid,) = pids
    outlives = psutil.pid_exists(int(pid))
    ended = cmdc("shutdown", "--json", place=place)

    assert (statuses, outlives) == ([0] * 2, True)
    assert json.loads(ended.stdout)["pid"] == int(pid)


def test_autostart_says_what_keeps_it(place):
    """A daemon that can't start is reported with its reason; so is a value that is no answer."""
    wrong = subprocess.run(
        [sys.executable, "-c", PRINT_PID],
        env=place | {"CMDC_AUTOSTART": "1", "CMDC_SPARES": "many"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    unclear = cmdc(
        "run", "hi", "--model", "openai:any", place=place | {"CMDC_AUTOSTART": "perhaps"}
    )

    last = wrong.stderr.strip().splitlines()[-1]
    assert ("DaemonUnavailable: CMDC_AUTOSTART" in last, "CMDC_SPARES" in last) == (True, True)
    assert (unclear.returncode, "CMDC_AUTOSTART: expected 1 or 0" in unclear.stderr) == (2, True)


def test_a_long_log_is_put_aside(place):
    """A daemon adds to the log of the one before; one that has grown long becomes another file."""
    log = default_log(place, home=Path.home())
    log.parent.mkdir(mode=0o700)
    log.write_bytes(b"x" * (LOG_BYTES_KEPT + 1))
    cmdc("serve", "--detach", place=place)
    sizes = (log.with_name("daemon.log.1").stat().st_size, log.stat().st_size)
    cmdc("shutdown", place=place)

    assert (sizes[0], 0 < sizes[1] < LOG_BYTES_KEPT) == (LOG_BYTES_KEPT + 1, True)


def test_flags_are_the_daemons_own(place):
    """``cmdc serve --help`` has each flag of the daemon, and none that it does not take."""
    shown = cmdc("serve", "--help", place=place).stdout
    daemons = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor", "--help"],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=True,
    ).stdout
    flags = [set(re.findall(r"--[a-z-]+", text)) for text in (shown, daemons)]

    assert flags[0] - flags[1] == {"--detach", "--log-file", "--json"}
    assert flags[1] <= flags[0]
