"""Names, exit statuses and what is said when a command cannot do what it was asked."""

import click
import pytest

from cmdc_runtime import errors
from cmdc_runtime.checked_struct import INDEX_MAX
from cmdc_runtime.cli.entry import COMMANDS, cmdc, exit_status, main, status_of
from cmdc_runtime.reasons import Normal


def raising(error):
    def work():
        raise error

    return work


def test_every_command_is_there():
    """Each row of the table leads to a command of its name, with a text of its own."""
    context = click.Context(cmdc)
    found = {name: cmdc.get_command(context, name) for name in COMMANDS}

    assert [name for name, command in found.items() if command.name != name] == []
    assert [name for name, command in found.items() if not command.help] == []


def test_unknown_command_is_none():
    """A name that is not in the table is no command."""
    assert cmdc.get_command(click.Context(cmdc), "no-such") is None


@pytest.mark.parametrize(
    ("word", "near"), [("chta", " Do you mean chat?"), ("stopp", " Do you mean stop?"), ("xyz", "")]
)
def test_a_command_that_is_like_another_is_named_with_it(capsys, word, near):
    """One that is like none is named alone."""
    assert main([word]) == 2
    assert f"No such command '{word}'.{near}\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["mcp"], ["service"]], ids=" ".join)
def test_who_names_no_command_reads_the_help(capsys, words):
    """Line by line, as with --help."""
    status = main(words)
    shown = capsys.readouterr().err
    main([*words, "--help"])

    assert status == 2
    assert shown.splitlines() == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.DaemonUnavailable("none"), 3),
        (errors.InvalidOptions(["model: required"]), 2),
        (errors.InvalidText("empty"), 2),
        (errors.InvalidTool("none"), 2),
        (errors.InvalidSession("never seen"), 1),
        (errors.SessionNotAlive(Normal()), 1),
        (errors.AgentFailed("no credit"), 1),
        (errors.CommandTimeout("late"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_errors_have_a_status(error, status):
    """The status says whose fault it is."""
    assert status_of(error) == status


def test_errors_are_reported_without_a_traceback(capsys):
    """A deliberate error is its text on standard error, and nothing that a terminal obeys."""
    status = exit_status(raising(errors.AgentFailed("said \x1b[2J")))

    assert status == 1
    assert capsys.readouterr().err == "cmdc: the cycle failed: said \u241b[2J\n"


def test_interrupted_command_has_a_status_of_its_own():
    """Ctrl-C is neither success nor failure of the agent."""
    assert exit_status(raising(KeyboardInterrupt())) == 130


def test_bugs_are_not_hidden():
    """What nobody raised on purpose keeps its traceback."""
    with pytest.raises(ZeroDivisionError):
        exit_status(raising(ZeroDivisionError()))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["checkpoints", "s", "--save", "x" * 300], "--save: expected a str of 1 to "),
        (["checkpoints", "s", "--save", ""], "--save: expected a str of 1 to "),
        (["checkpoints", "s", "--save", "a\nb"], "--save: "),
        (["tail", "s", "--since", str(10**23)], "'--since': 1"),
        (["tail", "s", "--since", str(INDEX_MAX + 1)], "'--since': 9"),
        (["tail", "s", "--since", "-1"], "'--since': -1"),
        (["run", "hi", "--model", "openai:m", "--tool", "nosuch"], "--tool: expected "),
        (["chat", "--model", "openai:m", "--tool", ""], "--tool: expected "),
    ],
    ids=["long", "empty", "lines", "wild", "above", "below", "unknown", "nameless"],
)
def test_wrong_usage_has_its_status(arguments, problem, capsys, tmp_path, monkeypatch):
    """A value that no option takes is named with the option that it is for."""
    monkeypatch.setenv("CMDC_ADDRESS", str(tmp_path))
    status = main(arguments)

    assert status == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        click.UsageError("no account x\ny\x1b[31m\tz"),
        click.ClickException("no account x\ny\x1b[31m\tz"),
        errors.UsageError("no account x\ny\x1b[31m\tz"),
    ],
    ids=["usage", "click", "own"],
)
def test_an_error_is_one_line_whatever_was_typed(error, capsys):
    """Nothing of it begins a line of its own, or is taken by a terminal for a command."""
    exit_status(raising(error))

    assert capsys.readouterr().err.endswith(": no account x␊y␛[31m␉z\n")
