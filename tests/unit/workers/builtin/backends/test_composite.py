"""Folders that are backends of their own: which one a path is in, and what is seen from above."""

import pytest

from cmdc_runtime.extensions.backend import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    Backend,
    ExecuteResult,
    LsResult,
)
from workers.builtin.backends.composite import Composite
from workers.builtin.backends.state import StateFiles


class Broken(StateFiles):
    """A backend whose listings fail, and that runs commands."""

    def ls(self, path):
        """Fail."""
        return LsResult(error="the disk is gone")

    def execute(self, command, timeout_s=60.0):
        """Say what was asked."""
        return ExecuteResult(output=f"{command} {timeout_s}", exit_code=0)


def state():
    return StateFiles(bytes_max=10_000, files_max=100)


@pytest.fixture
def parts():
    """The backends by their prefixes, "" for the default."""
    return {"": state(), "/a/": state(), "/a/b/": state(), "/deep/down/": state()}


@pytest.fixture
def both(parts):
    """The composite of them."""
    routes = {prefix: backend for prefix, backend in parts.items() if prefix}
    return Composite(parts[""], routes)


def paths(found):
    return [one.path for one in found]


@pytest.mark.parametrize(
    ("path", "prefix", "inner"),
    [
        ("/f", "", "/f"),
        ("/ab", "", "/ab"),
        ("/deep/f", "", "/deep/f"),
        ("/a/f", "/a/", "/f"),
        ("//a//f", "/a/", "/f"),
        ("/a/bc", "/a/", "/bc"),
        ("/a/b/f", "/a/b/", "/f"),
        ("/a/b/c/f", "/a/b/", "/c/f"),
        ("/deep/down/f", "/deep/down/", "/f"),
    ],
)
def test_the_longest_prefix_counts(both, parts, path, prefix, inner):
    """Its backend sees the path without it; the result has it again."""
    written = both.write(path, "x")
    both.edit(path, "x", "y")

    assert parts[prefix].read(inner).content == "y"
    assert both.read(written.path).content == "y"
    assert [len(part.glob("**").entries) for part in parts.values()].count(1) == 1


def test_prefixes_are_folders(both):
    """They are listed with the rest, and can't be files."""
    both.write("/z", "x")
    both.write("/a/c", "x")

    assert paths(both.ls("/").entries) == ["/a/", "/deep/", "/z"]
    assert paths(both.ls("/a").entries) == ["/a/b/", "/a/c"]
    assert paths(both.ls("/deep").entries) == ["/deep/down/"]
    assert both.ls("/deep/down").entries == ()
    assert both.ls("/no").error == FILE_NOT_FOUND
    assert both.write("/a", "x").error == both.write("/a/b", "x").error == IS_DIRECTORY
    assert both.read("/a/b/").error == IS_DIRECTORY


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("**/*.md", "/", ["/1.md", "/a/2.md", "/a/b/3.md", "/deep/4.md", "/deep/down/5.md"]),
        ("*/*.md", "/", ["/a/2.md", "/deep/4.md"]),
        ("a/**", "/", ["/a/2.md", "/a/b/3.md"]),
        ("down/*", "/deep", ["/deep/down/5.md"]),
        ("*", "/a/b", ["/a/b/3.md"]),
        ("b/*", "/a", ["/a/b/3.md"]),
    ],
)
def test_searches_go_through_all_backends(both, pattern, path, found):
    """A pattern begins where the search begins, and not at a prefix."""
    for name in ("/1.md", "/a/2.md", "/a/b/3.md", "/deep/4.md", "/deep/down/5.md"):
        both.write(name, "needle")

    assert paths(both.glob(pattern, path).entries) == found
    if "/" in pattern:
        assert paths(both.grep("needle", path, pattern).matches) == found


def test_a_search_below_prefixes_alone_finds_them(both):
    """Where the default has no such folder."""
    both.write("/deep/down/f", "needle")

    assert paths(both.grep("needle", "/deep").matches) == ["/deep/down/f"]
    assert paths(both.glob("**", "/deep").entries) == ["/deep/down/f"]


def test_what_a_prefix_hides_is_not_seen(both, parts):
    """Neither a folder of the default, nor a file that has its name."""
    parts[""].write("/a/hidden", "needle")
    parts[""].write("/deep/down", "needle")
    parts["/a/"].write("/b/hidden", "needle")

    assert both.grep("needle").matches == ()
    assert both.glob("**").entries == ()
    assert paths(both.ls("/deep").entries) == ["/deep/down/"]
    assert both.read("/a/hidden").error == FILE_NOT_FOUND


def test_files_are_moved_in_the_order_asked_for(both, parts):
    """Those of one backend at once, a bad path among them."""
    uploads = both.upload_files([("/a/f", b"1"), ("/f", b"2"), ("/../f", b"3"), ("/a/g", b"4")])
    downloads = both.download_files(["/a/g", "/no", "x", "/f", "/a/f"])

    assert [upload.error for upload in uploads] == [None, None, INVALID_PATH, None]
    assert [(done.path, done.content, done.error) for done in downloads] == [
        ("/a/g", b"4", None),
        ("/no", None, FILE_NOT_FOUND),
        ("x", None, INVALID_PATH),
        ("/f", b"2", None),
        ("/a/f", b"1", None),
    ]
    assert paths(parts["/a/"].ls("/").entries) == ["/f", "/g"]


def test_an_error_of_a_part_is_an_error(parts):
    """A listing without it would be wrong."""
    broken = Broken(bytes_max=10, files_max=1)

    assert Composite(broken, {"/a/": state()}).ls("/").error == "the disk is gone"
    assert Composite(state(), {"/a/": broken}).ls("/a").error == "the disk is gone"
    assert "no regular expression" in Composite(state(), {"/a/": state()}).grep("(").error


def test_commands_run_where_the_default_runs_them():
    """With the time they are given."""
    both = Composite(Broken(bytes_max=10, files_max=1), {"/a/": state()})

    assert both.execute("ls", 3.0).output == "ls 3.0"


def test_its_name_says_what_it_is_made_of(both, parts):
    """Each part with its prefix."""
    assert isinstance(both, Backend)
    assert all(part.id in both.id for part in parts.values())
    assert "/a/b/=" in both.id
