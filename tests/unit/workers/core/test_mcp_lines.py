"""Lines of MCP servers whose text is no UTF-8."""

import pytest

from workers.core.mcp_lines import mended_line


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        (rb'{"a": "y\ud800z"}', '{"a": "y�z"}'),
        (rb'{"\udc00": 1}', '{"�": 1}'),
        (rb'{"a": ["\ud83d\ude00", "\ude00\ud83d"]}', '{"a": ["😀", "��"]}'),
        (b'{"a": "\xff"}', '{"a": "�"}'),
        (b'{"a": "\xc3\xa9"}', '{"a": "é"}'),
    ],
)
def test_what_is_no_character_is_replaced(line, mended):
    """Halves that belong together are the character that they mean."""
    assert mended_line(line).decode() == mended


@pytest.mark.parametrize("line", [b"", b"starting up", b'{"a": ', b"[" * 100_000])
def test_what_is_no_json_is_none(line):
    """What a server prints beside its messages is no message."""
    assert mended_line(line) is None
