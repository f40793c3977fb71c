"""Which tests a change needs is found by what they import and what they are called."""

import pytest

from scripts.quick import QUICK, SLOW, quick_tests


@pytest.mark.parametrize(
    ("changed", "folders", "needed"),
    [
        ("tests/unit/scripts/test_quick.py", QUICK, "tests/unit/scripts/test_quick.py"),
        ("workers/core/budget.py", QUICK, "tests/unit/workers/core/test_budget.py"),
        ("supervisor/adapters/hub.py", SLOW, "tests/integration/supervisor/test_hub.py"),
        ("cmdc_runtime/events/people.py", QUICK, "tests/unit/workers/core/test_approvals_asked.py"),
        ("scripts/proofs/ledger.py", QUICK, "tests/unit/scripts/proofs/test_ledger.py"),
    ],
    ids=["itself", "by name", "by import", "handed on by its package", "a script"],
)
def test_what_belongs_to_a_file(changed, folders, needed):
    """A test belongs to what it is, is named for, or imports."""
    assert needed in quick_tests([changed], folders)


def test_a_module_that_no_test_imports_is_tested_by_its_users():
    """One step away is better than nothing."""
    needed = quick_tests(["workers/performers/toolhost_link.py"], QUICK)

    assert "tests/unit/workers/performers/test_tools.py" in needed


def test_nothing_belongs_to_prose():
    """A page needs no test."""
    assert quick_tests(["README.md", "docs/wire.md"], (*QUICK, *SLOW)) == set()
