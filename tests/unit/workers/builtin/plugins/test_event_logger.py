"""The event log: what it writes of what, where, and what it does when it cannot."""

import json
import os
import re
import stat
from pathlib import Path

import msgspec
import pytest
import structlog

from cmdc_runtime import events, plugins
from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.events import (
    AgentStart,
    MessageDelta,
    PluginEvent,
    PromptReceived,
    Retry,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from cmdc_runtime.extensions import hooks
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import HOOKS, OnToolError, SessionEnd, SessionStart
from cmdc_runtime.extensions.plugin import PipelineRun, hooks_of
from workers.builtin.plugins import event_logger as module
from workers.builtin.plugins.event_logger import HOOKS_LOGGED, EventLogger

PROMPT = PromptReceived(text="my secret", queued=False, command_id="c-1")
DELTA = MessageDelta(delta="pie")
RETRY = Retry(attempt=1, delay_ms=20, reason="busy")
RUN = PipelineRun(hook="before_tool", duration_ms=1.5, plugins=2)


@pytest.fixture
def context(tmp_path):
    return PluginContext(session_id="s-1", turn=3, model="openai:gpt", working_dir=str(tmp_path))


@pytest.fixture
def logger_of():
    """Make loggers whose files are closed at the test's end."""
    made = []

    def make(**options):
        made.append(EventLogger(**options))
        return made[-1]

    yield make
    for logger in made:
        if logger._file is not None:
            logger._file.close()


@pytest.fixture
def written(tmp_path):
    """Return the lines of the default file, or of another one."""

    def read(path=".cmdc/logs/s-1.jsonl"):
        file = tmp_path / path
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    return read


def test_a_line_says_what_happened_where_and_when(context, written, logger_of):
    """Six keys in their order; the time has milliseconds and is UTC."""
    logger_of().observe(PROMPT, context)
    [line] = written()

    assert list(line) == ["ts", "session", "event", "data", "level", "turn"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "session": "s-1",
        "event": "prompt_received",
        "data": {"text": "my secret", "queued": False, "command_id": "c-1", "parts": []},
        "level": "info",
        "turn": 3,
    }


@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("debug", ["prompt_received", "message_delta", "retry", "pipeline_run"]),
        ("info", ["prompt_received", "retry"]),
        ("warning", ["retry"]),
        ("warn", ["retry"]),
    ],
)
def test_a_level_leaves_out_what_is_below_it(context, written, level, found, logger_of):
    """Pieces of an answer and runs of plugins are for debugging; a retry is a warning."""
    logger = logger_of(level=level)
    for event in (PROMPT, DELTA, RETRY, RUN):
        logger.observe(event, context)

    assert [line["event"] for line in written()] == found


def test_hooks_that_nothing_published_reports_are_written(context, written, logger_of):
    """The start of each process, the end of the session, and a failure that is tried again."""
    logger = logger_of()
    logger.session_start(SessionStart(), context)
    logger.on_tool_error(OnToolError("shell", "call-1", "no luck", 1), context)
    logger.session_end(SessionEnd(), context)

    assert [(line["event"], line["level"], line["data"]) for line in written()] == [
        ("session_start", "info", {"incarnation": 1, "model": "openai:gpt"}),
        (
            "on_tool_error",
            "warning",
            {"name": "shell", "call_id": "call-1", "error": "no luck", "attempt": 1},
        ),
        ("session_end", "info", {}),
    ]


# fmt: off
HOOKS_PUBLISHED = {
    hooks.AfterResponse:  (events.ResponseComplete,),
    hooks.AfterTool:      (events.ToolExecutionEnd, events.ToolExecutionMetrics),
    hooks.AfterToolBatch: (events.ToolExecutionEnd,),
    hooks.AfterTurn:      (events.AgentEnd, events.AgentAbort, events.AgentError),
    hooks.BeforeCompact:  (events.ConversationCompacted,),
    hooks.BeforeFinish:   (events.AgentEnd,),
    hooks.BeforePrompt:   (events.PromptReceived, events.AgentStart),
    hooks.BeforeRequest:  (events.RequestStart,),
    hooks.BeforeSteering: (events.SteeringReceived,),
    hooks.BeforeTool:     (events.ToolExecutionStart, events.ToolBlocked),
}
# fmt: on
"""Hooks that the log has not, each with the events that say the same: no session waits for it. That
plugins were asked there at all is a ``PipelineRun``."""


def test_every_hook_is_logged_or_published():
    """A new hook needs a row in the table above, of the events that say as much.

    Where there are none, it needs one in ``HOOKS_LOGGED``, and the method that writes it.
    """
    logged = {hook for kind, hook in HOOKS.items() if kind in hooks_of(EventLogger())}

    assert logged == HOOKS_LOGGED.keys()
    assert not logged & HOOKS_PUBLISHED.keys()
    assert {*logged, *HOOKS_PUBLISHED} == set(HOOKS.values())


@pytest.mark.parametrize("hook", HOOKS_LOGGED, ids=lambda hook: hook.__name__)
def test_content_fields_are_fields(hook):
    """What may be left out is there."""
    fields = {field.name for field in msgspec.structs.fields(hook)}

    assert set(HOOKS_LOGGED[hook].content_fields) <= fields


CALL = ToolExecutionStart(name="shell", call_id="c", args={"command": "ls"}, summary="list")


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (PROMPT, {"queued": False, "command_id": "c-1", "parts": []}),
        (CALL, {"name": "shell", "call_id": "c"}),
        (
            ToolExecutionEnd(name="shell", call_id="c", ok=True, text="a.txt"),
            {"name": "shell", "call_id": "c", "ok": True, "uncertain": False},
        ),
        (PluginEvent(name="audit", payload={"command": "ls"}), {"name": "audit"}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_content_can_be_left_out(context, written, event, data, logger_of):
    """Without include_args no prompt, argument, result or payload is written."""
    logger_of(include_args=False).observe(event, context)

    assert [line["data"] for line in written()] == [data]


def test_error_of_a_tool_is_content_too(context, written, logger_of):
    """It is what the tool returned."""
    logger = logger_of(include_args=False)
    logger.on_tool_error(OnToolError("shell", "call-1", "no luck", 1), context)

    assert [line["data"] for line in written()] == [
        {"name": "shell", "call_id": "call-1", "attempt": 1}
    ]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, ".cmdc/logs/s-1.jsonl"),
        ({"log_dir": "logs"}, "logs/s-1.jsonl"),
        ({"log_dir": "logs/{session_id}"}, "logs/s-1/s-1.jsonl"),
        ({"log_file": "all.jsonl"}, "all.jsonl"),
        ({"log_file": "of-{session_id}.log", "log_dir": "logs"}, "of-s-1.log"),
    ],
)
def test_place_of_the_file(context, written, options, path, logger_of):
    """Relative to the session's working folder; a file wins over a folder."""
    logger_of(**options).observe(PROMPT, context)

    assert len(written(path)) == 1


def test_home_and_absolute_paths_are_what_they_are(context, tmp_path, monkeypatch, logger_of):
    """They do not depend on the working folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    logger_of(log_dir="~/logs").observe(PROMPT, context)
    logger_of(log_file=str(tmp_path / "other" / "a.jsonl")).observe(PROMPT, context)

    assert (tmp_path / "home" / "logs" / "s-1.jsonl").exists()
    assert (tmp_path / "other" / "a.jsonl").exists()


def test_file_and_its_new_folders_are_private(context, tmp_path, logger_of):
    """Prompts and results are nobody else's business; a folder that was there stays as it was."""
    tmp_path.chmod(0o755)
    logger_of().observe(PROMPT, context)
    modes = [
        stat.S_IMODE((tmp_path / path).stat().st_mode)
        for path in (".", ".cmdc", ".cmdc/logs", ".cmdc/logs/s-1.jsonl")
    ]

    assert modes == [0o755, 0o700, 0o700, 0o600]


def test_the_next_process_goes_on_with_the_file(context, written, logger_of):
    """A session has one log over its life."""
    logger_of().observe(PROMPT, context)
    logger_of().observe(RETRY, context)

    assert [line["event"] for line in written()] == ["prompt_received", "retry"]


def test_a_cut_line_is_ended_before_the_next_one(context, tmp_path, logger_of):
    """A disk that was full cost one line and not two."""
    (tmp_path / "a.jsonl").write_text('{"half')
    logger_of(log_file="a.jsonl").observe(RETRY, context)
    first, second = (tmp_path / "a.jsonl").read_text().splitlines()

    assert first == '{"half'
    assert json.loads(second)["event"] == "retry"


def test_sessions_may_share_a_file(context, written, tmp_path, logger_of):
    """Each line says whose it is."""
    other = PluginContext(session_id="s-2", working_dir=str(tmp_path))
    loggers = [logger_of(log_file="all.jsonl") for _ in range(2)]
    for logger, whose in zip(loggers * 2, [context, other] * 2, strict=True):
        logger.observe(RETRY, whose)

    assert [line["session"] for line in written("all.jsonl")] == ["s-1", "s-2"] * 2


def test_the_end_of_the_session_closes_the_file(context, logger_of):
    """A process that goes on has no open file of it."""
    before = open_files()
    logger = logger_of()
    logger.session_start(SessionStart(), context)
    logger.session_end(SessionEnd(), context)

    assert open_files() == before


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_large_event_is_cut(context, written, logger_of):
    """A line has a bound; what is missing is said."""
    logger_of().observe(PluginEvent(name="big", payload="x" * 10**6), context)
    [line] = written()

    assert line["data"]["payload"].endswith("more characters)")
    assert line["data"]["cut_from_bytes"] > 10**6


def test_a_full_file_becomes_an_older_one(context, tmp_path, logger_of):
    """At the size and in the number that the options say."""
    logger = logger_of(log_file="a", max_bytes=65_536, backups=1)
    for number in range(7):
        logger.observe(PluginEvent(name=str(number), payload="x" * 30_000), context)
    names = {
        path.name: [json.loads(line)["data"]["name"] for line in path.read_text().splitlines()]
        for path in tmp_path.iterdir()
    }

    assert names == {"a": ["6"], "a.1": ["4", "5"]}


def stopped(logger, context):
    """Return what the log says of a few events that cannot be written."""
    with structlog.testing.capture_logs() as entries:
        for event in (PROMPT, RETRY, AgentStart(command_id="c-1")):
            logger.observe(event, context)
        logger.session_end(SessionEnd(), context)
    return [(entry["event"], entry["log_level"], entry["error"]) for entry in entries]


def beside(tmp_path):
    """Return a folder outside of the working folder."""
    folder = tmp_path.with_name(f"{tmp_path.name}-beside")
    folder.mkdir(exist_ok=True)
    return folder


def no_folder(tmp_path):
    (tmp_path / "logs").write_text("")


def folder_for_file(tmp_path):
    (tmp_path / "logs/s-1.jsonl").mkdir(parents=True)


def pipe(tmp_path):
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs/s-1.jsonl")


def link(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/s-1.jsonl").symlink_to(beside(tmp_path) / "victim")


def folder_link(tmp_path):
    (tmp_path / "logs").symlink_to(beside(tmp_path))


@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (no_folder, "Not a directory|File exists"),
        (folder_for_file, "Is a directory"),
        (pipe, "no regular file"),
        (link, "give the absolute path"),
        (folder_link, "give the absolute path"),
    ],
)
def test_a_file_that_cannot_be_written_is_reported_once(
    context, tmp_path, prepare, error, logger_of
):
    """The session goes on without its log, and nothing waits."""
    prepare(tmp_path)
    [(event, level, said)] = stopped(logger_of(log_dir="logs"), context)

    assert (event, level) == ("event_log.stopped", "warning")
    assert re.search(error, said)
    assert not list(beside(tmp_path).iterdir())


def test_a_link_that_stays_in_the_working_folder_is_followed(context, tmp_path, written, logger_of):
    """Where it leads to tools may write anyway."""
    (tmp_path / "link").symlink_to("target")
    logger_of(log_file="link").observe(RETRY, context)

    assert len(written("target")) == 1


def test_a_full_disk_ends_the_log(context, monkeypatch, logger_of):
    """A line that is not written as a whole counts as none."""
    monkeypatch.setattr(module.os, "write", lambda _fd, line: len(line) - 1)
    [(_, _, error)] = stopped(logger_of(), context)

    assert re.search(r"only \d+ of \d+ bytes were written", error)


def test_an_unfit_session_id_names_no_file(tmp_path, logger_of):
    """An id comes from outside, and a path could lead anywhere."""
    context = PluginContext(session_id="../../etc/x", working_dir=str(tmp_path))
    [(_, _, error)] = stopped(logger_of(), context)

    assert "'../../etc/x' is no session id" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"level": "loud"}, "option 'level': Invalid enum value 'loud'"),
        ({"max_bytes": 10}, "option 'max_bytes': Expected `int` >= 65536"),
        ({"backups": -1}, "option 'backups': Expected `int` >= 0"),
        ({"log_dir": ""}, "option 'log_dir': Expected `str` of length >= 1"),
        (
            {"log_file": "logs/{session}.jsonl"},
            "log_file has '{session}': the one placeholder is '{session_id}'",
        ),
        ({"log_dir": "{}"}, "log_dir has '{}': the one placeholder is '{session_id}'"),
    ],
)
def test_unfit_options_are_refused(options, problem):
    """Each is named with its value and the way out."""
    with pytest.raises(InvalidOptions) as raised:
        EventLogger(**options)

    assert problem in str(raised.value)


def test_defaults():
    """As the reference says."""
    assert EventLogger().config == plugins.EventLogger(
        level="info",
        log_dir=None,
        log_file=None,
        include_args=True,
        max_bytes=50_000_000,
        backups=3,
    )
