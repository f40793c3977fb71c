"""The unit files against the daemon that they run, and what the command does without a systemd."""

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmdc_runtime.cli import main, service
from supervisor.adapters.zygote import ZygoteOptions
from supervisor.core import limits
from supervisor.entry import EXIT_RUNNING, EXIT_USAGE
from supervisor.upkeep.self_check import ROUNDS_PER_WATCHDOG

UNITS = Path(__file__).parents[2] / "deploy/systemd"
SYSTEM, USER = UNITS / "cmdc.service", UNITS / "user/cmdc.service"
VERIFY_S = 20.0
ME = pwd.getpwuid(os.getuid()).pw_name


def settings(path):
    """Return the settings of a unit; the last line of each name counts."""
    lines = (line for line in path.read_text().splitlines() if line and line[0] not in "#[")
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("path", [SYSTEM, USER], ids=["system", "user"])
def test_systemd_waits_for_the_daemon_and_not_the_other_way_round(path):
    """Every bound of the unit is beyond the daemon's own, and both agree on exit statuses."""
    unit = settings(path)
    zygote = ZygoteOptions()
    stop_s = (
        limits.STOP_ALL_S
        + 1.0
        + limits.HANDSHAKE_S
        + limits.HOST_END_S
        + zygote.close_s_max
        + limits.JOURNAL_CLOSE_S
    )

    assert float(unit["TimeoutStopSec"]) > stop_s
    assert float(unit["TimeoutStartSec"]) > zygote.warm_s_max
    assert float(unit["WatchdogSec"]) / ROUNDS_PER_WATCHDOG >= limits.SELF_CHECK_INTERVAL_S
    assert unit["RestartPreventExitStatus"] == f"{EXIT_USAGE} {EXIT_RUNNING}"
    assert float(unit["TimeoutStopSec"]) < service.SYSTEMCTL_S


def test_both_units_run_the_daemon_alike():
    """They differ in whose it is, in where its files are, and in what it may do."""
    system, user = settings(SYSTEM), settings(USER)
    common = system.keys() & user.keys() - {"Environment", "WantedBy"}

    assert {name: system[name] for name in common} == {name: user[name] for name in common}
    assert user.keys() - system.keys() == set()
    assert system.keys() - user.keys() == {
        "After",
        "CapabilityBoundingSet",
        "LimitNICE",
        "NoNewPrivileges",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectSystem",
        "RestrictRealtime",
        "StateDirectory",
        "StateDirectoryMode",
        "User",
    }


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine where no systemd runs, of nobody and of no user."""
    monkeypatch.setattr(service, "BOOTED", tmp_path / "not-booted")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "units"


@pytest.mark.parametrize(
    "scope", [("--system", "--run-as", ME), ("--user",)], ids=lambda one: one[0]
)
def test_a_unit_is_written_where_no_systemd_runs(nowhere, capsys, scope):
    """The file is right, the rest is printed, and uninstall removes what was written."""
    words = [*scope, "--unit-dir", str(nowhere)]
    installed = main(["service", "install", *words])
    printed = capsys.readouterr()
    unit = settings(nowhere / "cmdc.service")
    verified = verify(nowhere / "cmdc.service", scope[0])
    mode = (nowhere / "cmdc.service").stat().st_mode & 0o777
    removed = main(["service", "uninstall", scope[0], "--unit-dir", str(nowhere)])

    assert (installed, removed, mode) == (0, 0, 0o644)
    assert "systemd does not run here" in printed.err
    assert unit["ExecStart"] == f"{sys.executable} -P -m supervisor"
    assert unit.get("User") == (ME if scope[0] == "--system" else None)
    assert verified == ""
    assert list(nowhere.iterdir()) == []


def verify(path, scope):
    """Return what systemd has to say about a unit file, nothing where there is no systemd."""
    if shutil.which("systemd-analyze") is None:
        return ""
    done = subprocess.run(
        ["systemd-analyze", "verify", scope, "--man=no", path],
        capture_output=True,
        text=True,
        timeout=VERIFY_S,
        check=False,
    )
    return "".join(line for line in done.stderr.splitlines(keepends=True) if path.name in line)


def test_a_dry_run_writes_nothing(nowhere, capsys):
    """It prints the unit file, which is the one that would be written."""
    main(["service", "install", "--user", "--dry-run"])
    shown = capsys.readouterr().out
    main(["service", "install", "--user", "--unit-dir", str(nowhere)])

    assert shown == (nowhere / "cmdc.service").read_text()
    assert not (nowhere.parent / "config").exists()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("install", "--system", "--run-as", "no-such-account"), 2, "useradd --system"),
        (("install", "--user", "--run-as", ME), 2, "--run-as is for --system"),
        (("install", "--user", "--config", "/nowhere/cmdc.toml"), 2, "/nowhere/cmdc.toml"),
        (("uninstall", "--user"), 0, "nothing to uninstall"),
    ],
    ids=["no account", "a user's account", "no file", "not installed"],
)
def test_what_cannot_be_done_is_said(nowhere, capsys, words, status, said):
    """The message names what is wrong and the way out, and nothing is written."""
    assert main(["service", *words, "--unit-dir", str(nowhere)]) == status
    assert said in capsys.readouterr().err
    assert not nowhere.exists()


def test_a_config_file_is_named_to_the_daemon(nowhere, tmp_path):
    """The path in the unit is absolute, since a service starts elsewhere."""
    config = tmp_path / "my cmdc.toml"
    config.write_text("")
    main(["service", "install", "--user", "--config", str(config), "--unit-dir", str(nowhere)])

    assert settings(nowhere / "cmdc.service")["ExecStart"].endswith(f'--config "{config}"')


def test_another_ones_unit_is_left_alone(nowhere, capsys):
    """A file that this command has not written is neither replaced nor removed."""
    nowhere.mkdir()
    (nowhere / "cmdc.service").write_text("[Service]\nExecStart=/bin/true\n")
    words = ["--user", "--unit-dir", str(nowhere)]
    statuses = [main(["service", verb, *words]) for verb in ("install", "uninstall")]

    assert statuses == [1, 1]
    assert capsys.readouterr().err.count("is not from this command") == 2
    assert settings(nowhere / "cmdc.service") == {"ExecStart": "/bin/true"}


def test_an_account_that_cannot_reach_the_program_is_reported(tmp_path):
    """A service that would fail with status 203/EXEC is reported before it is started."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    nobody = pwd.getpwnam("nobody")

    assert closed in service._closed_to(nobody, closed / "python")
    assert [*service._closed_to(pwd.getpwnam("root"), closed / "python")] == []
