"""The plugins of the examples, asked without a session, as a user's own tests would ask them."""

import ast
import sqlite3
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

import cmdc_runtime as cmdc

FOLDER = Path(__file__).parents[3] / "examples" / "plugins"
CONTEXT = cmdc.PluginContext(session_id="s-1", user_data={"user_id": "ada"})


def definitions(name):
    """Return what an example defines; its last statement, which starts an agent, is left out."""
    path = FOLDER / f"{name}.py"
    tree = ast.parse(path.read_text(), path)
    assert isinstance(tree.body.pop(), ast.With)
    module = ModuleType(name)
    exec(compile(tree, path, "exec"), vars(module))
    return module


@pytest.fixture(scope="module")
def commands():
    """The first example."""
    return definitions("01_dangerous_commands")


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("ls -l", {"ls"}),
        ("/usr/bin/curl x", {"curl"}),
        ("A=1 B=2 rm x", {"rm"}),
        ("echo rm", {"echo"}),
        ("echo 'a; rm x'", {"echo"}),
        ("true && rm x || wget y; dd | sudo z & x", {"true", "rm", "wget", "dd", "sudo", "x"}),
        ("ls # no comment\ncurl x", {"ls", "curl"}),
        ("(rm x)", {"rm"}),
        ("echo $(rm x)", {"echo", "rm"}),
        ("", set()),
    ],
)
def test_programs_of_a_command_are_found(commands, command, programs):
    """The first word counts, and each first word after a sign; not what is quoted."""
    assert commands.programs_of(command) == programs


def test_a_command_that_cannot_be_read_is_blocked(commands):
    """What the plugin does not understand it does not let through."""
    plugin = commands.DangerousCommands()
    event = cmdc.BeforeTool("shell", "call_1", {"command": "echo 'open"})

    assert plugin.before_tool(event, CONTEXT).reason.startswith("The command cannot be read")


def test_a_cost_that_nobody_knows_is_not_allowed():
    """A budget says nothing about a model without a price."""
    guard = definitions("03_budget_guard").BudgetGuard(max_usd=1.0)
    event = cmdc.AfterResponse(cmdc.Message.assistant("x"))
    context = cmdc.PluginContext(session_id="s-1", model="local:any", is_priced=False)

    assert guard.after_response(event, context) == cmdc.Abort("the price of local:any is not known")


def test_a_success_starts_the_count_anew():
    """Only failures in a row switch the model, and each row switches once."""
    plugin = definitions("04_tool_fallback").ToolFallback(fallback="b:x", failures=2)

    def answer(*, is_error):
        return plugin.after_tool(cmdc.AfterTool("t", "c", "r", is_error=is_error), CONTEXT)

    assert [answer(is_error=is_error) for is_error in (True, False, True, True, True)] == [
        None,
        None,
        None,
        cmdc.SwitchModel("b:x"),
        None,
    ]


def rows_of(database):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT ended_at_ms, said FROM turns").fetchall()


def test_a_cycle_outlives_a_crash_before_it_was_written(tmp_path):
    """The next process writes what stands in the state, and a row written twice is one row."""
    database = str(tmp_path / "turns.db")
    made = definitions("06_turn_auditor").TurnAuditor
    first = made(database=database)
    first.session_start(cmdc.SessionStart(), CONTEXT)
    said = (cmdc.Message.user("hi"), cmdc.Message.assistant("hello"))
    turn = cmdc.AfterTurn("finished", None, said, cmdc.TokenUsage(total_tokens=7), 1, 5, 4)
    first.after_turn(turn, CONTEXT)
    first.session_end(cmdc.SessionEnd(), CONTEXT)
    second = made(database=database)
    second.state = first.state
    second.session_start(cmdc.SessionStart(), CONTEXT)
    second.session_end(cmdc.SessionEnd(), CONTEXT)

    assert first.state.pending == [("s-1", 5, "ada", "finished", 7, 4, "hi", "hello")]
    assert rows_of(database) == [(5, "hi")]


def test_rows_that_are_written_leave_the_state(tmp_path):
    """The state stays small, however long the session lives."""
    plugin = definitions("06_turn_auditor").TurnAuditor(database=str(tmp_path / "turns.db"))
    plugin.session_start(cmdc.SessionStart(), CONTEXT)
    plugin.writer.written = 5
    for ended_at_ms in (5, 6):
        turn = cmdc.AfterTurn("aborted", "no", (), cmdc.TokenUsage(), 1, ended_at_ms, 4)
        plugin.after_turn(turn, CONTEXT)
    plugin.session_end(cmdc.SessionEnd(), CONTEXT)

    assert [row[1] for row in plugin.state.pending] == [6]
