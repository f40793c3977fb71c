"""The corpus of ways around the approval by people, and of commands that need none."""

import tomllib
from pathlib import Path

import pytest

from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from workers.builtin.plugins.human_approval import HumanApproval

ROOT = Path(__file__).parents[5]
CASES = tomllib.loads((ROOT / "tests/corpora/human_approval.toml").read_text())["case"]
EVASIONS = [case for case in CASES if case["outcome"] != "passes"]
FIELDS = {"name", "technique", "command", "outcome", "always_approved", "why"}
EVASIONS_MIN = 60
HARMLESS_MIN = 30


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_person_is_asked_or_not(case):
    """What is claimed of each command is so, of those that get through too."""
    approved = frozenset(("shell", family) for family in case.get("always_approved", ()))
    context = PluginContext(session_id="s-1", always_approved=approved)
    call = BeforeTool("shell", "call_1", {"command": case["command"]})

    is_asked = HumanApproval().before_tool(call, context) is not None

    assert is_asked is (case["outcome"] == "asked")


def test_corpus_is_large_and_well_formed():
    """Names are unique, and whatever gets through says why."""
    names = [case["name"] for case in CASES]

    assert len(names) == len(set(names))
    assert len(EVASIONS) >= EVASIONS_MIN
    assert len(CASES) - len(EVASIONS) >= HARMLESS_MIN
    assert {key for case in CASES for key in case} <= FIELDS
    assert all(("why" in case) is (case["outcome"] == "gets_through") for case in CASES)
