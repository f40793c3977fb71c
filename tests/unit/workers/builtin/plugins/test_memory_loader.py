"""The memory loader: which files it shows, how much of them, and when it looks again."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit, MemoryContents, checked_actions
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeTool, SessionStart
from cmdc_runtime.extensions.plugin import settings_of
from workers.builtin.plugins._memory_files import MEMORY_BYTES_MAX, NAME_CHARS_MAX
from workers.builtin.plugins.memory_loader import MemoryLoader

CUT = f"\n[the file is longer; its first {MEMORY_BYTES_MAX} bytes are shown]"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The session's working folder, beside a home."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def context(here, **shown):
    return PluginContext(session_id="s-1", working_dir=str(here), memory_contents=shown)


def started(here, *files, **shown):
    """Return what the plugin says when the session starts."""
    options = {"memory_files": files} if files else {}
    return MemoryLoader(**options).session_start(SessionStart(), context(here, **shown))


def changed(plugin, here, shown=None, tool="write_file"):
    """Return what the plugin says to a tool's result."""
    event = AfterTool(tool, "call_1", "ok", is_error=False)
    return plugin.after_tool(event, context(here, **(shown or {})))


def shows(actions):
    """Return what is shown from here on."""
    [contents] = [
        action.name.contents for action in actions if isinstance(action.name, MemoryContents)
    ]
    return contents


def event(actions):
    """Return what observers hear."""
    [payload] = [action.payload for action in actions if action.name == "memory_loaded"]
    return payload


def test_the_file_of_the_working_folder_is_shown(here):
    """``AGENTS.md`` unless the options say otherwise."""
    (here / "AGENTS.md").write_text("Use tabs. ü\n")

    assert started(here) == [
        Emit(MemoryContents(contents={"AGENTS.md": "Use tabs. ü\n"})),
        Emit("memory_loaded", {"files": {"AGENTS.md": 13}, "cut": [], "unread": {}}),
    ]


@pytest.mark.parametrize("content", [None, "", " \n\t\n"])
def test_nothing_to_show_says_nothing(here, content):
    """A file that is missing or empty is left out."""
    if content is not None:
        (here / "AGENTS.md").write_text(content)

    assert started(here) == []


def test_files_are_shown_in_their_order_by_the_names_they_were_given(here, tmp_path):
    """Wherever they are: the application names them, and one that it names may be a link."""
    absolute = tmp_path / "team.md"
    for path in (here / "a.md", here / "d" / "b.md", absolute, tmp_path / "home" / "me.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
    (tmp_path / "alias.md").symlink_to(absolute)
    (here / "link.md").symlink_to("d/b.md")
    names = ["d/b.md", "a.md", str(absolute), "~/me.md", "../team.md", "link.md", "no.md", "a.md/x"]
    names += ["../alias.md", str(tmp_path / "alias.md")]
    contents = shows(started(here, *names))

    assert list(contents.items()) == [
        ("d/b.md", "b.md"), ("a.md", "a.md"), (str(absolute), "team.md"), ("~/me.md", "me.md"),
        ("../team.md", "team.md"), ("link.md", "b.md"),
        ("../alias.md", "team.md"), (str(tmp_path / "alias.md"), "team.md"),
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["file", "folder", "absolute", "pipe"])
def test_a_file_that_a_tool_has_led_out_is_not_shown(here, tmp_path, way):
    """Whatever the link is; the event and the log name the file and the way out, once."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "AGENTS.md").write_text("secret")
    name = "AGENTS.md"
    if way == "folder":
        (here / "d").symlink_to(tmp_path / "out")
        name = "d/AGENTS.md"
    elif way == "pipe":
        os.mkfifo(here / name)
    else:
        (here / name).symlink_to(tmp_path / "out" / "AGENTS.md")
    given = str(here / name) if way == "absolute" else name
    with capture_logs() as logs:
        actions = started(here, given)

    assert [action.name for action in actions] == ["memory_loaded"]
    why = event(actions)["unread"][given]
    assert ("pipe" if way == "pipe" else "give the absolute path") in why
    assert [(one["event"], one["file"]) for one in logs] == [("memory.unread", given)]


def test_a_long_file_is_cut_and_says_so(here):
    """To the model, and to observers."""
    (here / "AGENTS.md").write_text("x" * (MEMORY_BYTES_MAX + 1))
    (here / "just.md").write_text("x" * MEMORY_BYTES_MAX)
    actions = started(here, "AGENTS.md", "just.md")

    assert shows(actions) == {
        "AGENTS.md": "x" * MEMORY_BYTES_MAX + CUT,
        "just.md": "x" * MEMORY_BYTES_MAX,
    }
    assert event(actions)["cut"] == ["AGENTS.md"]


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b"caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
        (b"\xff" * MEMORY_BYTES_MAX, "\N{REPLACEMENT CHARACTER}" * (MEMORY_BYTES_MAX // 3)),
        ("ü".encode() * MEMORY_BYTES_MAX, "ü" * (MEMORY_BYTES_MAX // 2)),
        (b"x" + "ü".encode() * MEMORY_BYTES_MAX, "x" + "ü" * (MEMORY_BYTES_MAX // 2 - 1)),
    ],
    ids=["latin", "bytes", "characters", "half a character"],
)
def test_what_is_shown_is_text_within_the_bound(here, content, begins):
    """Whatever the bytes are."""
    (here / "AGENTS.md").write_bytes(content)
    [text] = shows(started(here)).values()

    assert text.removesuffix(CUT) == begins
    assert len(text.encode()) <= MEMORY_BYTES_MAX + len(CUT)


def test_as_many_files_as_may_be_named_fit(here):
    """Each as large as one may be."""
    names = [f"{number}.md" for number in range(12)]
    for name in names:
        (here / name).write_bytes(b"\xff" * MEMORY_BYTES_MAX)

    assert len(checked_actions(started(here, *names), "session_start")) == 2


def test_what_cannot_be_read_is_reported(here):
    """The other files are shown, and the session starts."""
    (here / "folder.md").mkdir()
    (here / "binary.md").write_bytes(b"\0\1")
    os.mkfifo(here / "pipe.md")
    (here / "a.md").write_text("a")
    actions = started(here, "folder.md", "binary.md", "pipe.md", "a.md")

    assert shows(actions) == {"a.md": "a"}
    assert sorted(event(actions)["unread"]) == ["binary.md", "folder.md", "pipe.md"]
    assert started(here, "folder.md")[0].payload["files"] == {}


def test_a_long_name_is_shown_by_its_end(here):
    """A title has a bound."""
    deep = here / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    (deep / "a.md").write_text("a")
    [name] = shows(started(here, str(deep / "a.md")))

    assert len(name) == NAME_CHARS_MAX
    assert name.startswith("…")
    assert name.endswith("e/a.md")


# --- again --------------------------------------------------------------------------------------


def test_a_successor_says_nothing_new(here):
    """What is shown already is not shown again; observers hear that it was read."""
    (here / "AGENTS.md").write_text("a")
    actions = started(here, **{"AGENTS.md": "a"})

    assert [action.name for action in actions] == ["memory_loaded"]


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_file_that_a_tool_changed_is_shown_anew(here, tool):
    """As it is then."""
    plugin = MemoryLoader()
    (here / "AGENTS.md").write_text("b")
    actions = changed(plugin, here, {"AGENTS.md": "a"}, tool)

    assert shows(actions) == {"AGENTS.md": "b"}
    assert event(actions)["files"] == {"AGENTS.md": 1}


def test_a_change_of_another_file_says_nothing(here):
    """The memory is as it was."""
    (here / "AGENTS.md").write_text("a")

    assert changed(MemoryLoader(), here, {"AGENTS.md": "a"}) == []


def test_a_file_that_is_gone_is_shown_no_more(here):
    """Others stay."""
    (here / "a.md").write_text("a")
    plugin = MemoryLoader(memory_files=["a.md", "b.md"])

    assert shows(changed(plugin, here, {"a.md": "a", "b.md": "b"})) == {"a.md": "a"}


def test_reloading_can_be_switched_off(here):
    """The files are those of the start."""
    plugin = MemoryLoader(auto_reload=False)
    (here / "AGENTS.md").write_text("b")

    assert changed(plugin, here, {"AGENTS.md": "a"}) == []


def test_other_tools_are_not_heard_of():
    """Reading files after each call of any tool would be waste."""
    heard = settings_of(MemoryLoader(), "after_tool").tools

    assert heard == {"apply_patch", "edit_file", "write_file"}


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory_files": "AGENTS.md"}, "Expected `array`"),
        ({"memory_files": [""]}, "length >= 1"),
        ({"memory_files": ["a\0b"]}, "has a NUL"),
        ({"memory_files": ["a", "b", "a"]}, "'a' is there more than once"),
        ({"memory_files": [str(number) for number in range(13)]}, "length <= 12"),
        ({"auto_reload": "yes"}, "Expected `bool`"),
    ],
)
def test_bad_options_are_refused(options, words):
    """Each is named."""
    with pytest.raises(InvalidOptions) as caught:
        MemoryLoader(**options)

    assert words in str(caught.value)


def test_defaults_are_the_documented_ones():
    """One file, read again when a tool changes it."""
    assert plugins.MemoryLoader() == plugins.MemoryLoader(
        memory_files=("AGENTS.md",), auto_reload=True
    )
    assert Path(plugins.MemoryLoader().memory_files[0]).name == "AGENTS.md"


def touched(plugin, here, tool="read_file", shown=None, **args):
    """Return what the plugin says to a call that is about to run."""
    event = BeforeTool(tool, "call_1", args)
    return plugin.before_tool(event, context(here, **(shown or {})))


def test_a_folder_brings_its_memory_when_a_tool_works_there(here):
    """Behind those of the folders above, each once; the first name that is there counts."""
    for folder, name in (("a", "CLAUDE.md"), ("a/b", "AGENTS.md"), ("a/b", "CLAUDE.md")):
        (here / folder).mkdir(exist_ok=True)
        (here / folder / name).write_text(f"{folder}/{name}")
    (here / "CLAUDE.md").write_text("root")
    plugin = MemoryLoader(memory_files=["AGENTS.md"], nested=True)
    first = shows(plugin.session_start(SessionStart(), context(here)))
    second = shows(touched(plugin, here, path="a/b/c.py", shown=first))

    assert first == {"CLAUDE.md": "root"}
    assert list(second) == ["CLAUDE.md", "a/CLAUDE.md", "a/b/AGENTS.md"]
    assert second["a/b/AGENTS.md"].startswith("For files below a/b; it outranks")
    assert second["a/b/AGENTS.md"].endswith("a/b/AGENTS.md")
    assert touched(plugin, here, "list_dir", path="a/b", shown=second) == []
    assert shows(touched(plugin, here, "grep", path="a", shown={})) == second


def test_a_folder_without_the_option_brings_nothing(here):
    """What is named is shown and nothing else."""
    (here / "a").mkdir()
    (here / "a" / "AGENTS.md").write_text("x")

    assert touched(MemoryLoader(), here, path="a/b.py") == []


@pytest.mark.parametrize("path", ["../out/x.py", "/etc/hosts", 7, "a\0b", "link/x.py"])
def test_no_memory_comes_from_outside_the_working_folder(here, tmp_path, path):
    """However it is named; a file that is a link out of it is left out as well."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "AGENTS.md").write_text("hostile")
    (here / "link").symlink_to(out)
    (here / "in").mkdir()
    (here / "in" / "AGENTS.md").symlink_to(out / "AGENTS.md")
    plugin = MemoryLoader(nested=True)

    assert touched(plugin, here, path=path) == []
    assert touched(plugin, here, path="in/x.py") == []


def test_nested_memories_fit_beside_the_named_ones(here):
    """Those of the folders that were worked in last."""
    plugin = MemoryLoader(nested=True)
    shown = {}
    for number in range(20):
        folder = here / f"d{number:02}"
        folder.mkdir()
        (folder / "AGENTS.md").write_bytes(b"\xff" * MEMORY_BYTES_MAX)
        actions = touched(plugin, here, path=f"{folder.name}/x.py", shown=shown)
        shown = shows(actions)

    assert len(checked_actions(actions, "before_tool")) == 2
    assert len(shown) == 11
    assert "d19/AGENTS.md" in shown
    assert "d08/AGENTS.md" not in shown
