"""``cmdc service install`` and ``uninstall`` with a real systemd, of the machine and of a user."""

import os
import shutil

import pytest

import cmdc_runtime as cmdc

pytestmark = [pytest.mark.process, pytest.mark.slow]

UNIT = "cmdc.service"
SYSTEM = ("--system", "--run-as", "root")
USER_MANAGER = """[Unit]
DefaultDependencies=no
[Service]
Type=notify
Delegate=yes
KillSignal=SIGRTMIN+24
Environment={variables} SYSTEMD_UNIT_PATH={units} SYSTEMD_GENERATOR_PATH=/nowhere
ExecStart={folder}/systemd --user --log-target=journal
"""


def test_installed_started_and_removed(booted, service_command):
    """What install has written runs and is started at boot; uninstall stops and removes it all."""
    before = files_below(booted.units)
    service_command("install", *SYSTEM)
    enabled = booted.systemctl("is-enabled", UNIT)
    verified = booted.run("systemd-analyze", "verify", booted.units / UNIT, check=False)
    booted.drop_in(f"[Service]\nEnvironment=PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n")
    booted.systemctl("start", UNIT)
    again = service_command("install", *SYSTEM)
    active = booted.systemctl("is-active", UNIT)
    removed = service_command("uninstall", "--system")

    assert (enabled, active, again.returncode) == ("enabled", "active", 0)
    assert (verified.returncode, verified.stderr) == (0, "")
    assert booted.systemctl("is-active", UNIT, check=False) == "inactive"
    assert booted.cgroup() == []
    assert f"left as it is: /etc/systemd/system/{UNIT}.d/test.conf" in removed.stderr
    shutil.rmtree(booted.units / f"{UNIT}.d")
    assert files_below(booted.units) == before


def test_a_unit_changed_by_hand_is_kept(booted, service_command):
    """Neither install nor uninstall touches what a person wrote, unless asked to."""
    service_command("install", *SYSTEM)
    unit = booted.units / UNIT
    unit.write_text(unit.read_text().replace("WatchdogSec=30", "WatchdogSec=60"))
    refused = [
        service_command("install", *SYSTEM, check=False),
        service_command("uninstall", "--system", check=False),
    ]
    kept = unit.read_text()
    service_command("install", *SYSTEM, "--force")
    mended = unit.read_text()
    service_command("uninstall", "--system")

    assert [one.returncode for one in refused] == [1, 1]
    assert all("was changed by hand" in one.stderr for one in refused)
    assert ("WatchdogSec=60" in kept, "WatchdogSec=30" in mended) == (True, True)
    assert not unit.exists()


def test_a_folder_that_systemd_does_not_read_is_reported(booted, service_command, tmp_path):
    """A unit that systemd would not find cannot be enabled, and the command says so."""
    refused = service_command("install", *SYSTEM, "--unit-dir", tmp_path, check=False)
    service_command("uninstall", "--system", "--unit-dir", tmp_path)

    assert refused.returncode == 1
    assert "systemd does not read" in refused.stderr
    assert files_below(tmp_path) == set()


def test_a_user_has_a_service_too(booted, service_command, write_targets, tmp_path):
    """The unit of one person runs under that person's systemd, with folders of the home."""
    home, runtime = tmp_path / "home", booted.root / "run/user"
    units = home / ".config/systemd/user"
    units.mkdir(parents=True)
    runtime.mkdir(mode=0o700)
    write_targets(units)
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": "/run/user"}
    variables = " ".join(f"{name}={text}" for name, text in environment.items())
    (booted.units / "user.service").write_text(
        USER_MANAGER.format(variables=variables, units=units, folder=booted.folder)
    )
    booted.systemctl("daemon-reload")
    booted.systemctl("start", "user.service")
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    booted.systemctl(
        "--user", "set-environment", f"PYTHONPATH={environment['PYTHONPATH']}", **environment
    )
    service_command("install", "--user", **environment)
    booted.systemctl("--user", "start", UNIT, **environment)
    with cmdc.Client(runtime / "cmdc") as client:
        sessions = client.list_sessions()
    state = booted.systemctl("--user", "is-active", UNIT, **environment)
    enabled = booted.systemctl("--user", "is-enabled", UNIT, **environment)
    has_journal = (home / ".local/state/cmdc").is_dir()
    service_command("uninstall", "--user", **environment)
    gone = not (units / UNIT).exists()
    booted.systemctl("stop", "user.service")

    assert (sessions, state, enabled) == ([], "active", "enabled")
    assert (has_journal, gone) == (True, True)


def files_below(folder):
    """Return all that is there, folders too, but what only the boot has made."""
    return {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
