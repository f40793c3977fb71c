"""What must not leave the folder of ``Local``: a corpus of paths, and races on their way.

Each path is tried by every operation, where the kernel follows links and where we do. Surrogates,
which no file of TOML holds, stand here.
"""

import contextlib
import ctypes
import os
import threading
import tomllib
from pathlib import Path

import pytest

from cmdc_runtime import beneath
from cmdc_runtime.extensions.sandbox import SandboxError, SandboxPlace
from workers.builtin.sandboxes.local import Local

CORPUS = tomllib.loads((Path(__file__).with_name("paths.toml")).read_text(encoding="utf-8"))["path"]
SECRET = "hunter2"
KEPT = "kept text"
AT_FDCWD = -100
RENAME_EXCHANGE = 2
LIBC = ctypes.CDLL(None, use_errno=True)
RACE_TURNS = 400
"""Exchanges of a folder for a link; without the guard a handful of them is enough."""
# fmt: off
LINKS = {
    "to_file":            "../out/secret",
    "to_file_absolute":   "{out}/secret",
    "to_folder":          "../out",
    "to_folder_absolute": "{out}",
    "to_root":            "/",
    "to_above":           "..",
    "a/b/to_far":         "../../..",
    "a/b/to_kept":        "../../kept",
    "chain1":             "a/chain2",
    "a/chain2":           "../chain3",
    "chain3":             "a/../../out/secret",
    "chain_in":           "a/chain_in2",
    "a/chain_in2":        "b/../../chain_in3",
    "chain_in3":          "./a/b/to_kept",
    "to_out_and_in":      "../work/kept",
    "to_kept_absolute":   "{work}/kept",
    "to_magic_root":      "/proc/self/root",
    "to_magic_cwd":       "/proc/self/cwd",
    "to_magic_fd":        "/proc/self/fd",
    "dangling":           "../out/new",
    "loop":               "loop",
    "ping":               "pong",
    "pong":               "ping",
}
SAYS = {
    "outside": "it is outside of the working folder",
    "missing": "No such file or directory",
}
OPERATIONS = {
    "read":   lambda sandbox, path: sandbox.read_file(path).text,
    "write":  lambda sandbox, path: sandbox.write_file(path, KEPT),
    "edit":   lambda sandbox, path: sandbox.edit_file(path, KEPT, "new"),
    "list":   lambda sandbox, path: sandbox.list_dir(path),
    "grep":   lambda sandbox, path: sandbox.grep(".", path),
    "glob":   lambda sandbox, path: sandbox.glob("*", path),
}
# fmt: on


@pytest.fixture(params=["by the kernel", "by names"])
def tree(request, tmp_path, monkeypatch):
    """Return the folder of a sandbox with what leads out of it, and one beside with a secret."""
    if request.param == "by names":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    work, out = tmp_path / "work", tmp_path / "out"
    (work / "a/b").mkdir(parents=True)
    out.mkdir()
    (tmp_path / "workx").mkdir()
    for secret in (out / "secret", tmp_path / "workx/secret"):
        secret.write_text(SECRET)
    (work / "kept").write_text(KEPT)
    for name, target in LINKS.items():
        (work / name).symlink_to(target.format(work=work, out=out))
    for number in range(50):
        (work / f"many{number}").symlink_to(f"many{number + 1}")
    (work / "many50").symlink_to("kept")
    return work


def begun(work):
    sandbox = Local()
    sandbox.begin(SandboxPlace(session_id="s-1", working_dir=str(work)))
    return sandbox


def written_out(path, work):
    """Return a path of the corpus with its places put in."""
    return path.format(
        work=work,
        out=work.parent / "out",
        name=work.name,
        long="n" * 256,
        longer="n" * 200 + "/n" * 2500,
        deep="d/" * 256 + "f",
    )


def outcome(call, sandbox, path):
    """Return what an operation says, be that its answer or why not."""
    try:
        return repr(call(sandbox, path))
    except SandboxError as error:
        return str(error)


def outside(work):
    """Return all that lies beside the folder."""
    places = (one for one in work.parent.iterdir() if one != work)
    beside = [path for place in places for path in (place, *place.rglob("*"))]
    return {path: path.read_text() if path.is_file() else None for path in beside}


def entries():
    return [pytest.param(one, id=f"{at:02} {one['why']}") for at, one in enumerate(CORPUS)]


def test_the_corpus_has_every_kind():
    """So many, and none twice."""
    assert len(CORPUS) >= 55
    assert len({one["path"] for one in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("entry", [one for one in entries() if one.values[0]["says"] != "inside"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_path_that_leads_out_leads_nowhere(tree, entry, operation):
    """By no operation: nothing outside is read, made or changed, and the refusal says why."""
    before, path = outside(tree), written_out(entry["path"], tree)
    said = outcome(OPERATIONS[operation], begun(tree), path)
    is_made = operation == "write" and entry["says"] == "missing"

    assert SECRET not in said
    assert outside(tree) == before
    if not is_made:
        assert said.endswith(SAYS.get(entry["says"], entry["says"]))
    assert begun(tree).file_exists(path) is is_made


@pytest.mark.parametrize("entry", [one for one in entries() if one.values[0]["says"] == "inside"])
def test_a_path_that_stays_is_followed(tree, entry):
    """To be read, changed and written."""
    sandbox, path = begun(tree), written_out(entry["path"], tree)

    assert sandbox.read_file(path).text == KEPT
    assert sandbox.edit_file(path, KEPT, "changed").line == 1
    assert (tree / "kept").read_text() == "changed"
    assert not sandbox.write_file(path, "written").is_new
    assert (tree / "kept").read_text() == "written"


@pytest.mark.parametrize("path", ["\ud800", "a/\udfff/b", "\ud83d\ude00", "../\udc80"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_half_a_character_is_no_path(tree, path, operation):
    """Unless it stands for a byte of a name that is no text, and that is not there."""
    before = outside(tree)
    said = outcome(OPERATIONS[operation], begun(tree), path)

    assert said.startswith("Cannot ")
    assert "surrogates not allowed" in said or said.endswith(SAYS["outside"])
    assert outside(tree) == before


def test_a_search_shows_nothing_of_what_links_lead_to(tree):
    """Not by lines, not by names, not by what kind of thing is there."""
    sandbox = begun(tree)
    lines, names = sandbox.grep(SECRET), sandbox.glob("**")
    kinds = {entry.name: entry.type for entry in sandbox.list_dir().entries}

    assert lines.matches == ()
    assert not [one.path for one in names.matches if "secret" in one.path]
    assert kinds["to_folder"] == kinds["to_root"] == "file"


@contextlib.contextmanager
def exchanged(*ways):
    """Have another thread exchange what lies at places, over and over, until this one is done."""
    is_over = threading.Event()

    def exchange():
        while not is_over.is_set():
            for one, other in ways:
                swap(one, other)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def swap(one, other):
    """Exchange two names in one step, so that there is always one of them."""
    names = (ctypes.c_char_p(os.fsencode(one)), ctypes.c_char_p(os.fsencode(other)))
    here = ctypes.c_int(AT_FDCWD)
    if LIBC.renameat2(here, names[0], here, names[1], RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["read", "write", "edit", "list", "grep", "glob"])
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(tree, operation):
    """However often: each turn has what is inside, or is refused."""
    (tree / "way").mkdir()
    (tree / "way/secret").write_text(KEPT)
    (tree / "other").symlink_to("../out")
    sandbox, before = begun(tree), outside(tree)
    path = "way" if operation in {"list", "grep", "glob"} else "way/secret"
    call = OPERATIONS[operation]
    with exchanged((tree / "way", tree / "other")):
        said = {outcome(call, sandbox, path) for _ in range(RACE_TURNS)}

    assert not [one for one in said if SECRET in one]
    assert outside(tree) == before
    assert len(said) > 0


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["read", "write", "edit"])
def test_a_file_that_becomes_a_link_meanwhile_leads_nowhere(tree, operation):
    """The last name of a path is no different."""
    (tree / "file").write_text(KEPT)
    (tree / "link").symlink_to("../out/secret")
    sandbox, before = begun(tree), outside(tree)
    with exchanged((tree / "file", tree / "link")):
        said = {outcome(OPERATIONS[operation], sandbox, "file") for _ in range(RACE_TURNS)}

    assert not [one for one in said if SECRET in one]
    assert outside(tree) == before


@pytest.mark.slow
def test_a_folder_that_is_moved_out_meanwhile_leads_nowhere(tree):
    """A link with ".." is followed from where its folder is, and that is not outside."""
    for folder in (tree / "in/deep", tree / "deep"):
        folder.mkdir(parents=True)
        (folder / "up").symlink_to("../../kept")
    sandbox, before = begun(tree), outside(tree)
    (tree.parent / "kept").write_text(SECRET)
    with exchanged((tree / "in/deep", tree / "deep")):
        said = {outcome(OPERATIONS["read"], sandbox, "in/deep/up") for _ in range(RACE_TURNS)}

    assert not [one for one in said if SECRET in one]
    (tree.parent / "kept").unlink()
    assert outside(tree) == before
