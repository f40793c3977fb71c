"""The memory flush: what the model is asked, what becomes of its facts, and what may fail."""

import asyncio
import fcntl
import os

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import Emit, MemoryContents
from cmdc_runtime.extensions.context import Completion, PluginCallError, PluginContext
from cmdc_runtime.extensions.hooks import BeforeCompact
from cmdc_runtime.extensions.plugin import settings_of
from cmdc_runtime.messages import Message, ToolCall
from workers.builtin.plugins import _memory_files, memory_flush
from workers.builtin.plugins._memory_files import MEMORY_BYTES_MAX
from workers.builtin.plugins.memory_flush import (
    FACTS_MAX,
    HEADING,
    SYSTEM,
    MemoryFlush,
    facts_in,
    prompt_of,
    with_facts,
)

MESSAGES = (
    Message.user("Use tabs."),
    Message.assistant("", (ToolCall(call_id="c", name="shell", arguments={"command": "ü"}),)),
    Message.tool_result("c", "tabs it is"),
)


class Asked:
    """A session whose model answers this text, or fails."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def complete(self, prompt, **more):
        """Note the question and answer it."""
        self.asked.append((prompt, more))
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completion(text=self.answer)


@pytest.fixture
def flushed(tmp_path):
    """Run the plugin over some messages and return what it says."""

    def run(answer="- It is so.\n", messages=MESSAGES, session=None, shown=None, **options):
        session = session or Asked(answer)
        context = PluginContext(
            session_id="s-1",
            working_dir=str(tmp_path),
            session=session,
            memory_contents=shown or {},
        )
        plugin = MemoryFlush(**options)
        return asyncio.run(plugin.before_compact(BeforeCompact(messages), context))

    return run


def reported(*facts, file="AGENTS.md"):
    """Return the event that observers get."""
    return Emit("memory_flushed", {"file": file, "facts": list(facts), "count": len(facts)})


def failed(actions):
    """Return the reason that observers get."""
    [action] = actions
    assert action.name == "memory_flush_failed"
    assert action.payload["file"] == "AGENTS.md"
    return action.payload["reason"]


# --- facts --------------------------------------------------------------------------------------


def test_facts_go_into_the_file(flushed, tmp_path):
    """Which is made with a section for them."""
    actions = flushed("- The user wants tabs.\n- Tests: `make check`.\n")

    assert actions == [reported("The user wants tabs.", "Tests: `make check`.")]
    assert (tmp_path / "AGENTS.md").read_text() == (
        f"{HEADING}\n\n- The user wants tabs.\n- Tests: `make check`.\n"
    )


def test_only_new_facts_are_added(flushed, tmp_path):
    """However they are written, and wherever in the file they stand."""
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n* use TABS.\n")
    first = flushed("- Use  tabs\n- Run `make`.\n")
    second = flushed("- run `make`\n")

    assert (first, second) == ([reported("Run `make`.")], [reported()])
    assert (tmp_path / "AGENTS.md").read_text() == (
        f"# Rules\n\n* use TABS.\n\n{HEADING}\n\n- Run `make`.\n"
    )


@pytest.mark.parametrize("answer", ["NONE", "", "There is nothing.", "-", "- \n-\t\n"])
def test_no_facts_change_nothing(flushed, tmp_path, answer):
    """And make no file."""
    assert flushed(answer) == [reported()]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "facts_max", "facts"),
    [
        ("- a\n* b\n• c\n1. d\n2) e\n  - f", 9, ("a", "b", "c", "d", "e", "f")),
        ("Facts:\n\n- a\n\nThat is all.", 9, ("a",)),
        ("- a\n- b\n- c", 2, ("a", "b")),
        ("- a\n- A.\n- b", 2, ("a", "b")),
        ("- a\tb\x00c\u200b  d", 9, ("a b c d",)),
        ("- " + "x" * 600, 9, ("x" * 500,)),
        ("-a\n--- \n**b**", 9, ()),
    ],
)
def test_an_answer_is_a_list_of_facts(answer, facts_max, facts):
    """Short lines of text, each once, at most so many."""
    assert facts_in(answer, facts_max) == facts


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", f"{HEADING}\n\n- new\n"),
        ("# A", f"# A\n\n{HEADING}\n\n- new\n"),
        ("# A\n", f"# A\n\n{HEADING}\n\n- new\n"),
        (HEADING, f"{HEADING}\n\n- new\n"),
        (f"{HEADING}\n- old\n\n\n", f"{HEADING}\n- old\n- new\n"),
        (
            f"{HEADING}\n\nMine.\n- old\n### Sub\n- deep\n\n# B\nend",
            f"{HEADING}\n\nMine.\n- old\n### Sub\n- deep\n- new\n\n# B\nend\n",
        ),
        (f"# A\r\n{HEADING}\r\n- old\r\n", f"# A\r\n{HEADING}\r\n- old\r\n- new\r\n"),
        ("a\u2028b\fc\n", f"a\u2028b\fc\n\n{HEADING}\n\n- new\n"),
    ],
)
def test_what_people_wrote_stays(text, made):
    """Facts go to the end of their section, which goes to the end of the file."""
    assert with_facts(text, ["new"]) == made


def test_the_oldest_facts_give_way():
    """A section has a bound; what is no fact in it stays."""
    items = "".join(f"- fact {number}\n" for number in range(FACTS_MAX))
    made = with_facts(f"{HEADING}\nMine.\n{items}", ["new", "newer"])

    assert made.startswith(f"{HEADING}\nMine.\n- fact 2\n")
    assert made.endswith(f"- fact {FACTS_MAX - 1}\n- new\n- newer\n")
    assert made.count("\n- ") == FACTS_MAX


def test_facts_give_way_to_the_bound_of_the_file():
    """And where the rest alone fills it, nothing is added."""
    both = f"{HEADING}\n\n- old\n- new\n\n# "
    behind = "x" * (MEMORY_BYTES_MAX - len(both))  # and a line end, which is one too many
    full = "x" * (MEMORY_BYTES_MAX - len(f"\n\n{HEADING}\n\n- new\n"))

    assert with_facts(both.replace("- new\n", "") + behind, ["new"]) == (
        both.replace("- old\n", "") + behind + "\n"
    )
    assert with_facts(full, ["new"]).endswith("- new\n")
    with pytest.raises(ValueError, match="longer than"):
        with_facts(full + "x", ["new"])


# --- the question -------------------------------------------------------------------------------


def test_the_model_reads_what_is_about_to_go(flushed, tmp_path):
    """With the memory as it is, and how many facts it may write."""
    (tmp_path / "AGENTS.md").write_text("Mine.\n")
    session = Asked("NONE")
    flushed(session=session, max_facts=3)
    [(prompt, more)] = session.asked

    assert "<memory>\nMine.\n</memory>" in prompt
    assert (
        '<conversation>\nuser: Use tabs.\n\nassistant: [calls shell {"command": "ü"}]\n\n'
        "tool result: tabs it is\n</conversation>"
    ) in prompt
    assert "at most 3 facts" in prompt
    assert more == {"system": SYSTEM, "model": None, "provider_opts": None}


def test_another_model_may_be_asked(flushed):
    """With options of its own."""
    session = Asked("NONE")
    flushed(session=session, model="openai:small", provider_opts={"temperature": 0.0})
    [(_, more)] = session.asked

    assert (more["model"], more["provider_opts"]) == ("openai:small", {"temperature": 0.0})


def test_the_question_is_bounded(monkeypatch):
    """Of a long message, and of a long conversation, the middle is left out."""
    monkeypatch.setattr(memory_flush, "TRANSCRIPT_CHARS_MAX", 20_000)
    messages = [Message.user(f"{number} " + "x" * 10_000 + " end") for number in range(9)]
    prompt = prompt_of(messages, "", 10)

    assert len(prompt) < 21_000
    assert "user: 0 x" in prompt
    assert prompt.count("characters left out]") >= 3
    assert "x end\n</conversation>" in prompt


# --- the file -----------------------------------------------------------------------------------


def test_the_file_may_be_anywhere(flushed, tmp_path, monkeypatch):
    """Its folders are made, and a link stays one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "real.md").write_text("")
    (tmp_path / "link.md").symlink_to("real.md")
    for file in ("~/notes/a.md", "b/c.md", str(tmp_path / "d.md"), "link.md"):
        flushed("- x", file=file)

    assert all(
        "- x" in (tmp_path / name).read_text()
        for name in ("home/notes/a.md", "b/c.md", "d.md", "real.md")
    )
    assert (tmp_path / "link.md").is_symlink()


@pytest.mark.parametrize("way", ["file", "folder"])
def test_a_link_out_of_the_working_folder_is_not_followed(flushed, tmp_path, way):
    """A tool could have made it; the reason says what would help."""
    out = tmp_path.with_name(f"{tmp_path.name}-out")
    out.mkdir()
    (tmp_path / "notes").symlink_to(out) if way == "folder" else (tmp_path / "notes").mkdir()
    if way == "file":
        (tmp_path / "notes" / "a.md").symlink_to(out / "a.md")
    [action] = flushed("- x", file="notes/a.md")

    assert action.name == "memory_flush_failed"
    assert "give the absolute path" in action.payload["reason"]
    assert list(out.iterdir()) == []
    assert flushed("- x", file=str(out / "a.md"))[0].name == "memory_flushed"


def test_a_file_that_is_shown_is_shown_with_its_facts(flushed):
    """The other files that are shown stay."""
    actions = flushed("- new", shown={"AGENTS.md": "old", "b.md": "b"})
    contents = {"AGENTS.md": f"{HEADING}\n\n- new\n", "b.md": "b"}

    assert actions == [reported("new"), Emit(MemoryContents(contents=contents))]
    assert flushed("- new", shown={"AGENTS.md": "old"}) == [reported()]
    assert flushed("- newer", shown={"b.md": "b"}) == [reported("newer")]


# --- failures -----------------------------------------------------------------------------------


def test_a_model_that_fails_prevents_nothing(flushed, tmp_path):
    """The reason is reported."""
    assert failed(flushed(PluginCallError("no answer"))) == "no answer"
    assert list(tmp_path.iterdir()) == []


def test_without_a_session_nobody_is_asked():
    """As in a unit test of an application."""
    context = PluginContext(session_id="s-1")
    actions = asyncio.run(MemoryFlush().before_compact(BeforeCompact(MESSAGES), context))

    assert "no session" in failed(actions)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.mkdir(), "it is a folder"),
        (lambda path: path.write_bytes(b"a\0b"), "binary"),
        (lambda path: path.write_bytes(b"caf\xe9"), "can't decode"),
        (lambda path: path.write_text("x" * MEMORY_BYTES_MAX), "longer than"),
        (os.mkfifo, "pipe"),
    ],
)
def test_a_file_that_cannot_take_facts_is_left_alone(flushed, tmp_path, spoil, reason):
    """And that is reported."""
    path = tmp_path / "AGENTS.md"
    spoil(path)
    before = identity(path)

    assert reason in failed(flushed())
    assert identity(path) == before


def identity(path):
    """Return what changes with a file's content, or its place, and not when it is read."""
    found = path.stat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


def test_two_processes_do_not_change_the_file_at_once(flushed, tmp_path, monkeypatch):
    """The second one waits, but not for ever."""
    monkeypatch.setattr(_memory_files, "LOCK_WAIT_S", 0.05)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        locked = failed(flushed())
    finally:
        os.close(folder)

    assert "locked" in locked
    assert flushed() == [reported("It is so.")]


def test_the_compaction_waits_longer_than_for_other_hooks():
    """A model takes its time."""
    assert settings_of(MemoryFlush(), "before_compact").timeout_s == 120


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"file": ""}, "length >= 1"),
        ({"file": "a\0b"}, "has a NUL"),
        ({"max_facts": 0}, ">= 1"),
        ({"max_facts": 101}, "<= 100"),
        ({"model": ""}, "length >= 1"),
        ({"provider_opts": []}, "Expected `object`"),
    ],
)
def test_bad_options_are_refused(options, words):
    """Each is named."""
    with pytest.raises(InvalidOptions) as caught:
        MemoryFlush(**options)

    assert words in str(caught.value)
