"""Fault points: what a plan says, who is killed when, and that nothing happens without one."""

import signal
import subprocess
import sys

import msgspec
import pytest

from cmdc_runtime import faults
from cmdc_runtime.faults import FaultStep, PlanError


class Record(msgspec.Struct):
    """A record as it goes over the wire."""

    kind: str


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Have this process look for plans in a folder."""
    monkeypatch.setattr(faults, "_folder", tmp_path)
    return tmp_path


@pytest.fixture
def victim():
    """A process that waits to be killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as found:
        yield found
        found.kill()


def plan(folder, *lines, session_id="s"):
    """Write the plan of a session."""
    (folder / f"{session_id}.plan").write_text("".join(f"{line}\n" for line in lines))


def left(folder, session_id="s"):
    """Return the lines of a plan that are left."""
    return (folder / f"{session_id}.plan").read_text().splitlines()


def test_a_step_is_read_as_it_is_written():
    """And what is none is refused with what one looks like."""
    step = FaultStep("append.*tool_started*.before", 2, "agent")

    assert str(step) == "append.*tool_started*.before:2=agent"
    assert faults.parse(str(step)) == step


@pytest.mark.parametrize("line", ["", "append", "append=agent", "append:0=agent", "a:x=b", ":1=b"])
def test_what_is_no_step_is_refused(line):
    """The error names the line."""
    with pytest.raises(PlanError, match="<point>:<pass>=<victim>"):
        faults.parse(line)


def test_a_write_is_called_by_its_kinds():
    """Each once, in their order, with the outcomes; one without anything has a name, too."""
    assert faults.written_kinds(["said", "turn_spent", "said"], [1]) == "said+turn_spent+outcome"
    assert faults.written_kinds([], []) == "nothing"


def test_a_victim_dies_at_its_pass(folder, victim):
    """Passes before count down; other points, sessions and victims do not."""
    plan(folder, "append.*said*.after:2=agent", "ended.before:1=agent")
    victims = {"agent": lambda: (victim.pid,)}
    faults.pass_point("other", "append.said.after", victims)
    faults.pass_point("s", "append.said.before", victims)
    faults.pass_point("s", "append.said.after", {"daemon": lambda: (victim.pid,)})
    faults.pass_point("s", "append.said.after", {"agent": lambda: ()})
    assert left(folder)[0] == "append.*said*.after:2=agent"

    faults.pass_point("s", "append.said+turn_spent.after", victims)
    assert left(folder) == ["append.*said*.after:1=agent", "ended.before:1=agent"]
    assert victim.poll() is None

    faults.pass_point("s", "append.said.after", victims)
    assert victim.wait(10) == -signal.SIGKILL
    assert left(folder) == ["ended.before:1=agent"]


def test_a_plan_that_records_notes_what_is_passed(folder):
    """In order, and nobody dies, however often."""
    plan(folder, faults.RECORD)
    faults.fault_point("s", [Record("said"), Record("turn_spent")], (), "before")
    faults.pass_point("s", "accept.after", {})

    passed = (folder / "s.passed").read_text().splitlines()
    assert passed == ["agent.said+turn_spent.before", "accept.after"]


def test_nothing_happens_without_a_plan(folder):
    """Nor where all steps of it were played."""
    faults.fault_point("s", [Record("said")], (), "before")
    plan(folder)
    faults.fault_point("s", [Record("said")], (), "before")

    assert [path.name for path in folder.iterdir()] == ["s.plan"]


def test_points_are_off_unless_the_process_has_a_plan(monkeypatch):
    """No file is looked for, and no name is made."""
    monkeypatch.setattr(faults, "_folder", None)

    assert not faults.is_armed()
    faults.fault_point("s", [None], (), "before")
    faults.pass_point("s", "append.said.before", {"agent": lambda: 1 / 0})
