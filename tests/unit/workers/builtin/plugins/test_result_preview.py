"""The preview of a kept result: its parts, the way to the rest, and lines that can be read."""

import pytest

from workers.builtin.plugins.large_result_offload import LINE_CHARS_MAX, preview, readable

LARGE = "".join(f"line {number:06}\n" for number in range(10_000))
TOOLS = ("read_file", "grep", "fetch")


def test_a_preview_is_the_beginning_and_the_end():
    """Of whole lines, with what is left out counted and the way to the rest."""
    shown = preview("/large_tool_results/a", LARGE, TOOLS).split("\n")
    cut = next(at for at, line in enumerate(shown) if "left out" in line)
    body = shown[4:cut], shown[cut + 1 : -1]
    left_out = int(shown[cut].split()[1].replace(",", ""))

    assert shown[0].endswith(
        "120,000 characters in 10,000 lines. All of it is kept as /large_tool_results/a"
    )
    assert shown[1] == (
        'Read it in parts: read_file(path="/large_tool_results/a", offset=1, limit=200).'
    )
    assert shown[2] == 'Search it: grep(pattern="...", path="/large_tool_results/a").'
    assert "\n".join(body[0]) in LARGE
    assert LARGE.startswith("\n".join(body[0]))
    assert LARGE.endswith("\n".join(body[1]) + "\n")
    assert sum(len(line) + 1 for part in body for line in part) + left_out == len(LARGE)
    assert shown[-1] == "--- end ---"


@pytest.mark.parametrize(
    ("tools", "hints"),
    [
        (("read_file",), ["Read it"]),
        (("grep",), ["Search it"]),
        (("fetch",), ["No tool of this session reads it."]),
    ],
)
def test_only_tools_that_are_there_are_named(tools, hints):
    """A model can't use the others."""
    shown = preview("/p", LARGE, tools).split("\n")[1:]
    said = shown[: shown.index("--- first part ---")]

    assert [line[: len(words)] for line, words in zip(said, hints, strict=True)] == hints


def test_one_endless_line_is_previewed_too():
    """It is cut where it has to be."""
    shown = preview("/p", "x" * 100_000, TOOLS)

    assert len(shown) < 3500
    assert "97,000 characters left out" in shown


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\nb\r\n", "a\nb\r\n"),
        ("a\0b", "a␀b"),
        ("x" * LINE_CHARS_MAX, "x" * LINE_CHARS_MAX),
        ("x" * LINE_CHARS_MAX + "\ny", "x" * LINE_CHARS_MAX + "\ny"),
        ("x" * (LINE_CHARS_MAX + 1), "x" * LINE_CHARS_MAX + "\nx"),
        ("ü" * (2 * LINE_CHARS_MAX), "ü" * LINE_CHARS_MAX + "\n" + "ü" * LINE_CHARS_MAX),
    ],
)
def test_what_is_kept_can_be_read_by_lines(text, kept):
    """Nothing is left out of it."""
    assert readable(text) == kept
