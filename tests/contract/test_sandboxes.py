"""One contract over all sandboxes of this machine's files; each row of ``KINDS`` is held to it."""

import asyncio
import contextlib
import tempfile
from functools import partial
from pathlib import Path

import pytest

from cmdc_runtime import beneath
from cmdc_runtime.errors import SandboxUnavailable
from cmdc_runtime.extensions.admission import as_sandbox
from cmdc_runtime.extensions.sandbox import (
    ExecuteSettings,
    GrepSettings,
    Sandbox,
    SandboxError,
    SandboxPlace,
)
from workers.builtin.sandboxes import bubblewrap, landlock, local
from workers.builtin.sandboxes.local import Local


class Plain(Local):
    """Changes files by its other operations, as a sandbox does that has nothing better."""

    change_file = Sandbox.change_file


# fmt: off
KINDS = {
    # name              made by             options                   the kernel follows links
    "local":           (local.create,       {},                       True),
    "local by names":  (local.create,       {},                       False),
    "not virtual":     (local.create,       {"virtual_mode": False},  True),
    "plain":           (Plain,              {},                       True),
    "landlock":        (landlock.create,    {},                       True),
    "bubblewrap":      (bubblewrap.create,  {},                       True),
}
# fmt: on
VIRTUAL = ("local", "local by names", "plain", "landlock", "bubblewrap")
MOVING = ("local", "local by names", "not virtual", "landlock", "bubblewrap")
"""Those that delete and move."""
TEXT = "one\ntwo\nthree\n"


@pytest.fixture(params=KINDS)
def sandbox(request, tmp_path, monkeypatch):
    """Return each sandbox, over an empty folder."""
    create, options, is_kernels = KINDS[request.param]
    if not is_kernels:
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    (tmp_path / "work").mkdir()
    sandbox = create(**options)
    try:
        sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(tmp_path / "work")))
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    return sandbox


@pytest.fixture
def folder(tmp_path):
    """Return the sandbox's folder."""
    return tmp_path / "work"


def refused(call, *arguments):
    """Return what is said of a call that fails."""
    with pytest.raises(SandboxError) as caught:
        call(*arguments)
    return str(caught.value)


def test_each_is_admitted(sandbox):
    """Agents take a built-in one as it is, without the look that any other one gets."""
    assert as_sandbox(sandbox) is sandbox


def test_what_is_written_is_read(sandbox, folder):
    """A file is made with its folders, replaced as a whole, and read in parts."""
    first, second = sandbox.write_file("a/b.txt", "x"), sandbox.write_file("a/b.txt", TEXT)
    part = sandbox.read_file("a/b.txt", 2, 1)

    assert (first.is_new, second.is_new, second.size_bytes) == (True, False, len(TEXT))
    assert sandbox.read_file("a/b.txt").text == TEXT
    assert (part.text, part.next_line) == ("two\n", 3)
    assert (folder / "a/b.txt").read_text() == TEXT


def test_a_passage_is_replaced_where_it_is_the_only_one(sandbox):
    """Not there, or there twice, is reported, and changes nothing."""
    sandbox.write_file("a", TEXT)

    assert sandbox.edit_file("a", "two", "2").line == 2
    assert "does not occur" in refused(sandbox.edit_file, "a", "two", "2")
    assert "more than once" in refused(sandbox.edit_file, "a", "e", "2")
    assert "are the same" in refused(sandbox.edit_file, "a", "one", "one")
    assert "it is a folder" in refused(sandbox.edit_file, ".", "one", "two")
    assert sandbox.read_file("a").text == "one\n2\nthree\n"


@pytest.mark.parametrize("path", ["", ".", "./", "a/", "a//", "a/.", "a/./", "new/", "new/."])
def test_a_path_of_a_folder_is_no_file(sandbox, folder, path):
    """It is refused by what makes it one, and what stands there without that stays."""
    sandbox.write_file("a", "x")
    calls = {
        "read": sandbox.read_file,
        "write": partial(sandbox.write_file, content="y"),
        "edit": partial(sandbox.edit_file, old="x", new="y"),
    }
    if not isinstance(sandbox, Plain):
        calls["change"] = partial(sandbox.change_file, change=lambda _: b"y")
    end = 'ends with "."' if path.endswith(".") else 'ends with "/"' if path else "is empty"
    for verb, call in calls.items():
        assert refused(call, path).startswith(
            f"Cannot {verb} {path}: it is a folder, since the path {end}; that of a file"
        )

    assert sorted(one.name for one in folder.iterdir()) == ["a"]
    assert (folder / "a").read_text() == "x"


@pytest.mark.parametrize("path", ["..", "a/..", "b/.."])
def test_a_path_that_goes_up_is_no_file(sandbox, folder, path):
    """It leads out where paths are judged by their text, and is a folder where they are not."""
    sandbox.write_file("a", "x")
    (folder / "b").mkdir()
    is_virtual = getattr(sandbox, "_is_virtual")  # noqa: B009 - as a test of what is chosen
    why = "it is outside of the working folder" if is_virtual else 'the path ends with ".."'

    assert why in refused(sandbox.write_file, path, "y")
    assert why in refused(sandbox.read_file, path)
    assert why in refused(sandbox.edit_file, path, "x", "y")


def test_a_file_is_changed_by_a_function(sandbox, folder):
    """It sees what is there, None for nothing; what it returns unchanged is not written."""
    seen = []

    def change(content):
        seen.append(content)
        return (content or b"") + b"x\r\n"

    sandbox.change_file("a/b", change)
    sandbox.change_file("a/b", change)
    before = (folder / "a/b").stat()
    sandbox.change_file("a/b", lambda content: content)
    sandbox.change_file("absent", lambda content: content)

    assert seen == [None, b"x\r\n"]
    assert (folder / "a/b").read_bytes() == b"x\r\nx\r\n"
    assert (folder / "a/b").stat().st_ino == before.st_ino
    assert not (folder / "absent").exists()


def test_a_file_that_can_t_be_changed_is_reported(sandbox, folder):
    """What is wrong with it, or what the function says; nothing has changed."""
    (folder / "binary").write_bytes(b"a\0b")

    def no(content):
        raise ValueError("not so")

    for path, why in (
        ("binary", "it is a binary file of 3 bytes"),
        (".", "it is a folder"),
        ("nul\0", "not so" if isinstance(sandbox, Plain) else "embedded null byte"),
        ("absent", "Cannot change absent: not so"),
    ):
        assert why in refused(sandbox.change_file, path, no)


def test_a_long_file_is_changed_as_a_whole(sandbox, folder):
    """However many parts it is read in."""
    text = "".join(f"{at} ÄÖ\n" for at in range(20_000))
    (folder / "long").write_text(text)
    sandbox.change_file("long", lambda content: content + b"end\n")

    assert (folder / "long").read_text() == text + "end\n"


@pytest.mark.parametrize("sandbox", MOVING, indirect=True)
def test_files_are_deleted_and_moved(sandbox, folder):
    """Not over others, and not links; a file that is moved keeps its mode."""
    sandbox.write_file("a", "x")
    sandbox.write_file("b", "y")
    (folder / "a").chmod(0o750)
    (folder / "link").symlink_to("b")

    def move(path, to):
        sandbox.change_file(path, lambda content: content + b"!", to=to)

    def delete(path):
        sandbox.change_file(path, lambda _: None)

    assert "something is there already" in refused(move, "a", "b")
    assert "it is a symbolic link" in refused(delete, "link")
    assert "it is a symbolic link" in refused(move, "link", "c")
    move("a", "c/d")
    delete("b")
    delete("absent")

    assert sorted(path.name for path in folder.rglob("*")) == ["c", "d", "link"]
    assert (folder / "c/d").read_text() == "x!"
    assert (folder / "c/d").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("sandbox", ["plain"], indirect=True)
def test_a_sandbox_without_better_neither_deletes_nor_moves(sandbox, folder):
    """It says so, and leaves the file as it was; what is no UTF-8 it leaves alone, too."""
    sandbox.write_file("a", "x")
    (folder / "latin").write_bytes(b"caf\xe9")

    assert "Cannot delete a: this sandbox can't" in refused(
        sandbox.change_file, "a", lambda _: None
    )
    with pytest.raises(SandboxError, match="Cannot move a: this sandbox can't"):
        sandbox.change_file("a", lambda content: content, to="b")
    assert "no UTF-8" in refused(sandbox.change_file, "latin", lambda _: b"x")
    assert sandbox.read_file("a").text == "x"


@pytest.mark.parametrize("sandbox", ["landlock", "bubblewrap"], indirect=True)
def test_what_is_protected_is_not_changed_by_a_function(sandbox, folder):
    """As it is not written; it is not deleted, and nothing is moved there."""
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/hooks/h").write_text("x")
    sandbox.write_file("a", "x")

    assert "is protected" in refused(sandbox.change_file, ".git/hooks/h", lambda _: None)
    with pytest.raises(SandboxError, match="is protected"):
        sandbox.change_file("a", lambda content: content, to=".git/hooks/a")
    assert sorted(path.name for path in (folder / ".git/hooks").iterdir()) == ["h"]


MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_no_part_of_a_text(sandbox, folder):
    """Reads and searches are without it; one further on in a file is text."""
    (folder / "a").write_bytes(MARK + b"import x\nimport y\n" + MARK + b"z\n")
    (folder / "empty").write_bytes(MARK)
    found = [sandbox.grep("^import", place).matches for place in (".", "a")]

    assert sandbox.read_file("a").text == "import x\nimport y\n\ufeffz\n"
    assert sandbox.read_file("a", 3).text == "\ufeffz\n"
    assert not sandbox.read_file("empty").text
    assert [[(at.line, at.content) for at in one] for one in found] == [
        [(1, "import x"), (2, "import y")],
        [(1, "import x"), (2, "import y")],
    ]
    assert not sandbox.grep("", "empty").matches
    assert [at.line for at in sandbox.grep("\ufeff").matches] == [3]


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda sandbox: sandbox.edit_file("a", "one", "1"), b"1\ntwo\n"),
        (lambda sandbox: sandbox.edit_file("a", "one\ntwo\n", ""), b""),
        (lambda sandbox: sandbox.edit_file("a", "two\n", ""), b"one\n"),
        (lambda sandbox: sandbox.write_file("a", "new"), b"new"),
        (lambda sandbox: sandbox.write_file("a", ""), b""),
        (lambda sandbox: sandbox.write_file("a", "\ufeffnew"), b"new"),
    ],
    ids=["first", "all", "last", "written", "emptied", "written with it"],
)
def test_a_byte_order_mark_is_kept(sandbox, folder, change, after):
    """Once, whatever becomes of the text behind it; where none was, none comes."""
    (folder / "a").write_bytes(MARK + b"one\ntwo\n")
    change(sandbox)
    sandbox.write_file("b", "x")
    sandbox.write_file("b", "y")

    assert (folder / "a").read_bytes() == MARK + after
    assert (folder / "b").read_bytes() == b"y"
    assert "does not occur" in refused(sandbox.edit_file, "a", "\ufeff", "x")


def test_a_file_that_is_written_with_a_byte_order_mark_has_one(sandbox, folder):
    """That is how one is made; its size counts it."""
    written = sandbox.write_file("a", "\ufeffx")

    assert (folder / "a").read_bytes() == MARK + b"x"
    assert written.size_bytes == 4


def test_a_folder_is_listed(sandbox):
    """Sorted, with the kind of each and the size of files."""
    sandbox.write_file("b", "12")
    sandbox.write_file("a/c", "")
    listing = sandbox.list_dir()

    assert [(one.name, one.type, one.size_bytes) for one in listing.entries] == [
        ("a", "directory", 0),
        ("b", "file", 2),
    ]
    assert listing.left_out == 0


def test_files_are_found_by_their_paths(sandbox):
    """Bounded, with the number of those that are left out."""
    for name in ("a.py", "b.py", "src/c.py", "src/d.md"):
        sandbox.write_file(name, "x")
    found = sandbox.glob("**/*.py", max_results=2)

    assert [one.path for one in found.matches] == ["a.py", "b.py"]
    assert found.left_out == 1
    assert [one.path for one in sandbox.glob("*", "src").matches] == ["src/c.py", "src/d.md"]
    assert [(one.path, one.type) for one in sandbox.glob("*/").matches] == [("src/", "directory")]


def test_lines_are_found_by_an_expression(sandbox):
    """With those around them, which are marked as such."""
    sandbox.write_file("a.txt", TEXT)
    sandbox.write_file("b.md", TEXT)
    found = sandbox.grep("tw", settings=GrepSettings(include="*.txt", context_lines=1))
    one = sandbox.grep("t", settings=GrepSettings(max_results=1))

    assert [(at.file, at.line, at.content, at.is_match) for at in found.matches] == [
        ("a.txt", 1, "one", False),
        ("a.txt", 2, "two", True),
        ("a.txt", 3, "three", False),
    ]
    assert not found.is_cut
    assert ([at.line for at in one.matches], one.is_cut) == ([2], True)


def test_a_command_runs_in_the_folder(sandbox, folder):
    """Its output and status come back; a failure is no error."""

    async def both():
        printed = await sandbox.execute("pwd; echo $X", ExecuteSettings(env={"X": "y"}))
        return printed, await sandbox.execute("echo no >&2; exit 3")

    well, failed = asyncio.run(both())

    assert (well.output, well.exit_status) == (f"{folder}\ny\n", 0)
    assert (failed.output, failed.exit_status) == ("no\n", 3)


@pytest.mark.parametrize("shell", [None, "sh"])
def test_a_command_is_as_long_as_an_argument_may_be(sandbox, shell):
    """Whatever stands before it; one byte more is refused by that number."""
    command = "echo x #".ljust(local.COMMAND_BYTES_MAX, "'")
    settings = ExecuteSettings(shell=shell)
    ended = asyncio.run(sandbox.execute(command, settings))
    with pytest.raises(SandboxError, match="it has 131072 bytes, and 131071 at most are taken"):
        asyncio.run(sandbox.execute(f"{command}'", settings))

    assert (ended.output, ended.exit_status) == ("x\n", 0)


def test_a_command_is_killed_when_its_time_is_up(sandbox):
    """And says so by having no status."""
    ended = asyncio.run(sandbox.execute("sleep 60", ExecuteSettings(timeout_s=0.2)))

    assert ended.exit_status is None


def test_what_is_there_exists(sandbox):
    """Files and folders; nothing else, whatever the path."""
    sandbox.write_file("a/b", "")

    assert sandbox.file_exists("a")
    assert sandbox.file_exists("a/b")
    assert not sandbox.file_exists("a/c")
    assert not sandbox.file_exists("a/b/c")
    assert not sandbox.file_exists("nul\0")
    assert not sandbox.file_exists("\ud800")


@pytest.mark.parametrize("name", ["read_file", "list_dir", "write_file"])
def test_a_path_is_named_as_it_was_given(sandbox, name):
    """In every error, and before what is wrong with it."""
    arguments = ("absent/\0",) if name != "write_file" else ("absent/\0", "x")
    verb = {"read_file": "read", "list_dir": "list", "write_file": "write"}[name]

    assert refused(getattr(sandbox, name), *arguments) == (
        f"Cannot {verb} absent/\0: embedded null byte"
    )


@pytest.mark.parametrize("sandbox", VIRTUAL, indirect=True)
def test_links_lead_to_what_is_below_the_folder(sandbox, folder):
    """By any way that stays in it; files behind them are changed in place."""
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/link").symlink_to("../real")
    (folder / "a/b/up").symlink_to("..")
    sandbox.write_file("a/link", "x")
    sandbox.edit_file("a/b/up/link", "x", "y")

    assert (folder / "real").read_text() == "y"
    assert (folder / "a/link").is_symlink()
    assert sandbox.read_file("a/b/up/b/up/link").text == "y"
    assert sandbox.read_file(f"{folder}/real").text == "y"


def test_the_folder_may_be_given_by_a_link(tmp_path):
    """Paths below the link are paths below the folder; the link is not read again."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    sandbox = Local()
    sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(tmp_path / "link")))
    sandbox.write_file(f"{tmp_path}/link/a", "x")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/etc")

    assert sandbox.read_file("a").text == "x"
    assert not sandbox.file_exists("passwd")


@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
@pytest.mark.parametrize("option", ["writable", "readable"])
def test_no_link_of_the_working_folder_gives_what_lies_outside(tmp_path, kind, option):
    """Whoever wrote the project has made it; by its own path the same is given."""
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "work/data").symlink_to("../out")
    place = SandboxPlace(session_id="s-1", working_dir=str(tmp_path / "work"))
    create = KINDS[kind][0]
    more = {"writable": ["."]} if option == "readable" else {}
    paths = [".", "data"] if option == "writable" else ["data"]
    if option == "writable":
        with pytest.raises(SandboxUnavailable, match="give the absolute path"):
            create(writable=paths).begin(place)
        paths = [".", str(tmp_path / "out")]
    else:
        with pytest.raises(SandboxUnavailable, match="give the absolute path"):
            create(readable=paths, **more).begin(place)
        paths = [str(tmp_path / "out")]
    create(**{**more, option: paths}).begin(place)


@pytest.mark.parametrize("kind", ["local", "landlock"])
def test_output_waits_for_no_pipe_in_the_place_of_its_file(tmp_path, kind):
    """A command has put it there; the result says that the text could not be kept."""
    sandbox = KINDS[kind][0]()
    sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(tmp_path)))
    flood = "yes | head -c 9000000; rm .cmdc/o.txt; mkfifo .cmdc/o.txt; yes | head -c 9000000"
    settings = ExecuteSettings(output_file=".cmdc/o.txt", timeout_s=60)
    done = asyncio.run(asyncio.wait_for(sandbox.execute(flood, settings), 60))

    assert "could not be kept" in done.output


@pytest.fixture
def home_path():
    """A folder that is not in one of those that ``bwrap`` makes anew."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".linked-") as folder:
        yield Path(folder).resolve()


@pytest.mark.parametrize("kind", ["local", "plain", "landlock", "bubblewrap"])
def test_a_command_runs_in_the_folder_that_a_link_gives(home_path, kind):
    """What it makes is there, its own name for the folder is one that it finds, no home instead."""
    (home_path / "real").mkdir()
    (home_path / "link").symlink_to("real")
    create, options, _ = KINDS[kind]
    sandbox = create(**options)
    try:
        place = SandboxPlace(session_id="s-1", working_dir=str(home_path / "link"))
        sandbox.begin(place)
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    done = asyncio.run(sandbox.execute("touch made; pwd -P; pwd"))
    physical, named = done.output.splitlines()

    assert (home_path / "real" / "made").exists()
    assert physical == str(home_path / "real")
    assert named in {str(home_path / "link"), str(home_path / "real")}
    assert (named == physical) is (kind == "bubblewrap")


@pytest.mark.parametrize("is_kernels", [True, False])
def test_a_folder_that_was_replaced_by_a_link_is_not_reached(tmp_path, is_kernels, monkeypatch):
    """Whoever moves the working folder away moves nothing else into its place."""
    if not is_kernels:
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    (tmp_path / "work").mkdir()
    sandbox = Local()
    sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(tmp_path / "work")))
    (tmp_path / "work").rename(tmp_path / "away")
    (tmp_path / "work").symlink_to("/etc")

    assert not sandbox.file_exists("passwd")
    assert "Cannot read passwd: " in refused(sandbox.read_file, "passwd")
    with pytest.raises(SandboxError):
        sandbox.write_file("a", "x")


def descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_operations_leave_no_descriptor(sandbox):
    """Neither those that work nor those that fail."""
    before = descriptors()
    for path in ("a/b", "a/b/c", "\0", "~"):
        for call in (
            partial(sandbox.write_file, path, "x"),
            partial(sandbox.read_file, path),
            partial(sandbox.edit_file, path, "x", "y"),
            partial(sandbox.change_file, path, lambda _: b"z"),
            partial(sandbox.change_file, path, lambda _: b"z", to="c/d"),
            partial(sandbox.change_file, path, lambda _: None),
            partial(sandbox.list_dir, path),
            partial(sandbox.grep, "x", path),
            partial(sandbox.glob, "**", path),
        ):
            with contextlib.suppress(SandboxError):
                call()

    assert descriptors() == before
