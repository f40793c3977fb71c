"""The offload of large results: what is kept where, what the model sees, and how it reads on."""

import stat
from pathlib import Path

import msgspec
import pytest

from cmdc_runtime import backends, plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import BlockTool, Emit, ReplaceToolArgs, ReplaceToolResult
from cmdc_runtime.extensions.context import Context, PluginContext
from cmdc_runtime.extensions.hooks import AfterTool, BeforeTool, SessionEnd
from workers.builtin.plugins import large_result_offload
from workers.builtin.plugins.large_result_offload import (
    LargeResultOffload,
    path_of,
    preview,
    readable,
)
from workers.builtin.tools.read_file import read_file

LARGE = "".join(f"line {number:06}\n" for number in range(10_000))
TOOLS = ("read_file", "grep", "fetch")


def here(context):
    """Return what a tool of the same session sees."""
    return Context(session_id="s-1", call_id="call_2", working_dir=context.working_dir)


@pytest.fixture
def context(tmp_path):
    """What the plugin sees; the session works in a folder of its own."""
    (tmp_path / "work").mkdir(exist_ok=True)
    return PluginContext(session_id="s-1", working_dir=str(tmp_path / "work"), tools=TOOLS)


@pytest.fixture
def copies(tmp_path):
    """The folder that folders of copies are made in."""
    folder = tmp_path / "work/.cmdc"
    folder.mkdir(parents=True)
    return folder


def heard(plugin, context, result=LARGE, **more):
    """Return what the plugin says to a result."""
    reported = {"name": "fetch", "call_id": "call_1", "is_error": False, **more}
    return plugin.after_tool(AfterTool(result=result, **reported), context)


def read(plugin, context, path, tool="read_file", **more):
    """Return what the plugin says to a call about a path."""
    return plugin.before_tool(BeforeTool(tool, "call_2", {"path": path, **more}), context)


def kept_path(actions):
    """Return where a result went."""
    return actions[1].payload["path"]


# --- what is kept -------------------------------------------------------------------------------


def test_a_large_result_is_kept_and_previewed(context):
    """In the session's working folder unless the options say otherwise."""
    replaced, reported = heard(LargeResultOffload(), context)
    path = path_of("call_1", LARGE)
    file = Path(context.working_dir, ".cmdc/offload" + path)

    assert file.read_text() == LARGE
    assert replaced == ReplaceToolResult(preview(path, LARGE, TOOLS))
    assert reported == Emit(
        "large_result_offloaded",
        {
            "call_id": "call_1",
            "tool": "fetch",
            "path": path,
            "chars": len(LARGE),
            "tokens": len(LARGE) // 4,
            "backend": f"filesystem:{context.working_dir}/.cmdc/offload",
        },
    )


@pytest.mark.parametrize(
    ("options", "chars", "is_kept"),
    [
        ({}, 80_000, False),
        ({}, 80_001, True),
        ({"tool_token_limit_before_evict": 1000}, 4000, False),
        ({"tool_token_limit_before_evict": 1000}, 4001, True),
        ({"tool_token_limit_before_evict": 10**9}, 400_000, False),
    ],
)
def test_the_limit_is_in_tokens_of_four_characters(context, options, chars, is_kept):
    """What is exactly as long is shown."""
    actions = heard(LargeResultOffload(**options), context, "x" * chars)

    assert bool(actions) is is_kept


@pytest.mark.parametrize("tool", plugins.LargeResultOffload().excluded_tools)
def test_tools_that_bound_their_results_are_left_alone(context, tool):
    """And the results of ``read_file`` are not kept once more."""
    assert heard(LargeResultOffload(), context, name=tool) == []
    assert heard(LargeResultOffload(excluded_tools=()), context, name=tool) != []


def test_the_excluded_tools_are_an_option(context):
    """They replace the default."""
    plugin = LargeResultOffload(excluded_tools=["fetch"])

    assert heard(plugin, context) == []
    assert heard(plugin, context, name="grep") != []


def test_an_error_is_kept_like_any_result(context):
    """Its text is as long."""
    assert len(heard(LargeResultOffload(), context, is_error=True)) == 2


@pytest.mark.parametrize(
    ("call_id", "begins"),
    [
        ("call_1", "call_1-"), ("../../etc/passwd", "______etc_passwd-"), ("a/b", "a_b-"),
        ("", "-"), ("ü\0\n ", "____-"), ("x" * 500, "x" * 64 + "-"),
    ],
)  # fmt: skip
def test_a_call_id_may_be_anything(context, call_id, begins):
    """What no file is named by is left out."""
    path = kept_path(heard(LargeResultOffload(), context, call_id=call_id))

    assert path.startswith(f"/large_tool_results/{begins}")
    assert Path(context.working_dir, ".cmdc/offload" + path).read_text() == LARGE


def test_a_call_id_that_comes_again_confuses_nothing(context):
    """Another result has another path, the same one that is heard again the same."""
    plugin = LargeResultOffload()
    paths = [kept_path(heard(plugin, context, text)) for text in (LARGE, LARGE + "x", LARGE)]
    similar = [kept_path(heard(plugin, context, call_id=call_id)) for call_id in ("a/b", "a_b")]

    assert paths[0] == paths[2] != paths[1]
    assert similar[0] != similar[1]


def test_a_result_that_cannot_be_kept_stays_whole(context):
    """Observers read why."""
    Path(context.working_dir, ".cmdc").write_text("in the way")
    [reported] = heard(LargeResultOffload(), context)

    assert reported.name == "large_result_offload_failed"
    assert reported.payload["error"] == "not_a_directory"
    assert reported.payload["chars"] == len(LARGE)


def test_a_full_store_keeps_nothing_more(context):
    """The results before stay where they are."""
    plugin = LargeResultOffload(backend=backends.State(max_files=1))
    first, second = heard(plugin, context), heard(plugin, context, LARGE + "x")

    assert [len(first), len(second)] == [2, 1]
    assert "store is full" in second[0].payload["error"]


# --- how it reads on ----------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["read_file", "grep"])
def test_a_call_about_a_kept_result_runs_with_its_file(context, tool):
    """Its other arguments stay."""
    plugin = LargeResultOffload()
    path = kept_path(heard(plugin, context))
    answer = read(plugin, context, path, tool, offset=9000, limit=1)

    assert answer == [
        ReplaceToolArgs(
            {"path": f"{context.working_dir}/.cmdc/offload{path}", "offset": 9000, "limit": 1}
        )
    ]


@pytest.mark.parametrize("text", [LARGE, "x" * 200_000, "ü" * 200_000, "a\0b\n" * 50_000])
def test_every_page_can_be_read(context, text):
    """By the tool itself, from the first to the last line."""
    plugin = LargeResultOffload()
    [found] = read(plugin, context, kept_path(heard(plugin, context, text)))
    pages, offset = [], 1
    while offset:
        page = read_file(found.args["path"], offset, 2000, context=here(context))
        body, _, hint = page.partition("\n[more lines follow: go on with offset=")
        pages.append(body)
        offset = int(hint.rstrip("]")) if hint else 0

    assert "".join(pages).replace("\n", "") == readable(text).replace("\n", "")


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt", "/etc/passwd", "/large_tool_results", "/large_tool_results/",
        "/large_tool_results/../secret", "/large_tool_results/a/b", "/large_tool_results/a\0",
        "/large_tool_results/.hidden", "large_tool_results/a", "/x/large_tool_results/a", None, 7,
    ],
)  # fmt: skip
def test_other_paths_are_left_alone(context, path):
    """Above all those that only look like one."""
    assert read(LargeResultOffload(), context, path) == []


def test_a_result_that_is_not_there_is_said_to_be_gone(context):
    """The model need not look for it on the machine."""
    [answer] = read(LargeResultOffload(), context, "/large_tool_results/call_9-0")

    assert answer == BlockTool(
        "There is no result /large_tool_results/call_9-0 any more: file_not_found"
    )


@pytest.mark.parametrize("backend", [backends.Filesystem(root_dir=".cmdc/x"), backends.State()])
def test_no_link_leads_a_result_out_of_the_working_folder(context, tmp_path, backend):
    """A tool could have made it: nothing is kept or shown, and somebody hears of it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "work/.cmdc").symlink_to("../out")
    plugin = LargeResultOffload(backend=backend)
    said = heard(plugin, context)
    if isinstance(backend, backends.State):
        [said] = read(plugin, context, kept_path(said))
        assert "give the absolute path" in said.reason
    else:
        assert [one.name for one in said] == ["large_result_offload_failed"]

    assert list((tmp_path / "out").iterdir()) == []


# --- backends without files ---------------------------------------------------------------------


def test_a_backend_without_files_is_read_by_a_private_copy(context, copies):
    """It is made when it is needed, and no one else may read it."""
    plugin = LargeResultOffload(backend=backends.State())
    path = kept_path(heard(plugin, context))
    assert list(copies.iterdir()) == []
    [found] = read(plugin, context, path)
    [again] = read(plugin, context, path)
    file = Path(found.args["path"])

    assert file.read_text() == LARGE
    assert file.parent.parent == copies
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert again == found
    assert [entry.name for entry in file.parent.iterdir()] == [path.rpartition("/")[2]]


def test_private_copies_go_with_the_session(context, copies):
    """Those of an earlier process too: where they are is kept."""
    plugin = LargeResultOffload(backend=backends.State())
    read(plugin, context, kept_path(heard(plugin, context)))
    later = LargeResultOffload(backend=backends.State())
    later.state = msgspec.convert(msgspec.to_builtins(plugin.state), LargeResultOffload.State)
    later.session_end(SessionEnd(), context)

    assert list(copies.iterdir()) == []
    assert later.state == LargeResultOffload.State()


def test_a_session_without_copies_ends_as_well(context, copies):
    """And what is kept stays."""
    plugin = LargeResultOffload()
    path = kept_path(heard(plugin, context))
    plugin.session_end(SessionEnd(), context)

    assert Path(context.working_dir, ".cmdc/offload" + path).exists()


@pytest.mark.parametrize("left", ["nothing", "a link", "an open folder", "a file"])
def test_a_folder_that_is_no_longer_ours_is_not_used(context, copies, left):
    """Temporary folders are cleared, and others may make one of that name."""
    plugin = LargeResultOffload(backend=backends.State())
    theirs = copies / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / "file").write_text("theirs")
    place = copies / "place"
    if left == "a link":
        place.symlink_to(theirs)
    elif left == "an open folder":
        place.mkdir()
        place.chmod(0o777)
    elif left == "a file":
        place.write_text("theirs")
    plugin.state.copies = str(place)
    [found] = read(plugin, context, kept_path(heard(plugin, context)))

    assert Path(found.args["path"]).parent not in {place, theirs}
    plugin.state.copies = str(place)
    plugin.session_end(SessionEnd(), context)
    assert (theirs / "file").read_text() == "theirs"
    assert place.exists() is (left != "nothing")


def test_so_many_copies_are_kept(context, copies, monkeypatch):
    """The oldest go, and come again when they are asked for."""
    monkeypatch.setattr(large_result_offload, "COPIES_MAX", 2)
    plugin = LargeResultOffload(backend=backends.State())
    paths = [kept_path(heard(plugin, context, LARGE + str(number))) for number in range(4)]
    files = [Path(read(plugin, context, path)[0].args["path"]) for path in paths]

    assert [file.exists() for file in files] == [False, False, True, True]
    [again] = read(plugin, context, paths[0])
    assert Path(again.args["path"]).read_text() == LARGE + "0"


def test_a_composite_keeps_results_where_its_route_says(context, tmp_path):
    """The model's paths stay the same."""
    backend = backends.Composite(
        default=backends.State(),
        routes={"/large_tool_results/": backends.Filesystem(root_dir=str(tmp_path / "results"))},
    )
    plugin = LargeResultOffload(backend=backend)
    path = kept_path(heard(plugin, context))
    [found] = read(plugin, context, path)

    assert found.args["path"] == str(tmp_path / "results" / path.rpartition("/")[2])


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "disk"}, "option 'backend'"),
        ({"backend": {"kind": "tape"}}, "option 'backend': Invalid value 'tape'"),
        ({"tool_token_limit_before_evict": 999}, ">= 1000"),
        ({"tool_token_limit_before_evict": "many"}, "Expected `int`"),
        ({"excluded_tools": "grep"}, "Expected `array`"),
        ({"limit": 1}, "no option 'limit'"),
    ],
)
def test_bad_options_are_refused(options, words):
    """Each is named."""
    with pytest.raises(InvalidOptions) as caught:
        LargeResultOffload(**options)

    assert words in str(caught.value)


def test_a_reference_takes_a_backend():
    """As it stands in the options of a session."""
    reference = plugins.LargeResultOffload(backend=backends.State(max_files=7))
    plain = msgspec.to_builtins(reference)

    assert LargeResultOffload(**plain).config == reference


def test_the_defaults_are_the_documented_ones():
    """Tools that bound their results by themselves are left out."""
    assert plugins.LargeResultOffload() == plugins.LargeResultOffload(
        backend=backends.Filesystem(root_dir=".cmdc/offload"),
        tool_token_limit_before_evict=20_000,
        excluded_tools=("list_dir", "ls", "glob", "grep", "read_file", "edit_file", "write_file"),
    )
