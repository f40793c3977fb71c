"""Where daemons and clients meet: default places, names, and who may be trusted."""

import os
from pathlib import Path

import pytest

from cmdc_runtime.runtime_dir import (
    HOST_SOCKETS,
    SOCKET_PATH_BYTES_MAX,
    WORKERS_SOCKET,
    candidate_runtime_dirs,
    default_runtime_dir,
    default_state_dir,
    find_daemon,
    host_socket,
    is_host_socket,
    path_problem,
    privacy_problem,
    running_daemon,
    socket_address,
)

HOME = Path("/home")
UID = os.geteuid()


@pytest.mark.parametrize(
    ("environ", "uid", "right"),
    [
        ({"CMDC_RUNTIME_DIR": "/a", "XDG_RUNTIME_DIR": "/b"}, 0, "/a"),
        ({"XDG_RUNTIME_DIR": "/b"}, 0, "/b/cmdc"),
        ({}, 0, "/run/cmdc"),
        ({"XDG_RUNTIME_DIR": ""}, 1000, "/home/.cache/cmdc/run"),
    ],
    ids=["chosen", "login session", "root", "user without a session"],
)
def test_sockets_go_to_the_first_place_that_there_is(environ, uid, right):
    """What was chosen comes first, then the login session's directory, then the fixed ones."""
    assert default_runtime_dir(environ, uid=uid, home=HOME) == Path(right)


@pytest.mark.parametrize("uid", [0, 1000], ids=["root", "user"])
@pytest.mark.parametrize(
    "environ", [{}, {"XDG_RUNTIME_DIR": "/b"}, {"CMDC_RUNTIME_DIR": "/a"}], ids=str
)
def test_a_client_looks_where_a_daemon_would_be(environ, uid):
    """The default place of a daemon is one of those where a client of the same user looks."""
    place = default_runtime_dir(environ, uid=uid, home=HOME)

    assert place in candidate_runtime_dirs(environ, home=HOME)


@pytest.mark.parametrize(
    ("environ", "right"),
    [
        ({"CMDC_STATE_DIR": "/a", "STATE_DIRECTORY": "/b"}, "/a"),
        ({"STATE_DIRECTORY": "/b:/c", "XDG_STATE_HOME": "/d"}, "/b"),
        ({"XDG_STATE_HOME": "/d"}, "/d/cmdc"),
        ({}, "/home/.local/state/cmdc"),
    ],
    ids=["chosen", "systemd", "xdg", "home"],
)
def test_state_goes_to_the_first_place_that_there_is(environ, right):
    """What was chosen comes before systemd's directory, and that before the user's."""
    assert default_state_dir(environ, home=HOME) == Path(right)


@pytest.mark.parametrize(("spare_bytes", "fits"), [(0, True), (-1, False)], ids=["107", "108"])
def test_a_name_too_long_for_a_socket_is_reported(spare_bytes, fits):
    """The longest socket path may have 107 bytes, and bytes are counted, not letters."""
    room = SOCKET_PATH_BYTES_MAX - spare_bytes - len(f"/ä/{WORKERS_SOCKET}".encode())
    problem = path_problem(Path("/ä" + "x" * room))

    assert (problem is None) == fits


def test_an_address_names_the_socket():
    """ZeroMQ gets the path of the socket behind its scheme."""
    assert socket_address(Path("/r"), "control.sock") == "ipc:///r/control.sock"


def test_a_private_directory_has_no_problem(tmp_path):
    """A directory of mode 0700 that is the user's own is trusted."""
    tmp_path.chmod(0o700)

    assert privacy_problem(tmp_path, uid=UID) is None


def test_a_directory_open_to_others_is_not_trusted(tmp_path):
    """One bit for group or world is enough, and the message says what to do."""
    tmp_path.chmod(0o710)

    assert "chmod 700" in privacy_problem(tmp_path, uid=UID)


def test_another_users_directory_is_not_trusted(tmp_path):
    """Who owns the directory can replace what is in it."""
    tmp_path.chmod(0o700)

    assert f"belongs to user {UID}" in privacy_problem(tmp_path, uid=UID + 1)


def test_a_link_is_not_trusted(tmp_path):
    """A link may point elsewhere tomorrow, so what it points to does not matter."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert "is a link" in privacy_problem(tmp_path / "link", uid=UID)


def test_a_file_is_not_trusted(tmp_path):
    """Something else may stand where the directory should be."""
    (tmp_path / "file").touch(mode=0o600)

    assert "is not a directory" in privacy_problem(tmp_path / "file", uid=UID)


def test_no_lock_file_means_nobody_is_home(tmp_path):
    """An empty or missing directory has no daemon."""
    assert running_daemon(tmp_path) is None
    assert running_daemon(tmp_path / "missing") is None


def test_a_free_lock_means_nobody_is_home(tmp_path):
    """A lock file that nobody holds is what a dead daemon left."""
    (tmp_path / "daemon.lock").write_text('{"pid":1,"version":"0","started_at_ms":0}')

    assert running_daemon(tmp_path) is None


def test_a_search_without_a_daemon_finds_none(tmp_path):
    """Missing, foreign and empty directories are passed over without an error."""
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}

    assert find_daemon(environ, uid=UID + 1, home=tmp_path) is None


@pytest.mark.parametrize("number", [0, 7, 99, 100, 12_345])
def test_a_worker_knows_the_places_of_its_tool_hosts(number):
    """And nobody else's are taken for them; the name is no longer than the sockets' own."""
    place = host_socket(Path("/run/x"), "w-1-0123456789abcdef", number)

    assert is_host_socket(Path("/run/x"), "w-1-0123456789abcdef", str(place))
    assert not is_host_socket(Path("/run/x"), "w-1-fedcba9876543210", str(place))
    assert not is_host_socket(Path("/run/y"), "w-1-0123456789abcdef", str(place))
    assert place.match(HOST_SOCKETS)
    assert len(place.name) <= len(WORKERS_SOCKET)


@pytest.mark.parametrize("address", ["", "7", "h-", "/run/x/control.sock", "/run/x/h-01234567²³"])
def test_other_paths_are_no_places_of_tool_hosts(address):
    """Whatever they are."""
    assert not is_host_socket(Path("/run/x"), "w-1-0123456789abcdef", address)
