"""Random lives of trees break no rule, and a tree that does break one is found and written down."""

import json

import pytest

import scripts.simulate.__main__ as program
from scripts.simulate.run import Simulation, incident
from supervisor.core.tree.children import Children, GroupRestart, GroupStage
from supervisor.core.tree.specs import Window
from supervisor.core.tree.supervisor import Supervisor

pytestmark = pytest.mark.slow

SCHEDULES = 1_000
FEW = 100
BREAKS_SOON = 150


def test_no_rule_is_broken_in_many_schedules():
    """The daemon's own tree and random ones, whatever their processes do."""
    result = Simulation(1).run(range(SCHEDULES))

    assert result.violations == []
    assert (result.schedules, result.wrong) == (SCHEDULES, 0)
    assert 20 <= result.inputs / SCHEDULES <= 60


def test_a_seed_makes_the_same_schedules():
    """In whatever order they are played, and alone too."""
    simulation, again = Simulation(7), Simulation(7)
    whole = simulation.run(range(FEW))

    assert again.run(reversed(range(FEW))).inputs == whole.inputs
    assert simulation.run(range(FEW, 2 * FEW)).inputs != whole.inputs
    assert simulation.record(5) == again.record(5)


# fmt: off
BREAKS = {
    "a timer stays":            (Children, "forget_timers", lambda *_: None),
    "no budget":                (Window, "charge",        lambda *_: True),
    "a crash is nobody's":      (Children, "report_gone",   lambda *_, **__: None),
    "calls are forgotten":      (Children, "answer_ends",   lambda *_: None),
    "a group is not ended":     (Supervisor, "_end_members",  lambda _, work: to_starts(work)),
    "a group is not started":   (GroupRestart, "is_waiting", property(lambda _: True)),
    "an end is always judged":  (Supervisor, "_stopped",
                                 lambda self, child, reason: self._judge(child, reason, "crash")),
}
# fmt: on
"""What is done to the engine, to see whether anybody sees it."""


def to_starts(work):
    """Have a group restart begin with its starts."""
    work.stage = GroupStage.STARTING


@pytest.mark.parametrize("what", BREAKS)
def test_a_tree_that_breaks_a_rule_is_found(monkeypatch, what):
    """Soon, whichever rule it is."""
    owner, name, broken = BREAKS[what]
    monkeypatch.setattr(owner, name, broken)
    result = Simulation(1).run(range(BREAKS_SOON))

    assert result.wrong > 0
    assert all(one.problems for one in result.violations)


def test_what_was_wrong_is_written_down_and_played_again(monkeypatch, tmp_path, capsys):
    """The file shows each input, what came of it, and where it went wrong."""
    run = ["simulate", "--schedules", str(BREAKS_SOON), "--incidents", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(Window, "charge", lambda *_: True)
        patch.setattr("sys.argv", run)
        assert program.main() == program.WRONG
        *printed, counts = capsys.readouterr().out.splitlines()
        command = next(line for line in printed if "--replay" in line).split()
        patch.setattr("sys.argv", command[2:])
        assert program.main() == program.WRONG
        assert "restarts" in capsys.readouterr().out.split("!!!")[1]
    assert json.loads(counts)["violations"] > 0

    assert program.main.__module__ == "scripts.simulate.__main__"
    monkeypatch.setattr("sys.argv", command[2:])
    assert program.main() == program.WRONG
    assert "then it did" in capsys.readouterr().out


def test_a_run_without_a_fault_ends_with_its_counts(monkeypatch, capsys, tmp_path):
    """As one line for machines."""
    monkeypatch.setattr("sys.argv", ["simulate", "--schedules", "50", "--seed", "2"])
    assert program.main() == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["schedules"], found["violations"], found["seed"]) == (50, 0, 2)

    monkeypatch.setattr("sys.argv", ["simulate", "--replay", str(tmp_path / "none")])
    assert program.main() == program.UNREADABLE
    assert "none" in capsys.readouterr().err


def test_a_tree_that_raises_is_wrong_and_recorded(monkeypatch, tmp_path):
    """The last line of its file is the input that it could not bear."""
    monkeypatch.setattr(Children, "overdue", lambda *_: 1 // 0)
    simulation = Simulation(1)
    violation = simulation.run(range(BREAKS_SOON)).violations[0]
    last = json.loads(incident(simulation, violation, tmp_path).read_bytes().splitlines()[-1])

    assert "ZeroDivisionError" in violation.problems[-1]
    assert (last["input"]["type"], last["input"]["timer"][-1], last["did"]) == ("due", "start", "!")
