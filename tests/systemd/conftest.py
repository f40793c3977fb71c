"""A real systemd for the tests of one file: PID 1 of namespaces of its own, journal included.

It needs root and a kernel that lets root make namespaces; where that is not so, the tests are
skipped and the reason is reported. Network and processes are seen from outside, so that a scripted
model serves the agents inside; files under ``root`` are the same on both sides. Everything ends
with PID 1, and PID 1 with the process that made the namespaces.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc

HERE = Path(__file__).parent
CMDC = Path(sys.executable).with_name("cmdc")
PROGRAMS = ("unshare", "nsenter", "mount", "systemctl", "journalctl")
FOLDERS = (Path("/usr/lib/systemd"), Path("/lib/systemd"))
BOOT_S = 20.0
"""Until PID 1 answers; about 0.5 s on an idle machine."""
CALL_S = 60.0
"""For one command inside: a start warms a zygote, and a stop waits for agents."""
END_S = 10.0
POLL_S = 0.02
TARGETS = ("sysinit", "basic", "multi-user", "default", "shutdown", "sockets", "timers", "paths")
BARE = "[Unit]\nDefaultDependencies=no\n"
JOURNAL = {
    "systemd-journald.socket": f"""{BARE}[Socket]
ListenStream=/run/systemd/journal/stdout
ListenDatagram=/run/systemd/journal/socket
PassCredentials=yes
""",
    "systemd-journald.service": f"""{BARE}Requires=systemd-journald.socket
[Service]
Type=notify
StandardOutput=null
Sockets=systemd-journald.socket
FileDescriptorStoreMax=64
ExecStart={{folder}}/systemd-journald
""",
    "multi-user.target": f"{BARE}Requires=systemd-journald.service\n",
}
SETTINGS = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n"
"""Tests end the daemon more often than a machine does, and wait for the next one."""
JOURNALD = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n"


def poll_for(condition, timeout=CALL_S):
    """Return the first true answer of ``condition``, asked again and again until the time is up."""
    never = threading.Event()
    for _ in range(round(timeout / POLL_S)):
        if found := condition():
            return found
        never.wait(POLL_S)
    return condition()


class Booted:
    """One booted systemd; ``units`` is its only folder of units, ``runtime`` is /run/cmdc."""

    def __init__(self, folder):
        self.root = Path(tempfile.mkdtemp(prefix="cmdc-systemd-", dir="/tmp"))
        self.root.chmod(0o755)  # services of other accounts go through it
        for name in ("run", "lib", "etc", "none"):
            (self.root / name).mkdir()
        self.folder = folder
        self.units = self.root / "etc/system"
        self.runtime = self.root / "run/cmdc"
        self.units.mkdir()
        write_targets(self.units)
        for name, text in JOURNAL.items():
            (self.units / name).write_text(text.format(folder=folder))
        (self.root / "etc/journald.conf").write_text(JOURNALD)
        self.has_been_up = False
        self._space = None
        self._pid = 0

    def boot(self):
        """Start it; return what went wrong, or nothing."""
        words = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc"]
        with (self.root / "console").open("wb") as console:
            self._space = subprocess.Popen(
                [*words, "bash", HERE / "boot.sh", "enter", self.root],
                env={"PATH": os.environ["PATH"], "SYSTEMD": str(self.folder / "systemd")},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        if not poll_for(lambda: self._space.poll() is not None or self._is_up(), BOOT_S):
            return f"systemd was not up within {BOOT_S:g} s: {self.console()}"
        if self._space.poll() is not None:
            return f"no systemd can be booted here: {self.console()}"
        self.has_been_up = True
        return None

    def console(self):
        return (self.root / "console").read_text().strip()

    def run(self, *command, check=True, timeout=CALL_S, **environment):
        """Run a command inside, beside the services; return its end."""
        words = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--uts", "--ipc", "-C"]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("CMDC_")}
        done = subprocess.run(
            [*words, *command],
            env=kept | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def systemctl(self, *words, **more):
        return self.run("systemctl", *words, **more).stdout.strip()

    def show(self, unit, name):
        """Return one property of a unit."""
        return self.systemctl("show", f"--property={name}", "--value", unit)

    def log(self, *words):
        """Return the lines of the journal, those of PID 1 included."""
        done = self.run("journalctl", "--no-pager", "--output=cat", *words, check=False)
        return done.stdout.splitlines()

    def heard(self, text, unit="cmdc.service"):
        """Say whether a line of the unit, or about it, has this text."""
        return any(text in line for line in self.log(f"--unit={unit}"))

    def drop_in(self, text, unit="cmdc.service"):
        """Change a unit's settings."""
        folder = self.units / f"{unit}.d"
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(text)
        self.systemctl("daemon-reload")

    def cgroup(self, unit="cmdc.service"):
        """Return the pids, as they are inside, of all that runs in the unit's cgroup."""
        path = f"/sys/fs/cgroup/system.slice/{unit}"
        script = f"test ! -d {path} || find {path} -name cgroup.procs -exec cat {{}} +"
        return [int(word) for word in self.run("bash", "-c", script).stdout.split()]

    def close(self):
        """End all of it, and remove what was there for it."""
        if self._space is not None:
            self._space.kill()
            self._space.wait(END_S)
        # A cgroup can only be removed when nothing in it runs any more.
        swept = subprocess.run(
            ["unshare", "--mount", "bash", HERE / "boot.sh", "sweep", self.root],
            capture_output=True,
            timeout=END_S,
            check=False,
        )
        shutil.rmtree(self.root)
        assert not self.has_been_up or swept.returncode == 0, swept.stderr

    def _is_up(self):
        try:
            (self._pid, *_) = [one.pid for one in psutil.Process(self._space.pid).children()]
            return self.run("systemctl", "is-system-running", check=False).stdout == "running\n"
        except (psutil.NoSuchProcess, ValueError):
            return False


def write_targets(folder):
    """Make the targets that units depend on by default; none pulls anything in."""
    for name in TARGETS:
        (folder / f"{name}.target").write_text(BARE)


def missing():
    """Say why no systemd can be booted on this machine, as far as that is seen beforehand."""
    if os.geteuid() != 0:
        return "booting a systemd needs root"
    gone = [name for name in PROGRAMS if shutil.which(name) is None]
    if gone:
        return f"{', '.join(gone)} is not installed"
    if systemd_folder() is None:
        return "systemd is not installed"
    return None


def systemd_folder():
    return next((one for one in FOLDERS if (one / "systemd").exists()), None)


class Service:
    """The service as ``cmdc service install`` makes it, run as root, with settings for tests."""

    unit = "cmdc.service"

    def __init__(self, booted):
        self.booted = booted
        self.config = booted.root / "cmdc.toml"
        self.configure("")
        # Enabled, so that systemd does not forget about a stopped unit how it ended.
        booted.run(CMDC, "service", "install", "--system", "--run-as", "root")
        self.change("")

    def configure(self, text):
        """Write the daemon's configuration, which it reads when it starts or is asked to."""
        self.config.write_text(text)

    def change(self, settings):
        """Change the unit; what its process was given holds until the next start."""
        path = os.environ.get("PYTHONPATH", "")
        given = f"Environment=CMDC_CONFIG={self.config} PYTHONPATH={path}"
        self.booted.drop_in(f"{SETTINGS}{given}\n{settings}\n")

    def start(self):
        """Return when the service is active."""
        self.booted.systemctl("start", self.unit)

    def stop(self):
        """Return when the service is not active any more."""
        self.booted.systemctl("stop", self.unit)

    def show(self, name):
        """Return one property of the unit."""
        return self.booted.show(self.unit, name)

    def pid(self):
        """Return the daemon's pid inside, 0 where none runs."""
        return int(self.show("MainPID"))

    def signal(self, name, *pids):
        """Signal processes by their pids inside."""
        self.booted.run("kill", f"-{name}", *map(str, pids))

    def client(self):
        """Return a new client of the daemon."""
        return cmdc.Client(self.booted.runtime)

    def wait_status(self, text):
        """Return the line of ``systemctl status`` when it has ``text``, or as it is in the end."""
        poll_for(lambda: text in self.show("StatusText"), CALL_S)
        return self.show("StatusText")

    def wait_restarted(self, pid):
        """Return when another process than ``pid`` is the service and takes calls."""
        return poll_for(
            lambda: self.show("ActiveState") == "active" and self.pid() not in (0, pid), CALL_S
        )

    def forget(self):
        """Stop it, and remove its journal."""
        self.stop()
        shutil.rmtree(self.booted.root / "lib/cmdc", ignore_errors=True)


@pytest.fixture(scope="module")
def booted():
    """A systemd that the tests of one file share."""
    if reason := missing():
        pytest.skip(reason)
    machine = Booted(systemd_folder())
    try:
        if problem := machine.boot():
            pytest.skip(problem)
        yield machine
    finally:
        machine.close()


@pytest.fixture(name="write_targets")
def _write_targets():
    """Make the targets that units depend on by default."""
    return write_targets


@pytest.fixture
def service_command(booted):
    """Run ``cmdc service`` inside, and return its end."""
    return lambda *words, **more: booted.run(CMDC, "service", *words, **more)


@pytest.fixture(scope="module")
def installed(booted):
    """The service, installed and not started."""
    return Service(booted)


@pytest.fixture
def service(installed):
    """The running service; no session of the test is left in it."""
    installed.start()
    yield installed
    if installed.show("ActiveState") == "active":
        with installed.client() as client:
            for one in client.list_sessions():
                client.stop(one.session_id)


@pytest.fixture(name="poll")
def _poll():
    """Wait for a condition of the operating system."""
    return poll_for
