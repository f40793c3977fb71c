"""Which distributions a revision needs, which decides whether it gets an environment of its own."""

import pytest

from benchmarks.compare import dependencies

PROJECT = """
[project]
name = "ours"
dependencies = ["b>=1", "a"]

[project.optional-dependencies]
wire = ["w"]
more = ["ours[wire]", "m"]
test = ["ours[more,wire]", "t>=2"]
plot = ["p"]
"""


def test_the_extra_of_tests_counts_with_what_it_names():
    """Other extras are not installed, so they may differ."""
    assert dependencies(PROJECT) == ["a", "b>=1", "m", "t>=2", "w"]


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ('"a"', '"a>=2"', False),
        ('wire = ["w"]', 'wire = ["w<2"]', False),
        ('plot = ["p"]', 'plot = ["p<2"]', True),
        ('name = "ours"', 'name = "ours"\ndescription = "x"', True),
    ],
)
def test_only_what_is_installed_makes_a_difference(before, after, is_same):
    """A floor or a description that changed needs no new environment."""
    assert (dependencies(PROJECT.replace(before, after)) == dependencies(PROJECT)) is is_same


def test_a_revision_without_a_project_needs_nothing():
    """It is older than its first pyproject.toml."""
    assert dependencies("") == []
