"""Whatever is put into a page stays where it was put."""

import pytest

from scripts.reference.markdown import (
    NOTICE,
    code,
    codes,
    page,
    part_of,
    prose,
    table,
    with_part,
)


def test_a_page_begins_with_its_notice():
    """Then come its title, its introduction and its blocks."""
    assert page("T", "About.", "one", "two").split("\n\n") == [
        NOTICE, "# T", "About.", "one", "two\n",
    ]  # fmt: skip


def test_a_cell_holds_any_text():
    """Bars and line ends would break the row."""
    text = table(("a", "b"), [("x | y", "one\ntwo")])

    assert text.splitlines() == ["| a | b |", "| --- | --- |", "| x \\| y | one two |"]


def test_nothing_is_no_code():
    """An empty cell stays empty."""
    assert (code(""), code("x"), codes([])) == ("", "`x`", "")


def test_repeated_codes_are_counted():
    """The order stays, since it means something."""
    assert codes(["a", "a", "b", "a"]) == "`a` x 2, `b`, `a`"


def test_a_docstring_becomes_one_line():
    """Its code is Markdown's."""
    assert prose("One ``x``.\n\n    Two.") == "One `x`. Two."
    assert prose(None) == ""


def test_a_part_of_a_page_is_made_anew(tmp_path):
    """What is written by hand around it stays to the letter."""
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- list:begin -->\nold\n<!-- list:end -->\nbehind\n")
    path.write_text(with_part(path, "list", "new"))

    assert part_of(path, "list") == "new"
    assert path.read_text() == "before\n<!-- list:begin -->\nnew\n<!-- list:end -->\nbehind\n"


def test_a_page_without_its_markers_is_named(tmp_path):
    """Nothing is written to a page whose part cannot be found."""
    path = tmp_path / "page.md"
    path.write_text("<!-- list:begin -->\n")

    with pytest.raises(ValueError, match=r"page\.md needs the line <!-- list:end -->"):
        with_part(path, "list", "new")
