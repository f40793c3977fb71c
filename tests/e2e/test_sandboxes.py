"""The sandbox of a running session: what its tools have, and what is refused at its start."""

from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.extensions.sandbox import FilePart, WrittenFile
from cmdc_runtime.testing import ToolCalls, ToolUse
from workers.builtin.sandboxes.local import Local

pytestmark = pytest.mark.process

PLACES = ("process", "thread", "task")


def looked(context: cmdc.Context) -> str:
    """Return what the sandbox of a call reaches."""
    sandbox = context.sandbox
    return f"{sandbox.name} {sandbox.file_exists('a.txt')} {sandbox.file_exists('/etc/passwd')}"


@cmdc.tool(name="look_process", isolation="process", effects="read")
def look_process(*, context: cmdc.Context) -> str:
    """Look from a process of the call's own."""
    return looked(context)


@cmdc.tool(name="look_thread", isolation="thread", effects="read")
def look_thread(*, context: cmdc.Context) -> str:
    """Look from a thread."""
    return looked(context)


@cmdc.tool(name="look_task", effects="read")
async def look_task(*, context: cmdc.Context) -> str:
    """Look from the agent's loop."""
    return looked(context)


class Missing(Local):
    """Needs what is not here."""

    def begin(self, place):
        """Refuse."""
        super().begin(place)
        raise cmdc.SandboxUnavailable("moon", "it is on the other side")


class Upper(Local):
    """Answers in capital letters, and says of itself that commands can't leave it."""

    confines = True

    def read_file(self, path, offset=1, limit=2000):
        """Return what is there, but in capitals."""
        return FilePart(text=super().read_file(path, offset, limit).text.upper())

    def write_file(self, path, content):
        """Write nothing."""
        return WrittenFile(is_new=False, size_bytes=len(content))


class Unsure:
    """No sandbox."""


def results(session):
    return [one.content for one in session.messages() if one.role == "tool_result"]


def run(agent, scripted, cycle_of, calls, **options):
    """Return the results of a batch of calls."""
    session = agent(scripted(ToolCalls(*calls), "Done."), **options)
    stream = session.subscribe(since=0)
    session.prompt("Go.")
    cycle_of(stream)
    return results(session)


def test_every_tool_has_the_sandbox_wherever_it_runs(agent, scripted, cycle_of, tmp_path):
    """It is one of files below the working folder unless another is given."""
    (tmp_path / "a.txt").write_text("x")
    answers = run(
        agent, scripted, cycle_of,
        [ToolUse(f"look_{place}", {}, place) for place in PLACES],
        tools=[look_process, look_thread, look_task],
        working_dir=str(tmp_path),
    )  # fmt: skip

    assert answers == ["local True False"] * 3


def test_built_in_tools_stay_in_the_working_folder(agent, scripted, cycle_of, tmp_path):
    """A model that names what is outside gets an error, and reads and writes nothing."""
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "work/link").symlink_to("../secret")
    answers = run(
        agent, scripted, cycle_of,
        [
            ToolUse("read_file", {"path": "../secret"}, "up"),
            ToolUse("read_file", {"path": "link"}, "link"),
            ToolUse("write_file", {"path": str(tmp_path / "new"), "content": "x"}, "write"),
            ToolUse("grep", {"pattern": "hunter", "path": str(tmp_path)}, "grep"),
            ToolUse("glob", {"pattern": "../*"}, "glob"),
            ToolUse("list_dir", {"path": "~"}, "list"),
        ],
        tools=["read_file", "write_file", "grep", "glob", "list_dir"],
        working_dir=str(tmp_path / "work"),
    )  # fmt: skip

    assert [one.rpartition(": ")[2] for one in answers] == [
        "it is outside of the working folder"
    ] * 6
    assert sorted(one.name for one in tmp_path.iterdir()) == ["secret", "work"]


def test_paths_of_the_machine_are_an_option(agent, scripted, cycle_of, tmp_path):
    """virtual_mode=False reaches what the process may reach."""
    (tmp_path / "work").mkdir()
    (tmp_path / "b.txt").write_text("beside")
    answers = run(
        agent, scripted, cycle_of,
        [
            ToolUse("read_file", {"path": "../b.txt"}, "up"),
            ToolUse("read_file", {"path": "/etc/hostname"}, "absolute"),
        ],
        tools=["read_file"],
        working_dir=str(tmp_path / "work"),
        sandbox=cmdc.sandbox.Local(virtual_mode=False),
    )  # fmt: skip

    assert answers == ["beside", Path("/etc/hostname").read_text()]


@pytest.mark.parametrize("given", [Upper, Upper(), (Upper, {"root": "."})])
def test_a_sandbox_of_ones_own_is_asked(agent, scripted, cycle_of, tmp_path, given):
    """As a class, an instance, or a class with options; it may be required as one that confines."""
    (tmp_path / "a.txt").write_text("loud")
    answers = run(
        agent, scripted, cycle_of,
        [
            ToolUse("read_file", {"path": "a.txt"}, "read"),
            ToolUse("write_file", {"path": "b.txt", "content": "x"}, "write"),
            ToolUse("look_process", {}, "look"),
        ],
        tools=["read_file", "write_file", look_process],
        working_dir=str(tmp_path),
        sandbox=given,
        require_sandbox=True,
    )  # fmt: skip

    assert answers == ["LOUD", "Replaced b.txt: 1 lines, 1 bytes", "upper True False"]
    assert not (tmp_path / "b.txt").exists()


def test_a_sandbox_that_is_not_here_is_refused_with_the_session(agent, scripted, tmp_path):
    """By its layer and why; there is no weaker one in its place."""
    with pytest.raises(cmdc.SandboxUnavailable) as caught:
        agent(scripted("Hi."), working_dir=str(tmp_path), sandbox=Missing)

    assert (caught.value.layer, caught.value.why) == ("moon", "it is on the other side")
    assert str(caught.value) == "start failed at sandbox: moon: it is on the other side"


@pytest.mark.parametrize("given", [None, cmdc.sandbox.Local(), "local", Local])
def test_what_commands_can_leave_is_none_that_can_be_required(agent, scripted, tmp_path, given):
    """Wherever that shows: ours is known before anything is sent, another one is asked."""
    with pytest.raises(cmdc.SandboxUnavailable, match="commands go where they like") as caught:
        agent(scripted("Hi."), working_dir=str(tmp_path), sandbox=given, require_sandbox=True)

    assert caught.value.layer == "local"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (3, "sandbox: expected a name, a class, an instance"),
        ("no such name", 'sandbox: expected the name of a sandbox, or "module:Class"'),
        ("locl", "sandbox: there is no built-in sandbox 'locl', did you mean local?"),
        (Unsure, "is no sandbox: give a cmdc.Sandbox class or instance"),
        (("local", {"rot": "."}), "sandbox: sandbox 'local': there is no option 'rot'"),
    ],
)
def test_what_is_no_sandbox_is_refused(agent, scripted, given, problem):
    """With what it would have to be."""
    with pytest.raises(cmdc.InvalidOptions) as caught:
        agent(scripted("Hi."), sandbox=given)

    assert problem in str(caught.value)
