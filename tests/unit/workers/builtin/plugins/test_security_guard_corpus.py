"""The security guard against a corpus of evasions, and of ordinary calls that it must let pass.

Each case of ``tests/corpora/security_guard.toml`` is one call with the guard's default options, in
a working folder that holds ``files`` and ``links``. A case that gets through says why.
"""

import base64
import tomllib
from pathlib import Path

import pytest

from cmdc_runtime.extensions.actions import BlockTool
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from workers.builtin.plugins.security_guard import SecurityGuard

CORPUS = Path(__file__).parents[4] / "corpora" / "security_guard.toml"
CASES = tomllib.loads(CORPUS.read_text(encoding="utf-8"))["case"]
EVASIONS = [case for case in CASES if case["outcome"] != "allowed"]
KEYS = {"name", "technique", "tool", "args", "files", "links", "outcome", "why"}
EVASIONS_MIN = 75
HARMLESS_MIN = 40


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Make a home with secrets and a working folder beside it."""
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("secret")
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return work


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case_has_its_outcome(case, place):
    """Blocked where that can be known, let pass where it is harmless, and honest about the rest."""
    for file in case.get("files", []):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_text("content")
    for link, target in case.get("links", {}).items():
        (place / link).symlink_to(target)
    call = BeforeTool(case["tool"], "call_1", case["args"])
    answer = SecurityGuard().before_tool(
        call, PluginContext(session_id="s-1", working_dir=str(place))
    )
    blocks = [action.reason for action in answer if isinstance(action, BlockTool)]

    assert bool(blocks) == (case["outcome"] == "blocked"), blocks


def test_corpus_is_well_made():
    """Names are unique, every case is of a known form, and what gets through says why."""
    names = [case["name"] for case in CASES]

    assert len(set(names)) == len(names)
    assert [case["name"] for case in CASES if not set(case) <= KEYS] == []
    assert {case["outcome"] for case in CASES} == {"blocked", "gets_through", "allowed"}
    assert [case["name"] for case in EVASIONS if not case.get("technique")] == []
    explained = {case["name"] for case in CASES if case.get("why", "").endswith(".")}
    assert explained == {case["name"] for case in CASES if case["outcome"] == "gets_through"}


def test_corpus_is_large_enough():
    """Evasions of many kinds, most of them blocked, and enough that is harmless."""
    blocked = [case for case in EVASIONS if case["outcome"] == "blocked"]

    assert len(EVASIONS) >= EVASIONS_MIN
    assert len(CASES) - len(EVASIONS) >= HARMLESS_MIN
    assert len(blocked) >= 0.75 * len(EVASIONS)
    assert len({case["technique"] for case in EVASIONS}) >= 15


def test_encoded_cases_are_what_they_seem():
    """The corpus hides the path that it claims to hide."""
    assert base64.b64decode("Y2F0IC5lbnY=") == b"cat .env"
    assert base64.b64decode("LmVudg==") == b".env"
