"""Keys of sessions: a file for each, closed to others, that the next daemon reads."""

import pytest

from cmdc_runtime.ids import SessionId
from cmdc_runtime.runtime_dir import KEYS
from supervisor.adapters.keyring import FILE_BYTES_MAX, Keyring

ONE, TWO = SessionId("one"), SessionId("two:2@x")
OURS = {"openai": "sk-1", "groq:m": "sk-2"}


def put(keyring, session_id, keys):
    keyring.put(session_id, keys)


def test_the_next_keyring_has_what_was_put(tmp_path):
    """Files and folder are the user's alone."""
    first = Keyring(tmp_path)
    put(first, ONE, {"openai": "old"})
    put(first, ONE, OURS)
    put(first, TWO, OURS)
    first.drop(TWO)

    second = Keyring(tmp_path)

    assert (first.keys_of(ONE), second.keys_of(ONE), second.keys_of(TWO)) == (OURS, OURS, {})
    assert [path.name for path in (tmp_path / KEYS).iterdir()] == [ONE]
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / KEYS, tmp_path / KEYS / ONE)]
    assert modes == [0o700, 0o600]


def test_a_session_without_keys_leaves_those_that_it_had(tmp_path):
    """Who resumes a parked one may have none."""
    keyring = Keyring(tmp_path)
    put(keyring, ONE, OURS)
    put(keyring, ONE, {})

    assert keyring.keys_of(ONE) == OURS


def test_what_belongs_to_no_session_goes(tmp_path):
    """Also after a daemon that died before it could."""
    keyring = Keyring(tmp_path)
    put(keyring, ONE, OURS)
    put(keyring, TWO, OURS)

    Keyring(tmp_path).keep_only({TWO})

    assert [path.name for path in (tmp_path / KEYS).iterdir()] == [TWO]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one", b"{"),
        ("one", b"[]"),
        ("one", b'{"openai": 3}'),
        (".one", b'{"openai": "sk"}'),
        ("one", b'{"openai": "' + b"x" * FILE_BYTES_MAX + b'"}'),
    ],
    ids=["cut", "another form", "no text", "unfinished", "too long"],
)
def test_a_file_that_is_none_of_ours_is_removed(tmp_path, name, text):
    """A daemon begins with it as if it were not there."""
    (tmp_path / KEYS).mkdir()
    (tmp_path / KEYS / name).write_bytes(text)

    assert Keyring(tmp_path).keys_of(ONE) == {}
    assert list((tmp_path / KEYS).iterdir()) == []


def test_keys_that_cannot_be_written_count_all_the_same(tmp_path):
    """The session works; only the next daemon will not have them."""
    (tmp_path / KEYS).write_text("no folder")
    keyring = Keyring(tmp_path)

    put(keyring, ONE, OURS)

    assert keyring.keys_of(ONE) == OURS
    keyring.drop(ONE)
    assert keyring.keys_of(ONE) == {}
