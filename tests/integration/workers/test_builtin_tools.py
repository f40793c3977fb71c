"""The built-in tools on a real file system with real processes.

What holds for all of them is in ``tests/unit/workers/builtin/tools/test_contract.py``.
"""

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, ToolError
from workers.builtin.sandboxes._capture import BYTES_MAX, FILE_BYTES_MAX, LINES_MAX
from workers.builtin.sandboxes.local import COMMAND_BYTES_MAX
from workers.builtin.tools import glob, grep, list_dir, read_file, shell

RESULT_BYTES_MAX = BYTES_MAX + 1024  # the text of a hint comes on top
DEADLINE_S = 10.0


@pytest.fixture
def workspace(tmp_path):
    """Return a folder with a large file and a large folder."""
    (tmp_path / "large").write_text("".join(f"line {number}\n" for number in range(20_000)))
    (tmp_path / "many").mkdir()
    for number in range(1_200):
        (tmp_path / "many" / f"{number:04}-{'n' * 90}").touch()
    return tmp_path


def call(tool, working_dir, **arguments):
    """Run one call the way the runner does."""
    return asyncio.run(called(tool, working_dir, **arguments))


async def called(tool, working_dir, **arguments):
    """Check the arguments and run the tool according to its isolation."""
    context = Context(session_id="s-1", call_id="call/1", working_dir=str(working_dir))
    args = tool.check(arguments)
    if tool.isolation == "task":
        return await tool.execute(args, context)
    return await asyncio.to_thread(tool.execute, args, context)


def run_shell(working_dir, command, **options):
    """Return the output of one command."""
    return call(shell.create(**options), working_dir, command=command)


def failing_shell(working_dir, command, **options):
    """Return the error text of one command."""
    with pytest.raises(ToolError) as caught:
        run_shell(working_dir, command, **options)
    return str(caught.value)


def is_alive(pid):
    """Say whether a process runs; one that only waits to be reaped by init does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def open_handles():
    """Count the file descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def until(condition):
    """Wait for a condition of the operating system."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)  # tidy: polls what the kernel alone knows


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (glob, {"pattern": "many/*"}),
        (grep, {"pattern": "1", "context_lines": 20, "max_results": 500}),
        (list_dir, {"path": "many"}),
        (read_file, {"path": "large"}),
        (shell, {"command": "cat large"}),
    ],
)
def test_results_are_bounded(workspace, module, arguments):
    """What would be more than a model can use is cut, whatever the tool."""
    result = call(module.create(), workspace, **arguments)

    assert 1000 < len(result.encode()) <= RESULT_BYTES_MAX


def test_read_file_goes_on_where_it_stopped(workspace):
    """The hint of one part is the offset of the next, and the parts are the file."""
    tool = read_file.create()
    parts, offset = [], 1
    while offset:
        text, _, hint = call(tool, workspace, path="large", offset=offset).partition("\n[more")
        parts.append(text.rstrip("\n") + "\n")
        offset = int(hint.partition("offset=")[2].rstrip("]")) if hint else 0

    assert "".join(parts) == (workspace / "large").read_text()
    assert len(parts) == 20_000 // LINES_MAX


def test_read_file_takes_a_range(workspace):
    """Offset counts lines from 1, limit says how many."""
    text = call(read_file.create(), workspace, path=str(workspace / "large"), offset=3, limit=2)

    assert text == "line 2\nline 3\n\n[more lines follow: go on with offset=5]"


@pytest.mark.parametrize("name", ["wide", "wide file's"])
@pytest.mark.parametrize("after", ["\nnext\n", "\n", ""])
def test_read_file_cuts_an_endless_line(workspace, name, after):
    """It can't fill the conversation; the hint has the way to its rest, and to what is after it."""
    line = "".join(f"{number} " for number in range(50_000))
    (workspace / name).write_text("first\n" + line + after)
    text, _, hint = call(read_file.create(), workspace, path=name, offset=2).partition("\n[")
    rest = run_shell(workspace, f"({hint.split('`')[1]}) > rest; wc -c < rest")
    following = int(hint.rpartition("offset=")[2].rstrip("]"))

    assert text == line[:BYTES_MAX]
    assert hint.startswith(f"line 2 is longer than {BYTES_MAX} bytes, and only they are shown: ")
    assert (workspace / "rest").read_text().removesuffix("\n") == line[BYTES_MAX:]
    assert int(rest) >= len(line) - BYTES_MAX
    assert call(read_file.create(), workspace, path=name, offset=following) == (
        after.removeprefix("\n") or "(no more lines)"
    )


def test_read_file_says_when_there_is_nothing(workspace):
    """An empty file is no error; an offset beyond the end is."""
    (workspace / "empty").touch()
    with pytest.raises(ToolError, match="it has 20000 lines, and none at offset 20002"):
        call(read_file.create(), workspace, path="large", offset=20_002)

    assert call(read_file.create(), workspace, path="empty") == "(empty file)"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("absent", "No such file or directory"),
        ("many", "it is a folder; list_dir shows"),
        ("pipe", "it is a device, socket or pipe"),
        ("/dev/zero", "it is outside of the working folder"),
        ("binary", "it is a binary file of 3 bytes"),
        ("nul\0", "embedded null byte"),
    ],
)
def test_read_file_refuses_what_is_no_text(workspace, path, reason):
    """What is not there, no file or no text is reported; a pipe without a writer blocks nothing."""
    os.mkfifo(workspace / "pipe")
    (workspace / "binary").write_bytes(b"a\0b")
    with pytest.raises(ToolError) as caught:
        call(read_file.create(), workspace, path=path)

    assert str(caught.value).startswith(f"Cannot read {path}: {reason}")


def test_list_dir_shows_kinds_and_sizes(tmp_path):
    """One sorted line for each entry; strange names break neither lines nor the encoding."""
    (tmp_path / "b.txt").write_text("1234")
    (tmp_path / "a").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "two\nlines").touch()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/z\xff")).touch()

    assert call(list_dir.create(), tmp_path).splitlines() == [
        "[dir]  a/",
        "[file] b.txt (4 bytes)",
        "[file] broken (7 bytes)",
        "[file] two\N{REPLACEMENT CHARACTER}lines (0 bytes)",
        "[file] z\N{REPLACEMENT CHARACTER} (0 bytes)",
    ]


def test_list_dir_counts_what_it_leaves_out(workspace):
    """Shown and left out are all that there is."""
    *lines, last = call(list_dir.create(), workspace, path="many").splitlines()

    assert last == f"[{1_200 - len(lines)} more entries are left out]"


def test_list_dir_distinguishes_empty_and_absent(tmp_path):
    """An empty folder is no error; an absent one is."""
    with pytest.raises(ToolError, match="Cannot list absent: No such file or directory"):
        call(list_dir.create(), tmp_path, path="absent")

    assert call(list_dir.create(), tmp_path) == "(empty folder)"


def test_shell_runs_in_the_working_dir_without_input(tmp_path):
    """Output and errors come together, in order; standard input is at its end."""
    found = run_shell(tmp_path, "pwd; echo error >&2; cat; echo end")

    assert found == f"{tmp_path}\nerror\nend"


@pytest.mark.parametrize("kind", ["sh", "bash", "zsh"])
def test_shell_is_of_the_kind_that_was_chosen(tmp_path, kind):
    """One that is not installed is refused by its name, with those that are."""
    if shutil.which(kind) is None:
        reported = failing_shell(tmp_path, "true", shell=kind)
        assert reported.startswith(f"Cannot run the command: {kind} is not installed; there are ")
        return
    name = run_shell(tmp_path, "cat /proc/$$/comm; true", shell=kind)

    assert name in {kind, Path(shutil.which(kind)).resolve().name}


def test_shell_that_is_missing_is_refused_by_its_name(tmp_path, monkeypatch):
    """Never another one in its place."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert failing_shell(tmp_path, "true", shell="zsh") == (
        "Cannot run the command: zsh is not installed; there are sh"
    )


def test_shell_reports_a_failure(tmp_path):
    """A status other than 0 is an error that the model reads, with the output."""
    assert failing_shell(tmp_path, "echo oops; exit 3") == "oops\n[exit status 3]"
    assert failing_shell(tmp_path, "kill -TERM $$") == "[killed by SIGTERM]"
    assert run_shell(tmp_path, "true") == "(no output)"


def test_shell_that_cannot_start_is_reported(tmp_path):
    """A folder that is gone and a command that no system takes are errors to read."""
    assert "No such file" in failing_shell(tmp_path / "gone", "true")
    assert "null byte" in failing_shell(tmp_path, "echo \0")


@pytest.mark.parametrize("kind", [None, "sh", "bash"])
def test_shell_runs_commands_up_to_a_bound(tmp_path, kind):
    """One of as many bytes as the kernel takes writes a big file, quotes and all."""
    before, after = "cat > big <<'END'\n", "'\nEND\nwc -c < big"
    line = "'" * (COMMAND_BYTES_MAX - len(before + after))
    wrote = run_shell(tmp_path, before + line + after, shell=kind)

    assert int(wrote) == len(line) + 2


@pytest.mark.parametrize("kind", [None, "sh", "bash"])
@pytest.mark.parametrize(
    ("more", "size"),
    [
        ("#", COMMAND_BYTES_MAX + 1),
        ("é", COMMAND_BYTES_MAX + 2),
        ("#" * 3_000_000, COMMAND_BYTES_MAX + 3_000_000),
    ],
    ids=["a byte", "a character", "a lot"],
)
def test_shell_refuses_a_longer_command_by_name(tmp_path, more, size, kind):
    """In bytes and before anything starts, with the way out."""
    start = "touch made #"
    command = start + "x" * (COMMAND_BYTES_MAX - len(start)) + more

    assert failing_shell(tmp_path, command, shell=kind) == (
        f"Cannot run the command: it has {size} bytes, and 131071 at most are taken;"
        " write what is long to a file first, as with write_file, and use the file in the command"
    )
    assert not (tmp_path / "made").exists()


def test_shell_names_its_bound():
    """Models read it before they write a command."""
    assert f"{COMMAND_BYTES_MAX:,} bytes" in str(shell.create().parameters)


def test_shell_sees_no_keys(tmp_path, monkeypatch):
    """The environment is a list of what is let through, the tool's own, and who calls."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    found = run_shell(tmp_path, "env", env={"PROJECT": "x"})
    names = {line.partition("=")[0] for line in found.splitlines()}

    assert "secret" not in found
    assert {"PATH", "LC_TIME", "PROJECT", "CMDC_SESSION_ID", "CMDC_INCARNATION"} <= names


def test_shell_stays_in_the_session_with_a_group_of_its_own(tmp_path):
    """Whoever ends the agent's session finds its commands, and a command can be killed alone."""
    group, session, pid = map(int, run_shell(tmp_path, "ps -o pgid=,sid=,pid= -p $$").split())

    assert (group, session) == (pid, os.getsid(0))


def test_shell_keeps_long_output_in_a_file(tmp_path):
    """The model reads both ends and where the rest is; the file has all of it, for us alone."""
    result = run_shell(tmp_path, "seq 1 20000")
    [kept] = (tmp_path / ".cmdc" / "output").iterdir()

    assert result.startswith("1\n2\n")
    assert result.endswith("\n19999\n20000")
    assert f"the full text is in {kept}" in result
    assert kept.read_text().split() == [str(number) for number in range(1, 20_001)]
    assert kept.name.endswith("-call_1.txt")
    assert kept.stat().st_mode & 0o777 == 0o600


def test_shell_bounds_what_it_keeps(tmp_path):
    """A flood ends on disk at the bound, and the end of it is still shown."""
    result = run_shell(
        tmp_path, f"head -c {FILE_BYTES_MAX + 1_000_000} /dev/zero | tr '\\0' x; echo end"
    )
    [kept] = (tmp_path / ".cmdc" / "output").iterdir()

    assert kept.stat().st_size == FILE_BYTES_MAX
    assert len(result.encode()) <= RESULT_BYTES_MAX
    assert result.endswith("xxxend")


def test_shell_goes_on_when_the_file_cannot_be_kept(tmp_path):
    """Trouble with the file is reported and costs the command nothing."""
    (tmp_path / ".cmdc").write_text("in the way")
    result = run_shell(tmp_path, "seq 1 20000")

    assert "the full text could not be kept: " in result
    assert result.endswith("20000")


def test_shell_kills_the_whole_group_at_the_timeout(tmp_path):
    """A command over its time is an error with what it wrote, and none of its processes stays."""
    text = failing_shell(tmp_path, "sleep 60 & echo $!; echo $$; wait", timeout=0.3)
    child, leader, end = text.split("\n")

    assert end == "[killed: not done within 0.3 s]"
    assert not is_alive(int(leader))
    asyncio.run(until(lambda: not is_alive(int(child))))


def test_model_cannot_ask_for_more_time(tmp_path):
    """The option is the bound."""
    with pytest.raises(ToolError, match="<= 2"):
        call(shell.create(timeout=2), tmp_path, command="true", timeout=3)


def test_shell_ends_with_its_process(tmp_path):
    """What holds the pipe open does not hold up the call, and is gone after it."""
    start = time.monotonic()
    result = run_shell(tmp_path, "sleep 60 & echo $!")

    assert time.monotonic() - start < 2.0
    asyncio.run(until(lambda: not is_alive(int(result))))


def test_shell_ends_though_a_stranger_holds_the_pipe(tmp_path):
    """Not even a process that left the group and the session holds up the call."""
    start = time.monotonic()
    stranger = int(run_shell(tmp_path, "setsid sleep 60 & echo $!"))
    took_s = time.monotonic() - start
    os.kill(stranger, signal.SIGKILL)
    asyncio.run(until(lambda: not is_alive(stranger)))

    assert took_s < 2.0


def test_shell_output_right_before_the_exit_is_there(tmp_path):
    """The pipe is read to its end after the exit."""
    result = run_shell(tmp_path, "head -c 40000 /dev/zero | tr '\\0' x")

    assert len(result) == 40_000


def test_cancelled_shell_leaves_nothing(tmp_path):
    """At an abort the group is dead before the cancellation goes on; no handle is left."""

    async def cancel():
        task = asyncio.create_task(
            called(shell.create(), tmp_path, command="sleep 60 & echo $! $$ > pids; wait")
        )
        pids = tmp_path / "pids"
        await until(lambda: pids.exists() and pids.read_text())
        before = open_handles()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        child, leader = map(int, pids.read_text().split())
        leader_alive = is_alive(leader)
        await until(lambda: not is_alive(child))
        return leader_alive, before - open_handles()

    leader_alive, handles_closed = asyncio.run(cancel())

    assert not leader_alive
    assert handles_closed == 3  # the pipe, the report and the pidfd


def test_shells_run_side_by_side(tmp_path):
    """Commands of one batch do not wait for one another, and do not mix their output."""

    async def batch():
        tool = shell.create()
        orders = [
            f"touch {at}; until [ $(ls | wc -l) = 4 ]; do :; done; echo {at}" for at in range(4)
        ]
        return await asyncio.gather(*(called(tool, tmp_path, command=order) for order in orders))

    assert asyncio.run(batch()) == ["0", "1", "2", "3"]
