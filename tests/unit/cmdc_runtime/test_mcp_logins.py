"""Logins at MCP servers: kept for one user of the machine, replaced as a whole."""

import stat

import pytest

from cmdc_runtime.mcp_logins import FILE_BYTES_MAX, Login, LoginFile, LoginUnreadable, secrets_of

URL = "https://tickets.example.org/mcp"
LOGIN = Login(
    url=URL,
    user="ann",
    tokens={"access_token": "a-1", "refresh_token": "r-1"},
    expires_at_s=5.0,
    client={"client_id": "c", "client_secret": "s-1"},
)


@pytest.fixture(name="file")
def _file(tmp_path):
    return LoginFile(tmp_path, URL, "ann")


def test_what_is_kept_is_there_for_its_user_alone(file):
    """Neither the folder nor the file is open to others, whatever the umask."""
    file.write(LOGIN)

    assert file.read() == LOGIN
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_each_user_and_server_has_a_login_of_its_own(file, tmp_path):
    """Nobody gets another one's."""
    file.write(LOGIN)

    assert LoginFile(tmp_path, URL, "bob").read() is None
    assert LoginFile(tmp_path, f"{URL}/", "ann").read() is None


def test_a_change_is_noticed(file):
    """By whoever has read what was there before."""
    assert file.stamp() is None
    file.write(LOGIN)
    before = file.stamp()
    file.write(LOGIN)

    assert before not in {None, file.stamp()}


@pytest.mark.parametrize("text", [b"", b"{}", b"x" * (FILE_BYTES_MAX + 1), b'{"tokens": "a-1"}'])
def test_a_damaged_file_is_named_and_not_shown(file, text):
    """Its text may have a token in it."""
    file.write(LOGIN)
    file.path.write_bytes(text)

    with pytest.raises(LoginUnreadable, match="is damaged: log in again") as caught:
        file.read()
    assert "a-1" not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(file):
    """So is a link, which may lead anywhere."""
    file.write(LOGIN)
    file.path.chmod(0o640)
    with pytest.raises(LoginUnreadable, match="not this user's alone"):
        file.read()

    moved = file.path.rename(file.path.with_name("moved"))
    moved.chmod(0o600)
    file.path.symlink_to(moved)
    with pytest.raises(LoginUnreadable):
        file.read()


def test_one_at_a_time_renews(file):
    """The next one can when the first is done."""
    held = file.lock()
    other = file.lock()
    held.close()
    later = file.lock()
    later.close()

    assert held is not None
    assert other is None


def test_what_is_forgotten_is_gone(file):
    """There is nothing to forget twice."""
    file.write(LOGIN)
    file.lock().close()

    assert file.remove()
    assert not file.remove()
    assert [*file.path.parent.iterdir()] == []


def test_what_nobody_may_be_shown_has_names_of_secrets():
    """Those are looked for in failures."""
    assert secrets_of(None) == {}
    assert {*secrets_of(LOGIN).values()} == {"a-1", "r-1", "s-1"}
