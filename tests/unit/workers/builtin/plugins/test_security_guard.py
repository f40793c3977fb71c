"""The security guard's options, events and messages; the corpus has what it blocks by default."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.actions import BlockTool, Emit
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from workers.builtin.guarding.blocked_paths import ENTRIES_MAX, MATCHES_MAX, PATH_CHARS_MAX
from workers.builtin.guarding.guarded_shell import FOLDERS_MAX, PATHS_MAX, WILD_MAX
from workers.builtin.plugins.security_guard import (
    ARGUMENTS_MAX,
    SUBJECT_CHARS_MAX,
    SecurityGuard,
)

NOTHING = {"default_blocked_paths": False, "default_blocked_commands": False}


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask a guard about one call, in a working folder beside a home, both empty."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def before(tool, args, **options):
        context = PluginContext(session_id="s-1", working_dir=str(tmp_path / "work"))
        guard = SecurityGuard(**options)
        return guard.before_tool(BeforeTool(tool, "call_1", args), context)

    return before


@pytest.fixture
def reason(ask):
    """Return why a shell command is blocked, "" if it is not."""

    def why(command, **options):
        answer = ask("shell", {"command": command}, **options)
        return next((one.reason for one in answer if isinstance(one, BlockTool)), "")

    return why


def test_a_blocked_path_is_reported_to_the_model_and_to_observers(ask):
    """The model reads what is protected, by which pattern, and what to do instead."""
    emit, block = ask("read_file", {"path": "conf/.env"})

    assert emit == Emit(
        "security_audit",
        {
            "tool": "read_file",
            "call_id": "call_1",
            "kind": "path",
            "subject": "conf/.env",
            "rule": ".env",
        },
    )
    assert block == BlockTool(
        "Blocked by the security guard: conf/.env is protected (.env). Do not try to reach it in"
        " another way; work without it, or tell the user what you need from it."
    )


def test_a_blocked_command_is_reported(ask):
    """With what it would have done."""
    emit, block = ask("shell", {"command": "ls; sudo mkfs.ext4 /dev/sdb"})

    assert emit.payload["kind"] == "command"
    assert emit.payload["subject"] == "mkfs.ext4 formats disks"
    assert block.reason.startswith("Blocked by the security guard: mkfs.ext4 formats disks; ")


def test_a_command_that_cannot_be_read_is_reported(ask):
    """The model is asked to write it in another way."""
    emit, block = ask("shell", {"command": "echo 'x"})

    assert emit.payload["kind"] == "unreadable"
    assert "a quote or bracket is not closed" in block.reason
    assert "Write it shorter and simpler" in block.reason


def test_without_audit_only_the_model_hears_of_it(ask):
    """``audit=False`` emits nothing."""
    [block] = ask("read_file", {"path": ".env"}, audit=False)

    assert isinstance(block, BlockTool)


def test_a_call_that_is_allowed_is_not_reported(ask):
    """Nothing is answered, so nothing is emitted."""
    assert ask("read_file", {"path": "a.py"}) == []


def test_what_is_reported_is_short(ask):
    """However long the path is that the model wrote."""
    emit, block = ask("read_file", {"path": "x/" * 500 + ".env"})

    assert len(emit.payload["subject"]) == SUBJECT_CHARS_MAX
    assert len(block.reason) < 2 * SUBJECT_CHARS_MAX


@pytest.mark.parametrize(
    ("pattern", "path", "is_blocked"),
    [
        ("secrets", "secrets", True),
        ("secrets", "a/Secrets/b.txt", True),
        ("secrets", "a/secrets2", False),
        ("*.sqlite", "a/b/x.SQLITE", True),
        ("*.sqlite", "x.sqlite3", False),
        ("conf/*.yml", "conf/a.yml", True),
        ("conf/*.yml", "x/conf/a.yml", False),
        ("conf/*.yml", "conf/x/a.yml", False),
        ("conf/**", "conf", True),
        ("conf/**", "conf/x/a.yml", True),
        ("conf/**/a.yml", "conf/a.yml", True),
        ("conf/**/a.yml", "conf/x/y/a.yml", True),
        ("**/x?.txt", "a/xy.txt", True),
        ("**/x?.txt", "a/x.txt", False),
        ("x[0-9].txt", "x5.txt", True),
        ("x[!0-9].txt", "xa.txt", True),
        ("x[5].txt", "x5.txt", True),
        ("x[0-9].txt", "xa.txt", False),
        ("/var/lib/x", "/var/lib/x/y", True),
        ("/var/lib/x", "var/lib/x", False),
        ("~/notes", "~/notes/a", True),
        ("~/notes", "notes/a", False),
        ("conf/a.yml", "$HOME/../work/conf/a.yml", True),
    ],
)
def test_own_patterns_mean_what_the_docstring_says(ask, pattern, path, is_blocked):
    """In any folder, in the working folder, at the root or at the home."""
    options = {"blocked_paths": [pattern], **NOTHING}

    assert bool(ask("read_file", {"path": path}, **options)) == is_blocked


def test_own_patterns_come_on_top(ask):
    """The defaults hold beside them, unless they are turned off."""
    own = {"blocked_paths": ["*.sqlite"]}

    assert ask("read_file", {"path": ".env"}, **own)
    assert ask("read_file", {"path": "x.sqlite"}, **own)
    assert ask("read_file", {"path": ".env"}, default_blocked_paths=False) == []
    assert ask("shell", {"command": "cat .env"}, default_blocked_paths=False) == []


@pytest.mark.parametrize(
    ("phrase", "command", "is_blocked"),
    [
        ("terraform destroy", "cd x && terraform  destroy -y", True),
        ("terraform destroy", "Terraform Destroy", True),
        ("terraform destroy", "t''erraform 'destroy'", True),
        ("terraform destroy", "terraform plan", False),
        ("curl", "sudo curl x", True),
        ("curl", "echo curly libcurl-dev", False),
        ("--force", "git push --force", True),
        ("--force", "git push --force-with-lease", False),
        ("prod:", "deploy prod:eu", True),
        ("re:git push\\b.*\\bmain$", "git push origin main", True),
        ("re:git push\\b.*\\bmain$", "git push origin maint", False),
    ],
)
def test_own_commands_are_found_anywhere(reason, phrase, command, is_blocked):
    """As words of the text or of what is read out of it, or as a regular expression."""
    found = reason(command, blocked_commands=[phrase], **NOTHING)

    assert bool(found) == is_blocked
    assert not is_blocked or phrase in found


def test_default_commands_can_be_turned_off(reason):
    """The list of the options stays."""
    off = {"default_blocked_commands": False}

    assert reason("rm -rf x")
    assert reason("rm -rf x", **off) == ""
    assert reason("rm -rf x", **off, blocked_commands=["rm"])


@pytest.mark.parametrize(
    "name", ["path", "file_path", "filePath", "targetFile", "output-dir", "paths", "CWD", "PATH"]
)
def test_arguments_that_sound_like_paths_are_paths(ask, name):
    """By the last word of their name, in whichever style."""
    assert ask("any", {name: ".env"})
    assert ask("any", {"options": [{name: ["a", ".env"]}]})


@pytest.mark.parametrize("name", ["content", "text", "pattern", "path_note", "query"])
def test_other_arguments_are_not(ask, name):
    """A text may speak of a blocked path, unless the options name the argument."""
    assert ask("any", {name: ".env"}) == []
    assert ask("any", {name: ".env"}, path_arguments=[name])


@pytest.mark.parametrize(
    ("command", "is_blocked"),
    [
        ("python3 -c 'x'", True),
        ("$CMD x", True),
        (". ./setup.sh", True),
        ('ls *.py && cat "$f"', False),
    ],
)  # fmt: skip
def test_undecidable_commands_are_blocked_if_wanted(reason, command, is_blocked):
    """By default they pass."""
    assert bool(reason(command, undecidable_commands="block")) == is_blocked
    assert reason(command) == ""


def test_searches_of_folders_with_secrets(ask, reason, tmp_path):
    """They are blocked with a way out, can be narrowed, and the guard can be turned off."""
    (tmp_path / "work" / ".env").write_text("A=1")
    loose = {"guard_searches": False}

    assert "narrow path or include" in ask("grep", {"pattern": "A"})[-1].reason
    assert ask("grep", {"pattern": "A", "include": "*.{py,ts}"}) == []
    assert ask("grep", {"pattern": "A"}, **loose) == []
    assert "would read it with the folder" in reason("grep -r A")
    assert reason("grep -r A --exclude='.e*' .") == ""
    assert reason("grep -r A --include=*.py .") == ""
    assert reason("rg A") == ""
    assert reason("rg --hidden A")
    assert reason("cp -r . /tmp/x", **loose) == ""


def test_a_search_looks_at_so_many_files_only(ask, tmp_path, monkeypatch):
    """In a larger folder what comes later is not found, and the call is not held up."""
    monkeypatch.setattr("workers.builtin.guarding.blocked_paths.ENTRIES_MAX", 3)
    for name in ("a", "b", "c"):
        (tmp_path / "work" / name).mkdir()
    (tmp_path / "work" / "c" / ".env").write_text("A=1")

    assert ENTRIES_MAX > 3
    assert ask("grep", {"pattern": "A"}) == []


def test_globs_are_expanded_in_the_file_system(reason, tmp_path):
    """Only where something blocked is there, unless the letters leave no doubt."""
    assert reason("cat *") == reason("cat .*") == reason("cat */*.p*") == ""
    (tmp_path / "work" / "sub").mkdir()
    (tmp_path / "work" / "sub" / "x.pem").write_text("")
    (tmp_path / "work" / ".env").write_text("")

    assert reason("cat *") == ""
    assert reason("cat .*")
    assert reason("cat */*")
    assert reason("cat */*.p*")
    assert reason("cd sub; cat *")
    assert reason("cat {*,.*}")


def test_a_glob_with_too_many_matches_is_decided_by_its_letters(reason, tmp_path):
    """Two of them are enough then."""
    for number in range(MATCHES_MAX + 1):
        (tmp_path / "work" / f".e{number}").touch()

    assert reason("cat .?*") == ""
    assert reason("cat .e*")


@pytest.mark.parametrize(
    "command",
    [
        "cat " + " ".join(f"a{n}" for n in range(PATHS_MAX + 1)),
        "cat " + " ".join(f"a{n}*" for n in range(WILD_MAX + 1)),
        "; ".join(f"cd a{n}" for n in range(FOLDERS_MAX + 1)),
    ],
    ids=["paths", "wildcards", "folders"],
)
def test_a_command_beyond_the_bounds_is_not_checked(reason, command):
    """It is blocked instead."""
    assert "too many parts" in reason(command)


def test_a_call_beyond_the_bounds_is_not_checked(ask):
    """Nor is one with more paths than anybody needs."""
    paths = [f"a{number}" for number in range(ARGUMENTS_MAX + 1)]

    assert "more than 1000 paths" in ask("any", {"paths": paths})[-1].reason
    assert ask("any", {"paths": paths[1:]}) == []


@pytest.mark.parametrize("path", ["a\0b", "a/" * PATH_CHARS_MAX, "\ud800"])
def test_a_path_that_no_file_can_have_is_blocked(ask, path):
    """The tool would fail on it, or see another one than the guard."""
    assert "cannot be checked" in ask("read_file", {"path": path})[-1].reason


def test_a_pattern_of_too_many_is_not_checked(ask):
    """Nor does the tool need it."""
    assert ask("glob", {"pattern": "{a,b}" * 20})
    assert ask("glob", {"pattern": 5, "path": "src"}) == []


def test_the_home_may_be_unknown(tmp_path, monkeypatch):
    """Then it is that of the user who runs the session; a user may have no name."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    context = PluginContext(session_id="s-1", working_dir=str(tmp_path))
    call = BeforeTool("shell", "call_1", {"command": "cat ~/.ssh/id_rsa"})

    assert SecurityGuard().before_tool(call, context)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"blocked_paths": ["**"]}, "blocked_paths has '\\*\\*', which means every path"),
        ({"blocked_paths": ["/"]}, "blocked_paths has '/'"),
        ({"blocked_paths": [""]}, "blocked_paths"),
        ({"blocked_commands": ["re:("]}, "blocked_commands has 're:\\(', .* no regular expression"),
        ({"blocked_commands": [" "]}, "blocked_commands has ' ', which is blank"),
        ({"blocked_commands": ["re:"]}, "blocked_commands has 're:', which is blank"),
        ({"undecidable_commands": "ask"}, "undecidable_commands"),
        ({"audit": "yes"}, "audit"),
        ({"blocked_path": []}, "blocked_path"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Before the session starts, with the value that is wrong."""
    with pytest.raises(Exception, match=problem):
        SecurityGuard(**options)


def test_the_reference_checks_as_well():
    """An application gets the error where it writes the option."""
    with pytest.raises(InvalidOptions, match="no regular expression"):
        plugins.SecurityGuard(blocked_commands=("re:[",))


def test_a_starry_word_is_expanded_too(reason, tmp_path):
    """By the same comparison, without a regular expression."""
    (tmp_path / "work" / ("a" * 200 + ".pem")).touch()

    assert reason("cat *a*a*a*a*a*a*a*a*a*a*a*a*b") == ""
    assert reason("cat *a*a*a*a*a*a*a*a*m")


PIECES = st.sampled_from([
    *"ab $(){}[]<>|&;'\"`\\\n*?~=/-.,:@\0é", "$(", "cat ", ".env", "rm ", "-rf ", "/etc/", "$HOME",
    "sh -c '", "eval ", "xargs ", "find / -name ", "base64 -d ", "echo ", "printf ", "rev ", "%s ",
    "python -c ", "sed ", "grep -r ", "tar c ", "cd ", "x=", "$x", "../", "~a", "\ud800", "pkill ",
])  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.lists(PIECES, max_size=25).map("".join))
def test_any_call_is_judged(ask, text):
    """The guard fails closed, so it must not fail: it answers to any text, in any argument."""
    calls = {
        "shell": {"command": text},
        "read_file": {"path": text},
        "glob": {"pattern": text, "path": text},
        "grep": {"include": text},
    }
    for tool, args in calls.items():
        ask(tool, args, blocked_paths=["src/**/x*"])


def test_working_folder_may_be_anything(tmp_path):
    """A link, a relative path, or gone."""
    (tmp_path / "real" / "conf").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    call = BeforeTool("read_file", "call_1", {"path": str(tmp_path / "real" / "conf" / "a")})
    guard = SecurityGuard(blocked_paths=["conf/a"], default_blocked_paths=False)

    for folder in (tmp_path / "link", Path(os.path.relpath(tmp_path / "link"))):
        context = PluginContext(session_id="s-1", working_dir=str(folder))
        assert guard.before_tool(call, context)
    gone = PluginContext(session_id="s-1", working_dir=str(tmp_path / "gone"))
    assert guard.before_tool(call, gone) == []
