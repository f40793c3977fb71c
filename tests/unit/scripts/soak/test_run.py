"""What a soak says of what it found."""

import pytest

import scripts.soak.__main__ as program
from scripts.soak.run import Result, Settings, Violation, records_of
from scripts.soak.tools import EFFECTS_FILE, twice_done
from scripts.soak.wrongs import Problem, Wrong

LOG = """\
2026-11-22T03:00:00.000001Z [info     ] daemon.started   pid=7
2026-11-22T03:00:01.000001Z [error    ] tool.crashed     tool=stumble
Traceback (most recent call last):
RuntimeError: unexpected
2026-11-22T03:00:02.000001Z [warning  ] frame.refused    reason=odd
"""


def test_a_log_is_read_by_its_lines():
    """A traceback belongs to the line above it."""
    found = records_of(LOG)

    assert [(level, name) for level, name, _ in found] == [
        ("info", "daemon.started"),
        ("error", "tool.crashed"),
        ("warning", "frame.refused"),
    ]
    assert found[1][2].endswith("RuntimeError: unexpected")


@pytest.mark.parametrize("place", [0, 1, 2, 4, 5])
def test_what_python_complains_of_is_an_error(place):
    """Wherever it stands, it is nobody else's."""
    said = "Exception ignored in: x"
    lines = LOG.splitlines()
    found = records_of("\n".join([*lines[:place], said, *lines[place:]]))

    assert [text.splitlines()[0] for level, name, text in found if not name] == [said]


def test_an_effect_that_happened_twice_is_found(tmp_path):
    """Each effect writes its serial down, once."""
    assert twice_done(tmp_path) == []
    (tmp_path / EFFECTS_FILE).write_text("a\nb\na\n")

    assert twice_done(tmp_path) == ["a"]


STUCK = Violation("3-7", Problem(Wrong.PROMPT, "stuck"), ("1 the event",))


@pytest.mark.parametrize("violations", [[], [STUCK]])
def test_a_violation_is_reported_and_fails_the_run(monkeypatch, capsys, violations):
    """With its scenario's seed and its session's last events; the last line is the counts."""
    result = Result(Settings(scenarios=2, seed=3), violations=violations)
    monkeypatch.setattr(program, "soak", lambda _settings: result)
    monkeypatch.setattr("sys.argv", ["soak", "--no-save"])
    status = program.main()
    *printed, last = capsys.readouterr().out.splitlines()

    assert status == len(violations)
    assert (
        printed
        == [
            "3-7: lost_acknowledged_prompts: stuck",
            "    1 the event",
            "to play it alone: make soak ONLY=3-7",
        ][: 3 * status]
    )
    assert last.startswith("seed 3: 0 scenarios")
    assert f"{status} lost acknowledged prompts, 0 doubled write tools" in last


def test_one_scenario_can_be_played_alone():
    """By its seed; otherwise there are as many as was asked for."""
    assert Settings(scenarios=3, seed=2).names == ["2-1", "2-2", "2-3"]
    assert Settings(scenarios=3, seed=2, only=("7-4",)).names == ("7-4",)
