"""Programs of users as type checkers read them: the errors that must come, and no others.

A line of ``programs`` that ends with ``# wrong`` is one that a type checker has to refuse. Nobody
runs these programs.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from cmdc_runtime.events import AnyEvent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = HERE / "programs"
BIN = Path(sys.executable).parent
CHECK_S = 110.0
"""For a machine that does much else; a second or two for one that does not."""
MARK = "# wrong"
MATCH = """
from cmdc_runtime import events

def told(event: events.AnyEvent) -> str:
    match event:
        case {cases}:
            return ""
"""
Errors = set[tuple[str, int]]


def checked(*command: object) -> str:
    """Return what a type checker prints; that it finds something is no failure."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CHECK_S,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    return done.stdout


def by_mypy(*paths: Path) -> dict[tuple[str, int], str]:
    """Return what mypy has against each line, in the settings of this project."""
    lines = checked(BIN / "mypy", "--output", "json", *paths).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        (Path(one["file"]).name, one["line"]): one["message"]
        for one in found
        if one["severity"] == "error"
    }


def by_pyright(*paths: Path) -> dict[tuple[str, int], str]:
    """Return what pyright has against each line, strict."""
    settings = HERE / "pyrightconfig.json"
    command = ("--project", settings, "--pythonpath", sys.executable, "--outputjson")
    found = json.loads(checked(BIN / "basedpyright", *command, *paths))["generalDiagnostics"]
    return {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"]
        for one in found
        if one["severity"] in {"error", "warning"}
    }


def wrong_lines() -> Errors:
    """Return the lines that say of themselves that they are wrong."""
    return {
        (path.name, number)
        for path in PROGRAMS.glob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.rstrip().endswith(MARK)
    }


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_a_type_checker_refuses_what_is_wrong_and_nothing_else(check):
    """Line by line; each mark is there for an error that a user would make."""
    found, wanted = check(*sorted(PROGRAMS.glob("*.py"))), wrong_lines()
    missed, extra = (
        sorted(wanted - found.keys()),
        {one: found[one] for one in found.keys() - wanted},
    )

    assert (missed, extra) == ([], {})


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_a_program_with_a_mark_too_few_is_noticed(check, tmp_path):
    """The two checkers do read the program, with the types of the package."""
    program = tmp_path / "program.py"
    program.write_text("import cmdc_runtime as cmdc\n\ncmdc.create_agent(modle='a:b')\n")

    assert check(program).keys() == {("program.py", 3)}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_a_match_over_all_events_is_exhaustive(check, tmp_path):
    """One event less, and the function may return nothing, which it does not say."""
    names = [f"events.{kind.__name__}()" for kind in get_args(AnyEvent)]
    program = tmp_path / "program.py"

    def problems(cases):
        program.write_text(MATCH.format(cases=" | ".join(cases)))
        return check(program)

    assert problems(names) == {}
    assert problems(names[1:])
