"""``cmdc doctor``, with this machine and with a peer that speaks the daemon's frames."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from cmdc_runtime.cli import main
from cmdc_runtime.errors import CommandTimeout
from cmdc_runtime.requests import DaemonFacts, GetFacts, LayerFact
from cmdc_runtime.version import VERSION

WAIT_S = 20.0
MACHINE = (
    "python",
    "packages",
    "kernel",
    "huge pages",
    "systemd",
    "open files",
    "temporary files",
    "state directory",
    "landlock",
    "seccomp",
    "namespaces",
    "bubblewrap",
    "tools",
    "runtime directory",
)
LAYERS = (
    LayerFact(what="memory", by="cgroup v1", why="controller memory in \x1b[2J"),
    LayerFact(what="cpu", by="none", why="no controller"),
    LayerFact(what="kill", by="process session", why="no cgroup"),
)


@pytest.fixture(autouse=True)
def _places(tmp_path, monkeypatch):
    """Let the journal's place be the test's own."""
    monkeypatch.setenv("CMDC_STATE_DIR", str(tmp_path / "state"))


def found(capsys, *arguments):
    """Run the command and return its exit status and the findings by name."""
    status = main(["doctor", "--json", *arguments])
    findings = json.loads(capsys.readouterr().out)
    return status, {one["name"]: one for one in findings}


def answers(peer, **changed):
    """Let the peer's daemon have other facts."""
    facts = DaemonFacts(
        pid=1,
        instance="one",
        version=VERSION,
        nursery="ready",
        sessions=0,
        spares=0,
        events_address="",
        refused_frames=0,
        layers=LAYERS,
    )
    peer.answers[GetFacts] = msgspec.structs.replace(facts, **changed)


def test_a_daemon_that_is_well_reports_its_layers(peer, capsys):
    """Who holds each bound is the daemon's word; a layer below the kernel's is worth a note."""
    answers(peer)
    status, by_name = found(capsys)

    assert status == 0
    assert tuple(by_name) == (
        *MACHINE,
        "daemon",
        "zygote",
        "journal",
        "connections",
        "log",
        "limits: memory",
        "limits: cpu",
        "limits: kill",
    )
    assert by_name["limits: memory"]["status"] == "ok"
    assert by_name["limits: cpu"] == {
        "name": "limits: cpu",
        "status": "note",
        "found": "none",
        "advice": "no controller",
    }


@pytest.mark.parametrize(
    ("changed", "name", "status"),
    [
        ({"nursery": "lost: ImportError"}, "zygote", "problem"),
        ({"nursery": "warming"}, "zygote", "note"),
        ({"version": "0.0.1"}, "daemon", "problem"),
        ({"cut_connections": 2}, "connections", "note"),
        ({"lost_log_lines": 2}, "log", "note"),
    ],
    ids=["lost", "warming", "old", "cut", "log"],
)
def test_what_needs_seeing_to_is_the_exit_status(changed, name, status, peer, capsys):
    """A problem makes it 1; a note alone does not."""
    answers(peer, **changed)
    code, by_name = found(capsys)

    assert by_name[name]["status"] == status
    assert code == (status == "problem")


def test_a_daemon_that_answers_with_an_error_is_a_problem(peer, capsys):
    """Whatever it says is reported in its line, and so is the rest."""
    peer.answers[GetFacts] = CommandTimeout("it is busy")
    status, by_name = found(capsys)

    assert status == 1
    assert by_name["daemon"]["status"] == "problem"
    assert "limits: memory" not in by_name


def test_without_a_daemon_the_machine_is_looked_at(no_peer, capsys):
    """That none runs is a note, and a problem only where it was named."""
    status, by_name = found(capsys)
    named, by_name_too = found(capsys, "--address", str(no_peer / "nowhere"))

    assert (status, named) == (0, 1)
    assert by_name["daemon"]["status"] == "note"
    assert "cmdc serve" in by_name["daemon"]["advice"]
    assert by_name_too["daemon"]["status"] == "problem"
    assert tuple(by_name) == (*MACHINE, "daemon")


def test_the_table_is_for_people(peer, capsys):
    """One line for each check, and nothing in it that a terminal obeys."""
    answers(peer)
    status = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()

    assert status == 0
    assert lines[0].split() == ["CHECK", "STATUS", "FOUND", "ABOUT", "IT"]
    assert len(lines) == 1 + len(MACHINE) + 5 + len(LAYERS)
    assert "\x1b" not in "".join(lines)


# --- what is wrong with a machine ---------------------------------------------------------------


def doctor_in(environment, soft_files):
    """Run the command in a process of its own; return its status and its findings by name."""
    code = "import sys; from cmdc_runtime.cli import main; sys.exit(main(['doctor', '--json']))"
    limited = f'ulimit -Sn {soft_files}; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", limited, "sh", sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)}


@pytest.mark.process
def test_a_state_directory_that_the_daemon_refuses_is_a_problem(no_peer):
    """With the way out that the daemon names."""
    (no_peer / "state").mkdir(mode=0o755)
    status, by_name = doctor_in({"CMDC_STATE_DIR": str(no_peer / "state")}, soft_files=1024)

    assert status == 1
    assert "chmod 700" in by_name["state directory"]["advice"]


@pytest.mark.process
def test_places_and_limits_that_will_not_do_are_problems(no_peer):
    """A directory that others can enter, a file in place of one, and too few descriptors."""
    shared, file = no_peer / "shared", no_peer / "file"
    shared.mkdir(mode=0o755)
    file.touch()
    places = {
        "CMDC_RUNTIME_DIR": str(shared),
        "CMDC_STATE_DIR": str(file / "state"),
        "TMPDIR": str(no_peer),
    }
    status, by_name = doctor_in(places, soft_files=256)

    assert status == 1
    assert "chmod 700" in by_name["runtime directory"]["advice"]
    assert "journal" in by_name["state directory"]["advice"]
    assert "ulimit -n" in by_name["open files"]["advice"]
    assert by_name["temporary files"]["found"].startswith(str(no_peer))
    assert by_name["temporary files"]["status"] == "ok"
