"""Where ``cmdc export`` writes: a file is there as a whole or not at all, and the rest stays."""

import io
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cmdc_runtime.testing import ScriptedModel
from cmdc_runtime.transfer import Assembly, read_frames

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
CLI_S = 60.0
NULL, FULL = os.makedev(1, 3), os.makedev(1, 7)


@pytest.fixture(scope="module")
def session(cmdc_daemon):
    """A session to export."""
    with ScriptedModel([], default="Said.") as model, cmdc_daemon.client() as client:
        session = client.create_agent(model=model)
        session.run("Hi.")
        yield session
        session.stop()


@pytest.fixture
def export(cmdc_daemon):
    """Run ``cmdc export``."""

    def command(*arguments, **more):
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
        given = {"stdout": subprocess.PIPE, **more}
        return subprocess.run(
            [CMDC, "export", *arguments],
            env={**ours, "CMDC_ADDRESS": str(cmdc_daemon.address)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=CLI_S,
            check=False,
            **given,
        )

    return command


def session_in(data):
    """Return the id of the session that a whole file is of."""
    assembly = Assembly()
    for frame in read_frames(io.BytesIO(data)):
        assembly.add(frame)
    return assembly.whole().header.session_id


def kind_of(path):
    return stat.S_IFMT(path.lstat().st_mode)


@pytest.fixture
def device(tmp_path):
    """Make a device node in the test's own folder, where that is allowed."""

    def node(number):
        path = tmp_path / "device"
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, number)
            path.open("wb").close()
        except PermissionError:
            pytest.skip("no device nodes can be made here")
        return path

    return node


def test_a_fifo_is_written_into(export, session, tmp_path):
    """Who reads it gets the whole file, and it stays a FIFO."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    done = export(session.id, "-o", str(fifo))
    reader.join(CLI_S)

    assert done.returncode == 0, done.stderr
    assert session_in(found[0]) == session.id
    assert kind_of(fifo) == stat.S_IFIFO


@pytest.mark.parametrize(("number", "status"), [(NULL, 0), (FULL, 1)], ids=["null", "full"])
def test_a_device_is_written_into(export, session, device, number, status):
    """It stays a device, and what it does not take is one line."""
    path = device(number)
    done = export(session.id, "-o", str(path))

    assert done.returncode == status
    assert (kind_of(path), path.stat().st_rdev) == (stat.S_IFCHR, number)
    if status:
        problem = f"cmdc: {path} cannot be written: No space left on device\n"
        assert done.stderr.decode() == problem
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("before", [b"what was there", None], ids=["file", "nothing"])
def test_a_link_is_followed(export, session, tmp_path, before):
    """What it leads to is the file then, whether it was there or not; the link stays."""
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.parent.mkdir()
    if before is not None:
        target.write_bytes(before)
    link.symlink_to(Path("there", "file"))
    done = export(session.id, "-o", str(link))

    assert done.returncode == 0, done.stderr
    assert link.readlink() == Path("there", "file")
    assert session_in(target.read_bytes()) == session.id
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.rglob("*")) == [link, target.parent, target]


def a_directory(folder):
    return str(folder)


def a_directory_to_be(folder):
    return f"{folder}/new/"


def a_link_to_a_directory(folder):
    link = folder / "link"
    link.symlink_to(folder)
    return str(link)


def a_socket(folder):
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))
    return str(path)


def nothing(_folder):
    return ""


@pytest.mark.parametrize(
    "made", [a_directory, a_directory_to_be, a_link_to_a_directory, a_socket, nothing]
)
@pytest.mark.parametrize("move", [(), ("--move",)], ids=["copy", "move"])
def test_what_is_no_file_is_wrong_usage(export, session, tmp_path, made, move):
    """One line says so before anything else happens; it stays what it is."""
    output = made(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = export(session.id, *move, "-o", output)

    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"cmdc: -o takes the name of a file, and {output!r} is")
    assert done.stderr.count(b"\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert session.status().state == "idle"


def test_a_terminal_is_wrong_usage(export, session):
    """The file is not written to one by whatever name."""
    master, terminal = pty.openpty()
    try:
        done = export(session.id, "-o", os.ttyname(terminal))
    finally:
        os.close(master)
        os.close(terminal)

    assert (done.returncode, b"is a terminal" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["x" * 256, "loop", "file/below"])
def test_what_cannot_be_written_is_one_line(export, session, tmp_path, name):
    """The session that was to move is where it was."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    done = export(session.id, "--move", "-o", str(tmp_path / name))

    assert done.returncode == 1
    assert b"cannot be written: " in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert session.status().state == "idle"


def test_a_name_may_be_as_long_as_names_are(export, session, tmp_path):
    """The draft beside it needs no longer one."""
    file = tmp_path / ("x" * 255)
    done = export(session.id, "-o", str(file))

    assert done.returncode == 0, done.stderr
    assert session_in(file.read_bytes()) == session.id


@pytest.mark.parametrize("move", [(), ("--move",)], ids=["copy", "move"])
def test_nothing_is_written_of_no_session(export, tmp_path, move):
    """Neither to standard output nor to a file, before the daemon has given all of it."""
    output = tmp_path / "file"
    printed = export("nosuch", *move)
    written = export("nosuch", *move, "-o", str(output))

    assert (printed.returncode, written.returncode) == (1, 1)
    assert printed.stdout == b""
    assert printed.stderr == written.stderr
    assert printed.stderr.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == []
