"""``cmdc`` as people run it: a process of its own against a real daemon and a scripted provider."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cmdc_runtime.testing import Error, Hold, ScriptedModel, ToolCalls, ToolUse

pytestmark = pytest.mark.process

CMDC = Path(sys.executable).with_name("cmdc")
RUN_S = 60.0
"""For one command, the machine being busy."""
ESCAPE = "\x1b[2J"


def environment(daemon=None, **more):
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CMDC_")}
    return ours | ({"CMDC_ADDRESS": str(daemon.address)} if daemon else {}) | more


def cmdc(*arguments, daemon=None, stdin="", **more):
    """Run one command to its end."""
    return subprocess.run(
        [CMDC, *arguments],
        input=stdin,
        env=environment(daemon, **more),
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


def agent(model):
    """Return the options that lead an agent to a scripted model."""
    name, opts = model.model_source()
    pairs = (f"{key}={value}" for key, value in opts.items())
    return ["--model", name, *(word for pair in pairs for word in ("--provider-opt", pair))]


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def nowhere(tmp_path):
    """Return variables that hide every daemon of this machine's user."""
    return {"CMDC_RUNTIME_DIR": str(tmp_path / "run")}


# --- run --------------------------------------------------------------------------------------


def test_run_prints_the_answer_alone(cmdc_daemon):
    """Standard output holds the answer and nothing else; what was done goes to standard error."""
    steps = [ToolCalls(ToolUse("list_dir", {"path": "."}), text="Let me look."), "Two files."]
    with ScriptedModel(steps) as model:
        done = cmdc("run", "what is here?", *agent(model), "--tool", "list_dir", daemon=cmdc_daemon)

    assert (done.returncode, done.stdout) == (0, "Two files.\n"), done.stderr
    assert "tool list_dir(path='.')" in done.stderr
    assert "tool list_dir done after " in done.stderr


def test_run_leaves_no_session(cmdc_daemon):
    """The session of a run is gone when the command is, unless it is to be kept."""
    with ScriptedModel([], default="Yes.") as model:
        gone = cmdc("run", "hi", *agent(model), "--session-id", "gone", daemon=cmdc_daemon)
        kept = cmdc(
            "run", "hi", *agent(model), "--session-id", "kept", "--keep", daemon=cmdc_daemon
        )
        found = lines(cmdc("ps", "--json", daemon=cmdc_daemon).stdout)[0]
        cmdc("stop", "kept", daemon=cmdc_daemon)

    assert (gone.returncode, kept.returncode) == (0, 0)
    assert [one["session_id"] for one in found if one["session_id"] in {"gone", "kept"}] == ["kept"]


def test_run_json_is_events_and_the_reply(cmdc_daemon):
    """Every line is JSON; the events are numbered without a gap, and the last line is the reply."""
    with ScriptedModel(["All of it."]) as model:
        done = cmdc("run", "hi", "--json", *agent(model), daemon=cmdc_daemon)
    *events, last = lines(done.stdout)

    assert done.returncode == 0, done.stderr
    assert [one["index"] for one in events] == list(range(1, len(events) + 1))
    assert [events[0]["event"]["kind"], events[-1]["event"]["kind"]] == [
        "prompt_received",
        "agent_end",
    ]
    assert last["reply"]["text"] == "All of it."


def test_run_reads_the_prompt_from_a_pipe(cmdc_daemon):
    """``-`` stands for the text on standard input."""
    with ScriptedModel(["Read."]) as model:
        done = cmdc("run", "-", *agent(model), daemon=cmdc_daemon, stdin="a long story")
        asked = model.wait_request()["messages"][-1]["content"]

    assert (done.stdout, asked) == ("Read.\n", "a long story")


def test_failed_run_is_reported_in_one_line(cmdc_daemon):
    """When the agent fails, the status is 1, and one line says why, without a traceback."""
    with ScriptedModel([Error(400, f"no such model {ESCAPE}")]) as model:
        done = cmdc("run", "hi", *agent(model), daemon=cmdc_daemon)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cmdc: the cycle failed: ")
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


def test_failed_run_has_json_too(cmdc_daemon):
    """With ``--json`` the last line is the error, also when no agent could be started."""
    with ScriptedModel([]) as model:
        wrong = (*agent(model), "--tool", "no_such:tool")
        done = cmdc("run", "hi", "--json", *wrong, daemon=cmdc_daemon)
    (last,) = lines(done.stdout)

    assert (done.returncode, last["error"]["code"]) == (1, "start_failed")
    assert "no_such" in last["error"]["message"]


def test_model_cannot_command_the_terminal(cmdc_daemon):
    """An escape sequence in an answer comes out as visible characters."""
    with ScriptedModel([f"before {ESCAPE}after"]) as model:
        done = cmdc("run", "hi", *agent(model), daemon=cmdc_daemon)

    assert done.stdout == "before \u241b[2Jafter\n"


def test_interrupted_run_aborts_and_stops(cmdc_daemon):
    """Ctrl-C ends the cycle, and the session with the command."""
    with ScriptedModel([("Well ", Hold())]) as model:
        process = subprocess.Popen(
            [CMDC, "run", "hi", *agent(model), "--session-id", "broken-off"],
            env=environment(cmdc_daemon),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        model.wait_held(RUN_S)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=RUN_S)
        after = cmdc("stop", "broken-off", daemon=cmdc_daemon)

    assert process.returncode == 130
    assert (after.returncode, "ended" in after.stderr) == (1, True)


def test_run_starts_a_daemon_of_its_own(tmp_path):
    """Where no daemon runs, a private one serves the run and is gone with it."""
    with ScriptedModel(["At your service."]) as model:
        done = cmdc("run", "hi", *agent(model), **nowhere(tmp_path), TMPDIR=str(tmp_path.resolve()))

    assert (done.returncode, done.stdout) == (0, "At your service.\n"), done.stderr
    assert list(tmp_path.iterdir()) == []


# --- sessions of others -----------------------------------------------------------------------


def test_session_is_driven_from_the_command_line(cmdc_daemon, cmdc_session):
    """``prompt``, ``ps``, ``tree``, ``tail`` and ``stop`` see one and the same session."""
    with ScriptedModel(["Done."]) as model:
        session = cmdc_session(model, session_id="driven")
        prompted = cmdc("prompt", "driven", "work", "--json", daemon=cmdc_daemon)
        session.collect_reply()
        listed = json.loads(cmdc("ps", "--json", daemon=cmdc_daemon).stdout)
        tree = cmdc("tree", "--json", daemon=cmdc_daemon)
        stopped = cmdc("stop", "driven", "--json", daemon=cmdc_daemon)
        tailed = cmdc("tail", "driven", "--since", "0", "--json", daemon=cmdc_daemon)
    status = next(one for one in listed if one["session_id"] == "driven")

    assert json.loads(prompted.stdout)["queued"] is False
    assert (status["state"], status["turns"]) == ("idle", 1)
    assert '"session:driven"' in tree.stdout
    assert json.loads(stopped.stdout) == {"session_id": "driven", "stopped": True}
    assert tailed.returncode == 0, tailed.stderr
    kinds = [one["event"]["kind"] for one in lines(tailed.stdout)]
    assert (kinds[0], kinds[-1]) == ("prompt_received", "agent_end")


def test_listings_are_plain_in_a_pipe(cmdc_daemon, cmdc_session):
    """Without a terminal there is no colour, and no column is cut."""
    name = "x" * 120
    with ScriptedModel([]) as model:
        cmdc_session(model, session_id=name)
        listed = cmdc("ps", daemon=cmdc_daemon)
        drawn = cmdc("tree", daemon=cmdc_daemon, FORCE_COLOR="1")

    assert (name in listed.stdout, f"session:{name}" in drawn.stdout) == (True, True)
    assert "\x1b" not in listed.stdout + drawn.stdout


def test_monitor_prints_a_crash_and_the_end(cmdc_daemon, cmdc_session):
    """Each process that ends is a line with its reason; a session stopped as asked is status 0."""
    with ScriptedModel([]) as model:
        session = cmdc_session(model, session_id="watched")
        with following("monitor", "watched", "--json", daemon=cmdc_daemon) as process:
            first = killed_until_printed(process, session)
            session.stop()
            last = json.loads(process.stdout.readline())
            status = process.wait(RUN_S)

    assert (first["reason"]["kind"], first["restarting"]) == ("signal", True)
    assert (last["reason"]["kind"], last["restarting"], status) == ("normal", False, 0)


@contextlib.contextmanager
def following(*arguments, daemon):
    """Run a command that goes on, and end it whatever happens."""
    process = subprocess.Popen(
        [CMDC, *arguments], env=environment(daemon), stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def killed_until_printed(process, session):
    """Kill the session's agent once the command is there to print it; return what it printed."""
    wait = session.monitor(persistent=True)
    deadline_s = time.monotonic() + RUN_S
    while time.monotonic() < deadline_s:
        os.kill(session.agent_pid(), signal.SIGKILL)
        wait.wait(RUN_S)
        session.status()
        if select.select([process.stdout], [], [], 2.0)[0]:
            return json.loads(process.stdout.readline())
    raise AssertionError("nothing was printed")


@pytest.mark.parametrize(
    "arguments",
    [
        ("tail", "no-such"),
        ("tail", "no-such", "--since", "0"),
        ("stop", "no-such"),
        ("prompt", "no-such", "hi"),
        ("steer", "no-such", "hi"),
        ("approve", "no-such", "a-1"),
        ("reject", "no-such", "a-1"),
        ("respond", "no-such", "q-1", "yes"),
        ("model", "no-such", "openai:any"),
        ("abort", "no-such"),
        ("monitor", "no-such"),
    ],
    ids=" ".join,
)
def test_unknown_session_is_reported(arguments, cmdc_daemon):
    """A session that was never there is status 1 and one line that names it."""
    done = cmdc(*arguments, daemon=cmdc_daemon)

    assert (done.returncode, done.stdout) == (1, "")
    assert (done.stderr.count("\n"), "no-such" in done.stderr) == (1, True), done.stderr


# --- no daemon, wrong usage -------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("ps",),
        ("tree",),
        ("tail", "some"),
        ("stop", "some"),
        ("prompt", "some", "hi"),
        ("steer", "some", "hi"),
        ("approve", "some", "a-1"),
        ("reject", "some", "a-1"),
        ("respond", "some", "q-1", "yes"),
        ("model", "some", "openai:any"),
        ("abort", "some"),
        ("monitor", "some"),
        ("run", "hi", "--model", "openai:any", "--keep"),
    ],
    ids=" ".join,
)
def test_no_daemon_is_reported(arguments, tmp_path):
    """Who asks about sessions starts no daemon: status 3 and the way out."""
    done = cmdc(*arguments, **nowhere(tmp_path))

    assert (done.returncode, done.stdout) == (3, "")
    assert (str(tmp_path / "run") in done.stderr, "`cmdc serve`" in done.stderr) == (True, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("run",),
        ("run", "hi"),
        ("run", "hi", "--model", "openai:any", "--provider-opt", "no-value"),
        ("run", "hi", "--model", "no-provider"),
        ("tail", "some", "--since", "-1"),
        ("serve", "--no-such-flag"),
        ("ps", "--address", "tcp://127.0.0.1:1"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(arguments, cmdc_daemon):
    """What can never work as asked is status 2, and what was wrong is reported."""
    done = cmdc(*arguments, daemon=cmdc_daemon)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr != ""


def test_second_daemon_is_refused(cmdc_daemon):
    """A directory has one daemon; the second one leaves with status 3 and names the first."""
    done = cmdc("serve", "--runtime-dir", str(cmdc_daemon.address))

    assert (done.returncode, str(cmdc_daemon.pid) in done.stderr) == (3, True), done.stderr


def test_overview_loads_nothing_slow():
    """``cmdc --help`` needs neither the client's sockets nor rich."""
    probe = (
        "import sys; from cmdc_runtime.cli import main; main(['--help']);"
        "slow = {'asyncio', 'litellm', 'rich', 'supervisor', 'zmq'};"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=RUN_S, check=True
    )

    assert (done.stderr, "tail" in done.stdout) == ("[]\n", True)
