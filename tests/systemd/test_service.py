"""The daemon as a service of a real systemd: start, reload, crash, hang, and a stop under load.

The tests share one systemd and, as far as they leave it alone, one daemon.
"""

import pwd
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Hold, ScriptedModel, Text, ToolCalls, ToolUse
from supervisor.core.limits import STOP_ALL_S

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
SHUTDOWN_S = 0.5
"""What a session of these tests may take to end by itself."""
STOP_S = STOP_ALL_S + 1.0
"""For the whole service to end: the daemon's bound for its sessions, and a second."""
ROOT = Path(__file__).parents[2]
ACCOUNT = "nobody"


@pytest.fixture
def scripted():
    """A model that answers everything alike."""
    with ScriptedModel([], default="fine") as model:
        yield model


def test_a_stop_wins_over_the_start(installed, poll):
    """A daemon whose zygote still warms ends as orderly as any, and leaves nothing."""
    installed.forget()
    installed.booted.systemctl("start", "--no-block", installed.unit)
    assert poll((installed.booted.runtime / "control.sock").exists)
    installed.stop()

    assert installed.show("Result") == "success"
    assert installed.show("ExecMainStatus") == "0"
    assert installed.booted.cgroup() == []
    assert not (installed.booted.runtime / "control.sock").exists()


def test_active_means_that_agents_can_start(installed, poll):
    """While the zygote warms the service is still starting, though its sockets are bound."""
    installed.stop()
    installed.booted.systemctl("start", "--no-block", installed.unit)
    assert poll((installed.booted.runtime / "control.sock").exists)
    early = installed.show("ActiveState"), installed.wait_status("zygote")
    installed.start()
    with installed.client() as client:
        zygote = next(node for node in client.tree().children if node.id == "nursery")

    assert early == ("activating", "0 sessions, 0 spares, zygote warming")
    assert zygote.state == "ready"
    assert installed.show("ActiveState") == "active"


def test_status_counts_the_sessions(service, scripted):
    """``systemctl status`` says how many sessions there are and in which phase."""
    with service.client() as client:
        first = client.create_agent(model=scripted)
        client.create_agent(model=scripted)
        two = service.wait_status("2 sessions (2 up)")
        client.stop(first)
        one = service.wait_status("1 session (1 up)")

    assert two.startswith("2 sessions (2 up), ")
    assert one.startswith("1 session (1 up), ")


def test_reload_takes_over_what_it_can(service, scripted):
    """Spares, log level and the most sessions change at once; what needs a restart is named."""
    booted, pid = service.booted, service.pid()
    service.configure('spares = 4\nlog_level = "warning"\n')
    booted.systemctl("reload", service.unit)
    more = service.wait_status("4 spares")
    service.configure('log_level = "warning"\nmax_sessions = 1\ndurability = "power"\n')
    booted.systemctl("reload", service.unit)
    fewer = service.wait_status("2 spares")
    reloads = [line for line in booted.log(f"--unit={service.unit}") if "config." in line]
    with service.client() as client:
        client.create_agent(model=scripted)
        with pytest.raises(cmdc.Overloaded, match="max_sessions"):
            client.create_agent(model=scripted)
    service.configure("")
    booted.systemctl("reload", service.unit)

    assert "4 spares" in more
    assert "2 spares" in fewer
    assert (service.pid(), service.show("ActiveState")) == (pid, "active")
    assert ["config.reloaded" in line for line in reloads] == [True, False]
    assert "needs_restart=['durability']" in reloads[1]


def test_a_wrong_file_changes_nothing(service, poll):
    """A reload of a file with mistakes is logged with all of them, and the daemon goes on."""
    pid, before = service.pid(), service.wait_status("0 sessions, 2 spares, zygote ready")
    service.configure('spares = "many"\nlog_levle = "info"\n')
    service.booted.systemctl("reload", service.unit)
    refused = poll(lambda: service.booted.heard("config.refused"))
    service.configure("")
    (line,) = [one for one in service.booted.log() if "config.refused" in one]

    assert refused
    assert "spares" in line
    assert "log_levle" in line
    assert (service.pid(), service.show("ActiveState")) == (pid, "active")
    assert service.show("StatusText") == before


@pytest.mark.parametrize(
    ("setting", "status", "said"),
    [
        ("", "3", "a daemon is running in /run/cmdc already"),
        ("Environment=CMDC_SPARES=many", "2", "CMDC_SPARES"),
    ],
    ids=["a second daemon", "wrong options"],
)
def test_what_a_restart_cannot_mend_is_not_restarted(service, poll, setting, status, said):
    """Such a unit fails at once with a clear message, and the first daemon keeps its place."""
    booted, unit = service.booted, "second.service"
    (booted.units / unit).write_text((booted.units / service.unit).read_text())
    booted.drop_in(f"[Service]\nEnvironment=CMDC_CONFIG= PYTHONPATH={sys.path[0]}\n{setting}", unit)
    started = booted.run("systemctl", "start", unit, check=False)

    assert started.returncode != 0
    assert booted.show(unit, "ExecMainStatus") == status
    assert (booted.show(unit, "ActiveState"), booted.show(unit, "NRestarts")) == ("failed", "0")
    assert poll(lambda: booted.heard(said, unit))
    with service.client() as client:
        assert client.list_sessions() == []


def test_a_killed_and_a_hanging_daemon_are_replaced(service, scripted, poll):
    """Either way nothing of the old daemon runs on but its agents, which the new one takes over."""
    pid, restarts = service.pid(), int(service.show("NRestarts"))
    service.change("WatchdogSec=4s")  # for the next start
    with service.client() as client:
        session = client.create_agent(model=scripted)
        old = {*service.booted.cgroup()}
        agent = session.agent_pid()
        service.signal("KILL", pid)
        assert service.wait_restarted(pid)
        left = old & {*service.booted.cgroup()}
        text = session.run("Hello.", timeout=TURN_S).text
        fed = service.show("WatchdogTimestampMonotonic")
        is_fed = poll(lambda: service.show("WatchdogTimestampMonotonic") != fed)
        pid = service.pid()
        service.signal("STOP", pid)
        service.change("")
        assert service.wait_restarted(pid)
        again = session.run("Hello again.", timeout=TURN_S).text

    assert (text, again, left, is_fed) == ("fine", "fine", {agent}, True)
    assert int(service.show("NRestarts")) == restarts + 2
    assert service.booted.heard("Watchdog timeout (limit 4s)!")
    # The stacks follow; how far they can be read when a stopped process goes on is chance.
    assert service.booted.heard("Fatal Python error: Aborted")


def test_stop_under_load_is_in_order(service, scripted):
    """Busy, stopped, stubborn and just dying sessions end in time, and systemd kills nothing."""
    talker = ScriptedModel([], default=(Text("half "), Hold()))
    worker = ScriptedModel([ToolCalls(ToolUse("shell", {"command": "trap '' TERM; sleep 300"}))])
    with talker, worker, service.client() as client:

        def create(model, **options):
            return client.create_agent(model=model, shutdown=SHUTDOWN_S, **options)

        busy = [create(talker), create(talker)]
        busy.append(create(worker, tools=[cmdc.tools.Shell], working_dir=service.booted.root))
        for session in busy:
            session.prompt("Go on.")
        stopped = [create(scripted), create(scripted)]
        dying = [create(scripted), create(scripted)]
        talker.wait_held(count=2)
        worker.wait_request()
        service.wait_status("7 sessions (7 up)")
        service.signal("STOP", *(one.agent_pid() for one in stopped))
        service.signal("KILL", *(one.agent_pid() for one in dying))
        lines, began_s = len(service.booted.log()), time.monotonic()
        service.stop()
        took_s = time.monotonic() - began_s
    killed = [line for line in service.booted.log()[lines:] if "with signal SIGKILL" in line]
    ended = [service.show(name) for name in ("Result", "ExecMainCode", "ExecMainStatus")]
    left = service.booted.cgroup()
    service.forget()

    assert took_s < STOP_S
    assert ended == ["success", "1", "0"]
    assert (left, killed) == ([], [])


def test_an_account_without_rights_serves(installed, scripted):
    """The unit's own account and hardening leave tools what they need, and no way to more."""
    path = f"{sysconfig.get_path('purelib')}:{ROOT}"
    python = reachable_python(path)
    installed.forget()
    installed.change(
        f"User={ACCOUNT}\nExecStart=\nExecStart={python} -P -m supervisor\n"
        f"Environment=PYTHONPATH={path}"
    )
    work = installed.booted.root / "work"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    script = "id -un; grep NoNewPrivs /proc/self/status; touch mine && ls; touch /usr/mine"
    model = ScriptedModel([ToolCalls(ToolUse("shell", {"command": script})), "done"])
    installed.start()
    with model, installed.client() as client:
        session = client.create_agent(model=model, tools=[cmdc.tools.Shell], working_dir=work)
        session.run("Look.", timeout=TURN_S)
        said = session.messages()[-2].content
    installed.forget()
    installed.change("")

    assert said.split()[:4] == [ACCOUNT, "NoNewPrivs:", "1", "mine"]
    assert "Read-only file system" in said


def reachable_python(path):
    """Return an interpreter that the account can run and that finds the project below ``path``."""
    own = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/local/bin/{own}", f"/usr/bin/{own}"):
        if Path(python).exists() and can_run(python, path):
            return python
    return pytest.skip(f"no Python of this machine that {ACCOUNT} may run sees the project")


def can_run(python, path):
    """Say whether the account can run the daemon's modules with an interpreter."""
    try:
        probe = subprocess.run(
            [python, "-P", "-c", "import supervisor.entry"],
            user=ACCOUNT,
            group=pwd.getpwnam(ACCOUNT).pw_gid,
            extra_groups=[],
            env={"PYTHONPATH": path},
            cwd="/",
            capture_output=True,
            timeout=TURN_S,
            check=False,
        )
    except PermissionError:
        return False
    return probe.returncode == 0
