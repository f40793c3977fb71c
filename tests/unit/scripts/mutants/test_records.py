"""A record holds while what it is true of stays as it is, and no longer."""

import pytest
from msgspec.structs import replace

from scripts.mutants import records
from scripts.mutants.belongs import Module
from scripts.mutants.records import Found, Record


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A tree with a module and two files of tests, and a place for records."""
    for name in ("module.py", "test_a.py", "test_b.py"):
        (tmp_path / name).write_text(f"AS_IT_WAS = {name!r}\n")
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path / "results")
    monkeypatch.setattr(records, "RESULTS", tmp_path / "results")
    forget()
    yield tmp_path
    forget()


def forget():
    for known in (records.code_of, records.digest_of):
        known.cache_clear()
    for known in (records.whole_code_of, records.whole_digest_of):
        known.cache_clear()


def kept(by, **more):
    module = Module("module.py", ("test_a.py",), ("test_b.py",))
    records.keep(module, Found([f"m{at}" for at in by], by, 1.0), load=0.0, **more)
    return records.newest()["module.py"]


BY = {0: "test_a.py", 1: "test_a.py", 2: "", 3: "test_b.py", 4: "test_a.py"}


def test_what_was_kept_is_read_again(project):
    """Each mutant by its number, and those that live by their names, too."""
    record = kept(BY)

    assert record.holds() == BY
    assert record.survivors == ["m2"]
    assert record.killed == {"test_a.py": "0-1 4", "test_b.py": "3"}


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ("module.py", set()),
        ("test_a.py", {3}),
        ("test_b.py", {0, 1, 4}),
    ],
)
def test_what_has_changed_is_played_again(project, changed, known):
    """All of a module that changed; else what lived, and what the changed tests had noticed."""
    record = kept(BY)
    (project / changed).write_text("ANOTHER = 1\n")
    forget()

    assert set(record.holds()) == known


@pytest.mark.parametrize("moved", ["module.py", "test_a.py"])
def test_what_only_says_or_imports_something_else_is_not_played_again(project, moved):
    """A module that moves changes the imports of many others."""
    record = kept(BY)
    text = (project / moved).read_text()
    (project / moved).write_text(f'"""Moved."""\n\nfrom elsewhere import it\n\n{text}')
    forget()

    assert record.holds() == BY


def test_a_record_of_whole_files_still_holds(project):
    """They were kept by every character, and are true as long as none has changed."""
    tests = {file: records.whole_digest_of(file) for file in ("test_a.py", "test_b.py")}
    record = replace(kept(BY), code=records.whole_code_of("module.py"), tests=tests)

    assert record.holds() == BY
    (project / "test_b.py").write_text("ANOTHER = 1\n")
    forget()
    assert record.holds() == {0: "test_a.py", 1: "test_a.py", 4: "test_a.py"}


def test_what_lives_is_played_again_where_tests_were_left_out(project):
    """They may notice it where they pass by themselves; what others noticed is known."""
    record = kept({0: "test_a.py", 1: ""}, left_out={"test_b.py"})

    assert record.holds() == {0: "test_a.py"}
    assert record.survivors == ["m1"]


def test_what_lives_is_played_again_where_tests_are_new(project):
    """What was noticed stays so."""
    record = kept(BY)

    assert set(record.holds(["test_a.py", "test_b.py"])) == set(BY)
    assert set(record.holds(["test_a.py", "test_b.py", "test_c.py"])) == {0, 1, 3, 4}


def test_tests_that_are_gone_notice_nothing(project):
    """What they had noticed is played again."""
    record = kept(BY)
    (project / "test_b.py").unlink()
    forget()

    assert set(record.holds()) == {0, 1, 4}


def test_the_newest_record_of_a_module_counts(project):
    """Earlier ones stay in the file, as all results do."""
    kept(BY)

    assert kept(dict.fromkeys(range(2), "test_b.py")).killed == {"test_b.py": "0-1"}


def test_operators_are_part_of_what_is_played(project, monkeypatch):
    """Other wrongs have other numbers."""
    record = kept(BY)
    monkeypatch.setattr(records.operators, "__file__", str(project / "test_a.py"))
    forget()

    assert isinstance(record, Record)
    assert record.holds() == {}
