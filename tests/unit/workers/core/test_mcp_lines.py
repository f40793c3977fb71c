"""Lines of MCP servers that decoders do not take as they are."""

import time

import pytest

from workers.core.mcp_lines import ID_BYTES_MAX, TOKENS_MAX, mended_line, unread


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


HEAD = b'{"jsonrpc": "2.0", '


@pytest.mark.parametrize(
    ("line", "own"),
    [
        (HEAD + b'"id": 7, "result": {"content": [{"type": "text", "text": "half', 7),
        (HEAD + b'"id":7,"result":[' + b"9" * 5000 + b"]}", 7),
        (HEAD + b'"id":7,"result":' + b"[" * 3000 + b"]" * 3000 + b"}", 7),
        (HEAD + b'"result":' + b"[" * 3000 + b"]" * 3000 + b', "id": 7}', 7),
        (HEAD + rb'"result": {"id": 8, "a": "\"}{[id\\"}, "id": 7}', 7),
        (b' {"id": -7, "jsonrpc": "2.0", "result": NaN}', -7),
        (HEAD + b'"id": "a7", "error": {', "a7"),
        (HEAD + rb'"id": "\u0061", "error": {', "a"),
        (HEAD + b'"id": 7', 7),
    ],
)
def test_whose_answer_a_line_was_to_be_is_found(line, own):
    """Of what cannot be read at all, wherever the id stands; what lies deeper is not looked at."""
    found = unread(line)

    assert found.id == own
    assert found.under("x") == b" " + line[: found.begin] + b'"x"' + line[found.end :]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"starting up",
        b'[7, "id": 7, "jsonrpc": "2.0", "result": ',
        b'{"id": 7, "result": ',
        HEAD,
        HEAD + b'"result": ',
        HEAD + b'"id": 7, "method": "elicitation/create", "params": {"a": ',
        HEAD + b'"method": {}, "id": 7, ',
        HEAD + b'"id": true, "result": [',
        HEAD + b'"id": null, "result": [',
        HEAD + b'"id": {"id": 7}, "result": [',
        HEAD + b'"id": 7.5, "result": [',
        HEAD + b'"id": ' + b"7" * 5000 + b', "result": [',
        HEAD + b'"id": "7',
        HEAD + b'"id": "\xff", "result": [',
        HEAD + rb'"id": "\ud800", "result": [',
        HEAD + b'"id": "' + b"7" * ID_BYTES_MAX + b'", "result": [',
        HEAD + b'"result": ' + b"[" * TOKENS_MAX + b"]" * TOKENS_MAX + b', "id": 7}',
    ],
)
def test_what_is_no_answer_or_does_not_say_is_none(line):
    """A request of the server's may have the id of one of ours."""
    assert unread(line) is None


@pytest.mark.parametrize("filling", [b'"', b"\\", b'\\"', b"[", b'":', b"a ", b'a"\n'])
def test_a_line_of_any_kind_is_looked_over_in_bounded_time(filling):
    """It takes time that grows as the line does, and of many tokens no more than some."""
    line = HEAD + b'"result": "' + filling * (2**24 // len(filling))
    begun_s = time.perf_counter()

    assert unread(line) is None
    assert time.perf_counter() - begun_s < 10.0
