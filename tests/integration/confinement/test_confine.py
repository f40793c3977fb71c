"""A confined process: each layer holds, and what programs do all day works."""

import os
import socket
import subprocess

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

CALL = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*map(int, sys.argv[1:]))
sys.exit(0 if result < 0 and ctypes.get_errno() in {1, 38} else 1)
"""
CONNECT = """
import socket, sys
try:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(sys.argv[1])
except OSError:
    sys.exit(0)
sys.exit(1)
"""


def test_plain_programs_work(box):
    """A shell with pipes, a Python with files, threads, processes and a socket pair."""
    done = box.shell("printf 'b\\na\\n' | sort > sorted && cat sorted && mkdir -p x/y && mv x z")

    assert (done.returncode, done.stdout) == (0, "a\nb\n"), done.stderr
    program = """
import asyncio, multiprocessing, pathlib, socket, subprocess, tempfile, threading
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "a").write_text("x")
    pathlib.Path(folder, "a").rename(pathlib.Path(folder, "b"))
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
child = multiprocessing.get_context("fork").Process(target=print, args=("fork",), daemon=True)
print(flush=True); child.start(); child.join()
print(subprocess.run(["echo", "run"], capture_output=True, text=True, check=True).stdout.strip())
asyncio.run(asyncio.sleep(0))
socket.socketpair()
"""
    done = box.python(program)

    assert done.returncode == 0, done.stderr
    assert {"thread", "fork", "run"} <= set(done.stdout.split())


def test_processes_of_one_program_share_memory_and_locks(box):
    """In a place of their own, where nobody else's is."""
    program = """
import multiprocessing, multiprocessing.shared_memory as shared, os
assert os.listdir("/dev/shm") == []
block = shared.SharedMemory(create=True, size=64)
lock, queue = multiprocessing.Lock(), multiprocessing.Queue()
def work():
    with lock:
        block.buf[0] = 7
        queue.put("done")
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
print(queue.get(timeout=20), block.buf[0])
child.join()
block.close()
block.unlink()
"""
    done = box.python(program)

    assert (done.returncode, done.stdout) == (0, "done 7\n"), done.stderr


def test_git_works_and_its_hooks_and_configuration_stay(box):
    """A commit is made; what git outside of the sandbox would run can't be planted."""
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "init", "-q", str(box.folder)], check=True)
    done = box.shell(
        "echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm one"
        " && git log --format=%s"
    )

    assert (done.returncode, done.stdout) == (0, "one\n"), done.stderr
    before = (box.folder / ".git/config").read_bytes()
    for attempt in (
        "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "rm .git/config",
        "mv .git other",
        "mv .git/hooks .git/other",
        "ln -sf /tmp .git/hooks/x",
        "git config core.hooksPath /tmp",
        "echo x > .git/config.worktree",
        "cd .git && echo x > hooks/pre-commit",
    ):
        assert box.shell(attempt).returncode != 0, attempt
    assert (box.folder / ".git/config").read_bytes() == before
    assert not [one for one in (box.folder / ".git/hooks").iterdir() if one.suffix != ".sample"]


def test_a_repository_further_down_is_protected(box):
    """As far as it was there before."""
    subprocess.run(["git", "init", "-q", str(box.folder / "a/b")], check=True)
    done = box.shell("echo x > a/b/.git/hooks/post-checkout || echo x >> a/b/.git/config")

    assert done.returncode != 0
    assert not (box.folder / "a/b/.git/hooks/post-checkout").exists()


def test_what_is_protected_and_missing_cannot_be_made(box):
    """It is there, empty, before the process is."""
    done = box.shell("echo x > .vscode/tasks.json || mv .vscode x || rmdir .vscode")

    assert done.returncode != 0
    assert [*(box.folder / ".vscode").iterdir()] == []


def test_a_link_in_place_of_hooks_is_protected_with_its_folder(box):
    """Else another link could stand there, to what the process writes."""
    (box.folder / ".git").mkdir()
    (box.folder / "mine").mkdir()
    (box.folder / ".git/hooks").symlink_to("../mine")
    done = box.shell("ln -sfn ../other .git/hooks")

    assert done.returncode != 0
    assert str((box.folder / ".git/hooks").readlink()) == "../mine"


@pytest.mark.skipif("not __import__('shutil').which('cc')", reason="there is no compiler")
def test_a_file_is_compiled(box):
    """With the system's headers and libraries, and what comes out runs."""
    (box.folder / "a.c").write_text('#include <stdio.h>\nint main(void){puts("made");return 0;}\n')
    done = box.shell("cc -o a a.c && ./a")

    assert (done.returncode, done.stdout) == (0, "made\n"), done.stderr


def test_nothing_outside_is_written_or_read(box, tmp_path):
    """Not by path, not by a link, not by the folder above."""
    secret = tmp_path / "secret"
    secret.write_text("4711")
    for attempt in (
        f"cat {secret}",
        "cat ../secret",
        f"ln -s {secret} link; cat link",
        f"ln {secret} hard",
        f"echo x > {secret}",
        f": > {secret}",
        f"truncate -s 0 {secret}",
        f"mv {secret} here",
        f"rm {secret}",
        f"mkdir {tmp_path}/made",
        "cat /etc/shadow",
        "ls /root",
        f"cat /proc/{os.getpid()}/environ",
        f"readlink /proc/{os.getpid()}/fd/0",
        f"cat /proc/{os.getpid()}/root{secret}",
        f"kill -0 {os.getpid()}",
    ):
        done = box.shell(attempt)
        assert "4711" not in done.stdout, attempt
        assert done.returncode != 0, attempt
    assert secret.read_text() == "4711"


@pytest.mark.parametrize(
    "call",
    ["101 16 1 0 0", "310 1 0 0 0 0 0", "165 0 0 0 0 0", "272 268435456", "425 8 0", "321 0 0 0",
     "298 0 0 0 0 0", "323 0", "250 0 0 0", "435 0 0", "56 268435473 0 0 0 0"],
)  # fmt: skip
@pytest.mark.skipif("__import__('platform').machine() != 'x86_64'", reason="numbers of x86-64")
def test_calls_of_the_table_are_refused_by_the_kernel(box, call):
    """Some of each kind, made in earnest."""
    done = box.python(CALL, *call.split())

    assert done.returncode == 0, done.stderr


def test_no_socket_of_anybody_is_reached(box, tmp_path):
    """Named or abstract; nor is there a network."""
    for address in (str(box.folder / "s"), f"\0cmdc-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            done = box.python(CONNECT, address.replace("\0", "@"))
            assert done.returncode == 0
    for family in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"):
        done = box.python(f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)")
        assert "PermissionError" in done.stderr, family


def test_no_capability_is_left(box):
    """Not for root, and not after an exec."""
    done = box.shell("grep Cap /proc/self/status; grep NoNewPrivs /proc/self/status")

    assert {line.split()[1] for line in done.stdout.splitlines()[:-1]} == {"0" * 16}
    assert done.stdout.splitlines()[-1].split()[1] == "1"


def test_with_a_network_there_are_ports_but_no_sockets_of_others(box):
    """The loopback of the machine is there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}))"

        assert box.python(program, network="on").returncode == 0
        assert box.python(program).returncode != 0
    assert box.python(CONNECT, "/run/nothing", network="on").returncode == 0
