"""A backend as the files of a session's tools: over a folder, and in memory."""

import asyncio

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.admission import as_sandbox
from cmdc_runtime.extensions.backend import Backend, ExecuteResult
from cmdc_runtime.extensions.backend_sandbox import BackendSandbox
from cmdc_runtime.extensions.sandbox import (
    READ_BYTES_MAX,
    ExecuteSettings,
    GrepSettings,
    SandboxError,
    SandboxPlace,
)
from workers.builtin.backends._tree import Filesystem
from workers.builtin.backends.state import StateFiles

TEXT = "one\ntwo\nthree\n"


class Echoing(Filesystem):
    """Says what commands it was given."""

    def execute(self, command, timeout_s=60.0):
        return ExecuteResult(output=f"{command} within {timeout_s:g}", exit_code=3)


@pytest.fixture(params=["folder", "memory"])
def sandbox(request, tmp_path):
    """Return a sandbox over each kind, empty."""
    backend = (
        Echoing(str(tmp_path))
        if request.param == "folder"
        else StateFiles(bytes_max=2**20, files_max=100)
    )
    made = as_sandbox(backend)
    made.begin(SandboxPlace(session_id="s-1", working_dir="/work/dir"))
    return made


def refused(call, *arguments, **more):
    """Return what is said of a call that fails."""
    with pytest.raises(SandboxError) as caught:
        call(*arguments, **more)
    return str(caught.value)


def test_files_are_those_of_the_backend(sandbox):
    """A relative path, one below the working folder and one from the top mean the same file."""
    first, second = sandbox.write_file("a/b.txt", "x"), sandbox.write_file("/a/b.txt", TEXT)
    part = sandbox.read_file("/work/dir/a/b.txt", 2, 1)

    assert (first.is_new, second.is_new, second.size_bytes) == (True, False, len(TEXT))
    assert (part.text, part.next_line) == ("two\n", 3)
    assert sandbox.edit_file("a/b.txt", "two", "2").line == 2
    assert "Cannot edit a/b.txt: " in refused(sandbox.edit_file, "a/b.txt", "two", "2")
    assert refused(sandbox.read_file, "absent") == "Cannot read absent: file not found"
    assert "invalid path" in refused(sandbox.read_file, "../x")


@pytest.mark.parametrize("path", ["", ".", "a/", "a/.", "a/..", "new/", "new/."])
def test_a_path_of_a_folder_is_no_file(sandbox, path):
    """It is refused, whatever the backend makes of it."""
    sandbox.write_file("a", "x")
    for verb, call in (
        ("read", lambda: sandbox.read_file(path)),
        ("write", lambda: sandbox.write_file(path, "y")),
        ("edit", lambda: sandbox.edit_file(path, "x", "y")),
        ("change", lambda: sandbox.change_file(path, lambda _: b"y")),
    ):
        assert refused(call).startswith(f"Cannot {verb} {path}: it is a folder, since the path ")

    assert [one.name for one in sandbox.list_dir().entries] == ["a"]
    assert sandbox.read_file("a").text == "x"


def test_what_is_there_is_listed_and_found(sandbox):
    """Files with their sizes; of folders a search finds none, and says so."""
    for name in ("a.py", "b.py", "src/c.py"):
        sandbox.write_file(name, TEXT)
    listing = sandbox.list_dir()
    found = sandbox.glob("**/*.py", max_results=2)

    assert [(one.name, one.type, one.size_bytes) for one in listing.entries] == [
        ("a.py", "file", len(TEXT)),
        ("b.py", "file", len(TEXT)),
        ("src", "directory", 0),
    ]
    assert [one.path for one in found.matches] == ["a.py", "b.py"]
    assert found.left_out == 1
    assert [one.path for one in sandbox.glob("*", "src").matches] == ["src/c.py"]
    assert sandbox.glob("*/").notes
    assert [sandbox.file_exists(one) for one in ("a.py", "src", "src/c.py", "x", "a.py/x")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_lines_are_found_with_those_around_them(sandbox):
    """Which are marked as such; no more than are asked for."""
    sandbox.write_file("a.txt", TEXT)
    sandbox.write_file("b.md", TEXT)
    found = sandbox.grep("tw", settings=GrepSettings(include="*.txt", context_lines=1))
    one = sandbox.grep("t", settings=GrepSettings(max_results=1))

    assert [(at.file, at.line, at.content, at.is_match) for at in found.matches] == [
        ("a.txt", 1, "one", False),
        ("a.txt", 2, "two", True),
        ("a.txt", 3, "three", False),
    ]
    assert ([at.line for at in one.matches], one.is_cut) == ([2], True)


def test_a_part_is_bounded_in_bytes(sandbox):
    """Whole lines where there are some; of a longer one its beginning."""
    sandbox.write_file("long", "x" * 30_000 + "\n" + "y" * 30_000 + "\nend\n")
    sandbox.write_file("wide", "x" * (READ_BYTES_MAX + 9) + "\nend\n")
    first, wide = sandbox.read_file("long"), sandbox.read_file("wide")

    assert (len(first.text), first.next_line) == (30_001, 2)
    assert (len(wide.text), wide.next_line, wide.is_cut) == (READ_BYTES_MAX, 2, True)
    assert sandbox.read_file("wide", 2).text == "end\n"
    sandbox.write_file("odd", "a\x0cb\u2028c\r\nd" + "\n" * 60_000)
    assert sandbox.read_file("odd", 1, 1).text == "a\x0cb\u2028c\r\n"


def test_a_file_is_changed_by_a_function(sandbox):
    """Byte by byte; a backend can't delete or move, and says so."""
    sandbox.change_file("a", lambda content: (content or b"") + b"x\r\n")
    sandbox.change_file("a", lambda content: content + b"\xff")

    def no(content):
        raise ValueError("not so")

    assert refused(sandbox.change_file, "a", no) == "Cannot change a: not so"
    assert "Cannot delete a" in refused(sandbox.change_file, "a", lambda _: None)
    assert "Cannot move a" in refused(sandbox.change_file, "a", lambda content: content, to="b")
    sandbox.change_file("a", lambda content: content.replace(b"x", b"y"))
    assert sandbox.read_file("a").text == "y\r\n\N{REPLACEMENT CHARACTER}"


def test_commands_are_the_backends(tmp_path):
    """With their time; one that runs none says so."""
    echoing, dumb = (
        BackendSandbox(Echoing(str(tmp_path))),
        BackendSandbox(StateFiles(bytes_max=2**20, files_max=100)),
    )
    done = asyncio.run(echoing.execute("ls", ExecuteSettings(timeout_s=5)))

    assert (done.output, done.exit_status) == ("ls within 5", 3)
    with pytest.raises(SandboxError, match=r"Cannot run the command: .* runs no commands"):
        asyncio.run(dumb.execute("ls"))


def test_a_backend_is_taken_in_every_form(tmp_path):
    """As a sandbox is: an instance, a class with options, and its name; what fails is reported."""
    name = f"{Filesystem.__module__}:Filesystem"
    options = {"root_dir": str(tmp_path)}

    assert isinstance(as_sandbox((Filesystem, options)), BackendSandbox)
    assert isinstance(as_sandbox((name, options)), BackendSandbox)
    for wrong in (Filesystem, Backend, (Filesystem(str(tmp_path)), options)):
        with pytest.raises(InvalidOptions, match="backend"):
            as_sandbox(wrong)
