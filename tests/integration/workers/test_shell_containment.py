"""What a command has started is gone with it, wherever it went; and nothing else is different.

See ``tests/escapees.py`` for what is started.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from cmdc_runtime.extensions import Context, ToolError
from tests.escapees import COMMAND, has_left, watched
from workers.builtin.sandboxes import _commands
from workers.builtin.tools import shell

WAIT_S = 20.0
LIMITS_S = (1.0, 4.0, 16.0)
"""For a command that is to be timed out: the first that leaves it the time to start something."""


async def run(folder, command, **options):
    context = Context(session_id="s-1", call_id="call/1", working_dir=str(folder))
    made = shell.create(**options)
    return await made.execute(made.check({"command": command}), context)


@pytest.mark.parametrize("disguise", ["", "env -i "], ids=["marked", "without environment"])
def test_what_a_timed_out_command_has_started_is_gone_when_it_returns(tmp_path, disguise):
    """Double forks, setsid, a signal that is ignored and an environment that is cleared."""
    begin, shown, left = COMMAND.format(fifo=tmp_path / "fifo", disguise=disguise), "", True
    with watched(tmp_path / "fifo") as is_held:
        for limit_s in LIMITS_S:
            with pytest.raises(ToolError, match=f"not done within {limit_s:g} s") as caught:
                asyncio.run(run(tmp_path, f"{begin} echo begun; sleep 60", timeout=limit_s))
            shown, left = str(caught.value), is_held()
            if "begun" in shown or left:
                break

    assert shown.startswith("begun")
    assert not left


def test_what_an_aborted_command_has_started_is_gone_when_its_task_is(tmp_path):
    """Beside another command, which goes on."""
    begin = COMMAND.format(fifo=tmp_path / "fifo", disguise="env -i ")

    async def scenario(is_held):
        other = asyncio.create_task(run(tmp_path, "read line < go; echo $line"))
        task = asyncio.create_task(run(tmp_path, f"{begin} sleep 60"))
        async with asyncio.timeout(WAIT_S):
            while not has_left(tmp_path / "fifo"):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.01)  # tidy: see above
        was_held = is_held()
        task.cancel()
        await asyncio.wait({task})
        left = is_held()
        await asyncio.to_thread((tmp_path / "go").write_text, "on\n")
        return was_held, left, await other

    os.mkfifo(tmp_path / "go")
    with watched(tmp_path / "fifo") as is_held:
        assert asyncio.run(scenario(is_held)) == (True, False, "on")


def test_a_command_finds_signals_and_locale_as_if_nothing_stood_before_it(tmp_path, monkeypatch):
    """An interpreter that starts it ignores SIGPIPE for itself, and may give itself a locale."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    command = "grep SigIgn /proc/self/status; env; yes | head -1; echo ${PIPESTATUS[0]}"
    words = asyncio.run(run(tmp_path, command)).split()
    masked = int(words[words.index("SigIgn:") + 1], 16)

    assert masked & (1 << 12) == 0  # SIGPIPE
    assert not [one for one in words if one.startswith("LC_")]
    assert words[-2:] == ["y", "141"]


def test_a_command_is_not_found_below_the_interpreter_that_started_it(tmp_path):
    """The process of the call is the shell itself, in a group of its own, and not our child."""
    out = asyncio.run(run(tmp_path, "cat /proc/$$/comm; ps -o pgid= -p $$; echo $$; echo $PPID"))
    name, group, pid, parent = out.split()

    assert name in {"bash", "sh", "dash"}
    assert group == pid
    assert int(parent) not in {os.getpid(), int(pid)}
    assert sys.executable not in out


@pytest.mark.parametrize(
    ("disguise", "target", "name"),
    [
        *((disguise, "-9 $$", "SIGKILL") for disguise in ("", "env -i ")),
        ("env -i ", "-SEGV $$", "SIGSEGV"),
        ("env -i ", "-9 0", "SIGKILL"),
        ("", "-9 $PPID", "SIGKILL"),
        ("", "-9 $PPID $$", "SIGKILL"),
    ],
)
def test_what_a_command_has_started_that_a_signal_ends_is_gone(tmp_path, disguise, target, name):
    """It kills itself, its group or what stands above it; the last is known by its environment."""
    begin = COMMAND.format(fifo=tmp_path / "fifo", disguise=disguise)
    with watched(tmp_path / "fifo") as is_held:
        with pytest.raises(ToolError, match=rf"\[killed by {name}\]") as caught:
            asyncio.run(run(tmp_path, f"{begin} echo begun; kill {target}; sleep 60"))

        assert str(caught.value).startswith("begun")
        assert not is_held()


ABOUT_TO_END = """
import os, sys, time
report, _, _, *program = sys.argv[1:]
os.set_inheritable(int(report), False)
if not (child := os.fork()):
    os.fork() or os.execv(program[0], program)
    os._exit(0)
os.waitpid(child, 0)
while not os.path.exists("begun"):
    time.sleep(0.01)
os.close(int(report))
time.sleep(60)
"""


def test_what_a_command_has_started_whose_guardian_is_about_to_end_is_gone(tmp_path, monkeypatch):
    """The kernel closes its descriptors and hands on its children before anybody sees its end."""
    guardian = tmp_path / "guardian.py"
    guardian.write_text(ABOUT_TO_END)
    monkeypatch.setattr(_commands, "_GUARDIAN", guardian)
    with watched(tmp_path / "fifo") as is_held:
        with pytest.raises(ToolError, match=r"\[killed by SIGKILL\]"):
            asyncio.run(run(tmp_path, "exec 9> fifo; touch begun; sleep 60"))

        assert not is_held()


def test_what_a_command_has_set_free_goes_on_after_its_end(tmp_path):
    """It exits by itself, with whatever status: only its group ends with it."""
    command = "exec 9> fifo; setsid sleep 60 & sleep 60 & echo $!; exit 137"
    with watched(tmp_path / "fifo") as is_held:
        with pytest.raises(ToolError) as caught:
            asyncio.run(run(tmp_path, command))
        of_group, end = str(caught.value).splitlines()

        assert end == "[exit status 137]"
        assert is_held()

        [free] = holders_of(tmp_path / "fifo") - {int(of_group)}  # which ends in a moment
        os.kill(free, signal.SIGKILL)


def holders_of(path):
    """Return the pids of the processes that have a file open, but for this one's."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink() == path:
                found.add(int(link.parts[2]))
    return found - {os.getpid()}
