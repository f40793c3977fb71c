"""What a command's own words write, and what its own decoders make of them."""

import pytest

from workers.builtin.guarding.decoded_text import decoded, printed
from workers.builtin.shell.reader import read


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo -ne a '\\x2e' b", "a . b"), ("printf %s.%s a b", "a.b"),
        ("printf '%s\\n' a b", "a\nb\n"), ("printf '%%%b' '\\056'", "%."), ("printf", ""),
        ("cat x", ""), ("echo '\\u002e\\q'", ".\\q"), ("printf x a b", "x"),
    ],
)  # fmt: skip
def test_printed(command, text):
    """What the shell's own words write is known."""
    assert printed(read(command).details[0]) == text


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo LmVudg== | base64 -d", ".env"),
        ("base64 -d <<< LmVudg", ".env"),
        ("echo 2e656e76 | xxd -r -p", ".env"),
        ("echo '2e 65:6e 76' | xxd -r -p", ".env"),
        ("rev <<< vne.", ".env"),
    ],
)
def test_decoded(command, text):
    """Among other things, what the decoder would write."""
    assert text in list(decoded(read(command)))


def test_nothing_is_decoded_without_a_decoder():
    """Words that look encoded are words."""
    assert list(decoded(read("echo LmVudg=="))) == []
