"""A run by hand counts for the code that it was a proof of."""

import datetime as dt
import json
import re
import sys

import pytest

from benchmarks import report
from scripts.proofs import __main__ as command
from scripts.proofs import ledger
from scripts.proofs.code import files_of
from scripts.proofs.ledger import Proof


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with the code of one proof, ``toy``, and no records."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/play.py").write_text("PLAYED = 1\n")
    table = tmp_path / "proofs.toml"
    table.write_text('[toy]\ncommand = "make toy"\nshows = "it"\ncode = ["code"]\nleast = 10\n')
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    monkeypatch.setattr(ledger, "TABLE", table)
    for module in (ledger, report):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return tmp_path


def play(monkeypatch, script, size):
    """Run the proof as its target does, and return the exit status."""
    line = ["proofs", "toy", "--size", str(size), "--", sys.executable, "-c", script]
    monkeypatch.setattr(sys, "argv", line)
    return command.main()


@pytest.mark.parametrize("status", [0, 3])
def test_a_run_is_kept_as_it_ended(place, monkeypatch, capfd, status):
    """Red or green: its last line, its exit status, what was run."""
    script = f"print('10 played'); print('=== {status} wrong ==='); raise SystemExit({status})"

    assert play(monkeypatch, script, 10) == status
    run = ledger.newest("toy")
    assert (run.status, run.said, run.size) == (status, f"{status} wrong", 10)
    assert run.code == ledger.proofs()["toy"].digest()
    assert "10 played" in capfd.readouterr().out


def test_a_run_that_is_too_small_leaves_no_record(place, monkeypatch, capfd):
    """It counts for nothing, and says from where on it would."""
    assert play(monkeypatch, "print('9 played')", 9) == 0
    assert ledger.runs() == []
    assert "counts from 10 on" in capfd.readouterr().out


def test_the_last_run_is_the_newest_of_all_days(place):
    """Records of several days are one list by time."""
    (place / "results").mkdir()
    for day in ("2026-11-24", "2026-11-23"):
        run = {"at": f"{day}T01:00:00Z", "commit": "a", "load_before": 0, "proof": "toy"}
        run |= {"size": 10, "status": 0, "seconds": 1, "said": day, "code": "c"}
        (place / f"results/{day}-proofs.json").write_text(json.dumps([run]))

    assert [run.said for run in ledger.runs()] == ["2026-11-23", "2026-11-24"]
    assert ledger.newest("toy").said == "2026-11-24"
    assert ledger.newest("another") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda code: (code / "play.py").write_text("PLAYED = 2\n"),
        lambda code: (code / "more.py").write_text(""),
        lambda code: (code / "play.py").write_text("PLAYED = 1.0\n"),
    ],
    ids=["changed", "added", "another number"],
)
def test_changed_code_has_another_digest(place, change):
    """Whatever makes it another proof; what Python leaves beside it does not."""
    proof = Proof(command="make toy", shows="it", code=("code",))
    before = proof.digest()
    (place / "code/__pycache__").mkdir()
    (place / "code/__pycache__/play.pyc").write_bytes(b"x")

    assert proof.digest() == before
    change(place / "code")
    assert proof.digest() != before


def test_code_that_is_gone_is_named(place):
    """A row of the table that names nothing proves nothing."""
    with pytest.raises(FileNotFoundError, match="code/gone"):
        Proof(command="make toy", shows="it", code=("code/gone",)).digest()


@pytest.mark.parametrize(
    "same",
    [
        "PLAYED = 1  # once\n",
        '"""A play."""\n\nPLAYED = 1\n',
        "from house import it\n\nPLAYED = 1\n",
    ],
    ids=["a comment", "a docstring", "an import"],
)
def test_what_changes_no_proof_has_the_same_digest(place, same):
    """Its words and the places that it imports from may move with the product."""
    proof = Proof(command="make toy", shows="it", code=("code",))
    before = proof.digest()
    (place / "code/play.py").write_text(same)

    assert proof.digest() == before


PLAY = """
import os
from supervisor.nursery import Nursery

def bury(house, last=None):
    with Nursery(house) as nursery:
        os.kill(nursery.pid, last)
        return print(nursery.doze(slow=last), house, f"{house} is dead", "supervisor.nursery")
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nursery", "Zygote"),
        ("nursery", "zygote"),
        ("supervisor.nursery", "supervisor.processes.zygote"),
        ("bury", "reap"),
        ("slow", "is_slow"),
    ],
)
def test_another_name_makes_no_other_proof(place, old, new):
    """Of a module, also in a text, a class, a function, a variable or an argument."""
    proof = Proof(command="make toy", shows="it", code=("code",))
    (place / "code/play.py").write_text(PLAY)
    before = proof.digest()
    (place / "code/play.py").unlink()
    (place / "code/game.py").write_text(re.sub(rf"\b{re.escape(old)}\b", new, PLAY))

    assert proof.digest() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("print(nursery", "print(house"),
        (", house,", ", last,"),
        ("os.kill", "os.killpg"),
        ("print(", "repr("),
        ("last=None", "house=None"),
        ("is dead", "lives"),
        ("def bury", "async def bury"),
    ],
)
def test_another_thing_makes_another_proof(place, old, new):
    """One name in the place of another, what others named, a text, the form of a statement."""
    proof = Proof(command="make toy", shows="it", code=("code",))
    (place / "code/play.py").write_text(PLAY)
    before = proof.digest()
    changed = PLAY.replace(old, new)
    (place / "code/play.py").write_text(changed)

    assert changed != PLAY
    assert proof.digest() != before


def write(place, files):
    """Write files below a folder."""
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def test_what_a_proof_imports_belongs_to_it(tmp_path):
    """Whatever it is, but the product, and what keeps the records."""
    write(
        tmp_path,
        {
            "scripts/toy/__init__.py": "",
            "scripts/toy/play.py": "from scripts.shared import it\nfrom supervisor import daemon\n",
            "scripts/toy/table.toml": "",
            "scripts/toy/page.md": "",
            "scripts/shared.py": "import scripts.far\nfrom benchmarks.report import append\n",
            "scripts/far.py": "def late():\n    from tests import stage\n",
            "scripts/other.py": "",
            "tests/stage.py": "",
            "benchmarks/report.py": "",
            "supervisor/daemon.py": "",
        },
    )
    found = files_of(tmp_path, ["scripts/toy"])

    assert {str(path.relative_to(tmp_path)) for path in found} == {
        *("scripts/toy/__init__.py", "scripts/toy/play.py", "scripts/toy/table.toml"),
        *("scripts/shared.py", "scripts/far.py", "tests/stage.py"),
    }


def test_what_pytest_imports_for_a_test_belongs_to_it(tmp_path):
    """Each conftest of the folders above, with what that imports; of a folder only what counts."""
    write(
        tmp_path,
        {
            "tests/conftest.py": "",
            "tests/fault/conftest.py": "from tests.fault.tally import Tally\n",
            "tests/fault/tally.py": "",
            "tests/fault/test_short.py": "",
            "tests/fault/test_full.py": "FULL = 1\n",
            "tests/unit/conftest.py": "",
        },
    )
    found = files_of(tmp_path, ["tests/fault"], "FULL")

    assert {str(path.relative_to(tmp_path / "tests")) for path in found} == {
        *("conftest.py", "fault/conftest.py", "fault/tally.py", "fault/test_full.py"),
    }


NOTE = "2026-11-24: on purpose"
TODAY = dt.date(2026, 11, 30)
RED = {"proofs 2026-11-24T01:00:00Z": "known"}


@pytest.mark.parametrize(
    ("status", "is_old", "noted", "problem"),
    [
        (0, False, {}, None),
        (0, True, {}, "older than its code"),
        (0, True, {"proofs toy is CODE": NOTE}, None),
        (0, True, {"proofs toy is CODE": "2026-11-22: too long ago"}, "older than its code"),
        (0, True, {"proofs toy is CODE": "of no day"}, "older than its code"),
        (0, True, {"proofs toy is another": NOTE}, "older than its code"),
        (1, False, {}, "failed at 2026-11-24T01:00:00Z: said"),
        (1, False, RED, None),
        (1, True, RED, "older than its code"),
        (1, True, {"proofs toy is CODE": NOTE}, "failed at 2026-11-24T01:00:00Z: said"),
        (None, False, {}, "never played"),
        (None, False, {"proofs never toy": "because"}, "never played"),
        (None, False, {"proofs never toy": NOTE}, None),
    ],
)
def test_a_note_excuses_what_it_is_about(place, status, is_old, noted, problem):
    """No run with a day and a reason; a red run of this code; for some days one of code like it."""
    proof = ledger.proofs()["toy"]
    code = proof.digest()
    noted = {key.replace("CODE", code): note for key, note in noted.items()}
    run = None if status is None else ledger.Run(
        at="2026-11-24T01:00:00Z", commit="a", load_before=0, proof="toy", size=10,
        status=status, seconds=1, said="said", code="old" if is_old else code,
    )  # fmt: skip
    found = ledger.problem_of("toy", proof, run, noted, TODAY)

    assert found is None if problem is None else problem in found
