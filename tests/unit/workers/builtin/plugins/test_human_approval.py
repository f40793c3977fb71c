"""The approval by people: which calls are asked for, how, and what is approved for good."""

import pytest

from cmdc_runtime import plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import BeforeTool
from cmdc_runtime.packing import pack_plugin
from cmdc_runtime.plugins.guards import REQUIRE_APPROVAL_FOR
from workers.builtin.plugins.human_approval import HumanApproval
from workers.loader import load_plugins

RUN = "rm -rf build"
ALL = ("approve_once", "approve_always", "reject_once")


def asked(plugin, command=RUN, tool="shell", always=(), args=None, **seen):
    """Return how a person is asked about a call, None if nobody is."""
    context = PluginContext(session_id="s-1", always_approved=frozenset(always), **seen)
    args = {"command": command} if args is None else args
    answer = plugin.before_tool(BeforeTool(tool, "call_1", args), context)
    return None if answer is None else answer.name


# --- which calls --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "tool", "command", "is_asked"),
    [
        ({}, "shell", RUN, True),
        ({}, "shell", "ls", False),
        ({}, "write_file", None, False),
        ({"require_approval_for": ["write_file"]}, "write_file", None, True),
        ({"require_approval_for": ["write_file"]}, "shell", RUN, False),
        ({"require_approval_for": ["write_file"]}, "write_file_2", None, False),
        ({"tools": ["write_file"]}, "write_file", None, True),
        ({"tools": ["write_file"]}, "shell", RUN, False),
        ({"tools": ["a", "b"], "require_approval_for": ["b", "a"]}, "b", None, True),
        ({"require_approval_for": ["*"]}, "anything", None, True),
        ({"require_approval_for": ["*"]}, "shell", "ls", False),
        # Only a shell's command is read: another tool may do anything with "ls".
        ({"require_approval_for": ["run"]}, "run", "ls", True),
        ({"require_approval_for": ["run"], "shell_tools": ["run"]}, "run", "ls", False),
        ({"require_approval_for": ["shell"], "shell_tools": []}, "shell", "ls", True),
    ],
)
def test_listed_tools_are_asked_for(options, tool, command, is_asked):
    """By their exact names, or all of them."""
    args = {} if command is None else {"command": command}

    assert (asked(HumanApproval(**options), tool=tool, args=args) is not None) is is_asked


@pytest.mark.parametrize(
    ("args", "is_asked"),
    [
        ({"command": "ls", "timeout": 5}, False),
        ({"command": "ls", "environment": {"LD_PRELOAD": "x"}}, True),
        ({"command": ["ls"]}, True),
        ({}, True),
    ],
)
def test_a_shell_call_that_says_more_is_asked_for(args, is_asked):
    """Nobody here knows what other arguments do; such a call is approved once only."""
    wanted = asked(HumanApproval(), args=args)

    assert (wanted is not None) is is_asked
    if wanted is not None:
        assert (wanted.hint, wanted.options) == (
            "it is more than a command", ("approve_once", "reject_once"),
        )  # fmt: skip
        assert wanted.family.startswith("exactly ")


@pytest.mark.parametrize(
    ("entry", "command", "is_asked"),
    [
        ("make", "make test", False),
        ("make ", "make test", False),
        ("make", "makeself x", True),
        ("make test", "make test -k", False),
        ("make test", "make install", True),
        ("make  test", "make test", False),
        ("make", "make test > log", True),
        ("make", "make $(rm x)", True),
        ("make", "make ${x:=y}", True),
        ("make", "make $HOME", False),
        ("make", "CC=./x make", True),
        ("make", "make; rm x", True),
        ("make", "make <[a;rm;]", True),
        ("make", "make [a;rm;]", True),
        ("make", "ls", True),
        ("sort", "sort -o x x", True),
        ("re:sort .*", "sort -o x x", False),
        ("re:make (test|lint)", "make test", False),
        ("re:make (test|lint)", "make 'test'", False),
        ("re:make (test|lint)", "make test -k", True),
        ("re:make (test|lint)", "make test; make lint", False),
        ("re:make (test|lint)", "make test; make install", True),
        ("re:make .*", "make $x", True),
        ("re:make .*", "make x > y", True),
        ("re:echo 'a b'", 'echo "a b"', False),
        ("re:echo 'a b'", "echo a b", True),
        ("re:.*", f"make {'x' * 5000}", True),
    ],
)
def test_safe_commands_are_what_the_options_say(entry, command, is_asked):
    """First words, or a regular expression for the whole; never more than one simple command."""
    plugin = HumanApproval(safe_commands=[entry])

    assert (asked(plugin, command) is not None) is is_asked


def test_without_safe_commands_all_are_asked_for():
    """An empty list is one."""
    assert asked(HumanApproval(safe_commands=[]), "ls") is not None


# --- how a person is asked ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "hold", "timeout_s", "offered"),
    [
        ({}, False, 120.0, ALL),
        ({"mode": "hold"}, True, 120.0, ALL),
        ({"timeout_ms": 0}, False, None, ALL),
        ({"timeout_ms": 1}, False, 0.001, ALL),
        ({"permission_options": ["reject_once"]}, False, 120.0, ("reject_once",)),
    ],
)
def test_options_say_how_a_person_is_asked(options, hold, timeout_s, offered):
    """They reach the kernel as they are."""
    wanted = asked(HumanApproval(**options))

    assert (wanted.hold, wanted.timeout_s, wanted.options) == (hold, timeout_s, offered)
    assert (wanted.family, wanted.hint) == ("rm", "not on the list of safe commands: 'rm'")


@pytest.mark.parametrize(
    ("options", "hold"), [({}, True), ({"mode": "block"}, False), ({"mode": "hold"}, True)], ids=str
)
def test_a_call_of_a_subagent_is_held(options, hold):
    """Unless the options say otherwise: its session ends with its cycle, and could not go on."""
    assert asked(HumanApproval(**options), parent_id="s-0").hold is hold


def test_other_tools_are_approved_as_a_whole():
    """And the tool itself says what it would do."""
    wanted = asked(HumanApproval(tools=["deploy"]), tool="deploy", args={"where": "here"})

    assert (wanted.family, wanted.hint, wanted.options) == ("", "", ALL)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("rm a; mv b c; ls", "not on the list of safe commands: 'rm', 'mv'"),
        ("a;b;c;d;e;f", "not on the list of safe commands: 'a', 'b', 'c', 'd', 'e', ..."),
        ("x" * 100, f"not on the list of safe commands: '{'x' * 60}...'"),
        ("r\u202em", "not on the list of safe commands: 'r\\u202em'"),
        ("find . -delete", "not on the list of safe commands: 'find'"),
        ("FOO=1 ls", "it sets 'FOO'"),
        ("ls > a", "it writes to 'a'"),
        ("ls < /dev/tcp/a/1", "it reads '/dev/tcp/a/1'"),
        ("ls <> a", "it writes to 'a'"),
        ("ls\r", "it has control characters"),
        ("ls \x1b", "it has control characters"),
        ("l\\\ns", "a line ends in the middle of a word"),
        ("ls \\", "a line ends in the middle of a word"),
        ("cat <<E\nE", "it has a here-document"),
        ("echo $[1]", "it has arithmetic of the old kind"),
        ("f() { ls; }", "it defines a function"),
        ("function f { ls; }", "it defines a function"),
        ("case a in a) ls;; esac", "it has a case"),
        ("# ls", "it has no command"),
        ("echo ${x:=y}", "it computes '${x:=y}'"),
        ("$x", "it cannot be read: the name of a command is computed when it runs"),
    ],
)
def test_a_person_reads_why(command, hint):
    """In words that draw nothing over the rest of a screen, and in no more than a line."""
    assert asked(HumanApproval(), command).hint == hint


# --- what is approved for good ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "family"),
    [
        ("rm -rf build", "rm"),
        ("/bin/rm x", "/bin/rm"),
        ("rm $x", "rm"),
        ("git push origin main", "git push"),
        ("git", "git"),
        ("npm run build", "npm run build"),
        ("npm run", "npm run"),
        ("docker compose up -d", "docker compose up"),
        ("docker ps -a", "docker ps"),
        ("gh pr create --fill", "gh pr create"),
        ("systemctl status x", "systemctl status"),
        ("npm install && git push", "git push + npm install"),
        ("git push; git push --tags; ls", "git push"),
        ("git push --force", "git push"),
        ("curl a | wc -l", "curl"),
    ],
)
def test_family_is_program_and_subcommand(command, family):
    """Of a line of several it is all of them."""
    assert (asked(HumanApproval(), command).family, asked(HumanApproval(), command).options) == (
        family,
        ALL,
    )
    assert asked(HumanApproval(), command, always=[("shell", family)]) is None


@pytest.mark.parametrize(
    "command",
    [
        "sudo rm x", "python3.12 a.py", "/usr/bin/python3 a.py", "bash a.sh", "xargs rm",
        "tar xf a", "export A=1", "cat a > b", "A=1 git push", "git -C x push", "git $x push",
        "git --version", "git rebase main", "docker run a", "find . -delete", "git log --output=a",
        "make -f x test", "make test CC=x", "git push --exec=x", "git push --receive-p x",
        "git push ext::x", "npm run build --prefix x", "npm run -s build", "go test -toolexec x",
        "'a b' c", "r\u043c x", "git push\nsudo rm x", "rm ${x:=y} ${x@P}", "rm [a;b;]",
        "rm $((x=1))", "; ".join(f"program-with-a-long-name-{at}" for at in range(9)),
    ],
)  # fmt: skip
def test_a_command_without_family_is_approved_in_its_words_only(command):
    """Where the name of the program does not say enough."""
    wanted = asked(HumanApproval(), command)
    leave = [("shell", wanted.family)]

    assert wanted.family.startswith("exactly ")
    assert wanted.options == ALL
    assert asked(HumanApproval(), f" {command}\n", always=leave) is None
    assert asked(HumanApproval(), f"{command} x", always=leave) is not None


@pytest.mark.parametrize("command", ["$x a", "echo x | sh", "eval $x", "python -c 'x'", "ls 'a"])
def test_a_command_that_cannot_be_read_is_approved_once_only(command):
    """Whoever would approve it for good would not know what."""
    wanted = asked(HumanApproval(), command)

    assert wanted.options == ("approve_once", "reject_once")
    assert wanted.family.startswith("exactly ")


def test_what_is_offered_is_never_nothing():
    """Then it may be approved for good in its very words."""
    wanted = asked(HumanApproval(permission_options=["approve_always"]), "$x a")

    assert wanted.options == ("approve_always",)
    assert asked(HumanApproval(), "$x a", always=[("shell", wanted.family)]) is None
    assert asked(HumanApproval(), "$x b", always=[("shell", wanted.family)]) is not None


@pytest.mark.parametrize(
    ("always", "family"),
    [
        ([], "git push + npm install + rm"),
        (["rm"], "git push + npm install"),
        (["git push + npm install + rm"], None),
        (["rm", "git push + npm install + rm"], None),
        (["rm", "git push + npm install"], None),
        (["rm", "git push", "npm install"], None),
        (["rm + git push", "npm"], "git push + npm install + rm"),
        ([""], None),
    ],
)
def test_a_person_is_asked_for_what_is_missing(always, family):
    """A line passes when all of it was approved, one by one or together."""
    leave = [("shell", name) for name in always]
    wanted = asked(HumanApproval(), "npm install; git push; rm x", always=leave)

    assert (wanted and wanted.family) == family


def test_a_family_is_of_one_tool():
    """What was approved of one shell is not of another."""
    plugin = HumanApproval(require_approval_for=["*"], shell_tools=["shell", "remote"])

    assert asked(plugin, tool="remote", always=[("shell", "rm"), ("shell", "")]) is not None
    assert asked(plugin, tool="remote", always=[("remote", "rm")]) is None


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"require_approval_for": []}, "length >= 1"),
        ({"tools": []}, "length >= 1"),
        ({"tools": ["a"], "require_approval_for": ["b"]}, "give one of them"),
        ({"tools": ["a"], "require_approval_for": ["shell"]}, "give one of them"),
        ({"tools": ["mcp_*"]}, "require_approval_for has 'mcp_*': give exact names"),
        ({"shell_tools": ["*"]}, "shell_tools has '*': give exact names"),
        ({"safe_commands": ["ls", " "]}, "safe_commands has ' ': give a command's first words"),
        ({"safe_commands": ["re:("]}, "safe_commands has 're:(': no regular expression: missing"),
        ({"confirm_prefix": ""}, "confirm_prefix has '', which any prompt begins with"),
        ({"confirm_prefix": ["a", " "]}, "confirm_prefix has ' '"),
        ({"timeout_ms": -1}, ">= 0"),
        ({"timeout_ms": 10**12}, "<= 2592000000"),
        ({"permission_options": []}, "length >= 1"),
        ({"permission_options": ["allow"]}, "Invalid enum value 'allow'"),
        ({"permission_options": ["reject_once"] * 2}, "names one twice"),
        ({"mode": "ask"}, "Invalid enum value 'ask'"),
        ({"tool": ["shell"]}, "there is no option 'tool'"),
    ],
)
def test_bad_options_are_named(options, problem):
    """Before the session starts, with the way out."""
    with pytest.raises(InvalidOptions) as error:
        HumanApproval(**options)

    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        ({}, REQUIRE_APPROVAL_FOR),
        ({"tools": ("a",)}, ("a",)),
        ({"require_approval_for": ("b",)}, ("b",)),
        ({"tools": ("a",), "require_approval_for": ("a",)}, ("a",)),
    ],
)
def test_options_travel(options, tools):
    """The alias too; what arrives is what was given."""
    given = plugins.HumanApproval(**options)
    [plugin] = load_plugins([pack_plugin(given, "plugins[0]")])

    assert plugin.config == given
    assert plugin.config.require_approval_for == tools


def test_alias_against_the_name_is_reported_to_the_application():
    """As soon as the options are written down."""
    with pytest.raises(InvalidOptions, match="give one of them"):
        plugins.HumanApproval(require_approval_for=("shell",), tools=("deploy",))
