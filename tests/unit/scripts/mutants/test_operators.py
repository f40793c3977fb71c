"""A mutant is the module with one wrong in it, and nothing else changed."""

import ast

import pytest

from scripts.mutants.operators import mutants_of


def wrongs(source):
    """Return each mutant's name and its changed lines."""
    whole = ast.unparse(ast.parse(source)).splitlines()
    found = {}
    for mutant in mutants_of(source):
        lines = ast.unparse(mutant.tree()).splitlines()
        found[mutant.name] = [line.strip() for line in lines if line not in whole]
    return found


@pytest.mark.parametrize(
    ("body", "name", "line"),
    [
        ("return a < b", "a < b with LtE", "return a <= b"),
        ("return a and b", "a and b with Or", "return a or b"),
        ("return not a", "not a without not", "return a"),
        ("return a + 1", "a + 1 with Sub", "return a - 1"),
        ("return a + 1", "1 as 2", "return a + 2"),
        ("return max(a, b)", "max(a, b) with min", "return min(a, b)"),
        ("return True", "True as False", "return False"),
        ("return [c for c in a if c]", "for c of all", "return [c for c in a]"),
        ("return a", "return a as None", "return None"),
        ("a()", "a() left out", "pass"),
        ("raise ValueError(a)", "raise ValueError(a) left out", "pass"),
        ("return a if b else c", "if b negated", "return a if not b else c"),
    ],
)
def test_a_small_wrong(body, name, line):
    """Each is one that a person could write."""
    found = wrongs(f"def f(a, b):\n    {body}\n")

    assert found[f"f: {name}"] == [line]


def test_an_entry_of_a_table_can_be_missing():
    """Each by its key; that a number in it is another one is no wrong that a test should see."""
    found = wrongs("LIMITS = {'soft': 10, 'hard': 20}\n")

    assert found == {
        "<table>: 'soft' left out": ["LIMITS = {'hard': 20}"],
        "<table>: 'hard' left out": ["LIMITS = {'soft': 10}"],
    }


def test_what_cannot_matter_is_left_alone():
    """Logs, assertions, annotations and docstrings make no mutants."""
    source = '''
def f(a: int = None) -> "1 < 2":
    """Return 1 < 2."""
    assert a < 1
    log.info("seen", count=1 + 2)
'''

    assert wrongs(source) == {}


def test_two_of_a_name_are_numbered():
    """So that each can be named in the list of survivors."""
    assert list(wrongs("def f(a, b):\n    a()\n    a()\n")) == [
        "f: a() left out",
        "f: a() left out #2",
    ]
