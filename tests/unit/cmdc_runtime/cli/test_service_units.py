"""Unit files as text: filled in, signed, and what a person has changed is seen."""

import pytest

from cmdc_runtime.cli.service import UnitOrigin, command_line, filled_in, origin_of, signed
from cmdc_runtime.errors import UsageError

TEMPLATE = "# why\n[Service]\nUser=cmdc\nExecStart=/bin/true\nExecStartPre=/bin/false\n"


def test_settings_are_filled_in():
    """Each setting replaces its line, and everything else stays as it is."""
    found = filled_in(TEMPLATE, {"ExecStart": "/a -b", "User": "me"})

    assert found == "# why\n[Service]\nUser=me\nExecStart=/a -b\nExecStartPre=/bin/false\n"


def test_a_setting_that_the_template_has_not_is_a_bug():
    """A value that went nowhere would be missed on somebody's machine only."""
    with pytest.raises(ValueError, match="not enough values"):
        filled_in(TEMPLATE, {"Group": "me"})


@pytest.mark.parametrize(
    ("change", "origin"),
    [
        (lambda text: text, UnitOrigin.INSTALLED),
        (lambda text: text + "\n", UnitOrigin.CHANGED),
        (lambda text: text.replace("cmdc\n", "root\n"), UnitOrigin.CHANGED),
        (lambda text: text.partition("\n")[2], UnitOrigin.FOREIGN),
        (lambda text: text.replace("sha256", "sha1"), UnitOrigin.FOREIGN),
        (lambda _text: TEMPLATE, UnitOrigin.FOREIGN),
        (lambda _text: "", UnitOrigin.FOREIGN),
    ],
    ids=["untouched", "a line more", "another value", "no mark", "no hash", "foreign", "empty"],
)
def test_what_a_person_has_changed_is_seen(change, origin):
    """The hash is of all that follows it."""
    assert origin_of(change(signed(TEMPLATE))) is origin


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["/opt/cmdc/bin/python3.11", "-P", "-m", "x"], "/opt/cmdc/bin/python3.11 -P -m x"),
        (["/my venv/python", "a b"], '"/my venv/python" "a b"'),
        (["/100%/python", "$HOME"], '/100%%/python "$$HOME"'),
        (["/p", 'say "hi"', "a\\b", ""], '/p "say \\"hi\\"" "a\\\\b" ""'),
    ],
    ids=["plain", "blanks", "specifiers", "quotes"],
)
def test_words_are_quoted_as_systemd_reads_them(words, line):
    """What means something in a unit file loses its meaning."""
    assert command_line(words) == line


@pytest.mark.parametrize("words", [["python"], ["/a$b/python"], ["/p", "a\nb"]])
def test_what_cannot_stand_in_a_unit_is_refused(words):
    """A relative program, one with a variable's sign, and a line break have no spelling."""
    with pytest.raises(UsageError):
        command_line(words)
