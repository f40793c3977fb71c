"""Code that is another one when the next process of a session opens it: reported, and not run."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.faults import FaultStep
from cmdc_runtime.reasons import Signal, StartFailed
from cmdc_runtime.testing import Hold, ToolCalls, ToolUse
from tests.fault.audit import SLEEPER
from tests.fault.conftest import poll_for

pytestmark = [
    pytest.mark.fault,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.fault_case("F33"),
]

CMDC = Path(sys.executable).with_name("cmdc")
TURN_S = 30.0
KILLED = Signal(number=9, name="SIGKILL")
TAKEN = "code_taken"
"""The kind of the record that says which code the session has."""
CALL = ToolCalls(ToolUse("probe", {}))
SECOND = "the second one"
"""Of another length than the first: the cache of byte code goes by size and second."""


@pytest.fixture(scope="module")
def code_path(tmp_path_factory):
    """A folder from which the daemon's processes import."""
    folder = tmp_path_factory.mktemp("code")
    with pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), known])))
        yield folder


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Where the plans of sessions are that die at a write."""
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def shared_daemon(code_path, plans, shared_daemon):
    """A daemon that imports from there, and whose agents die where a plan says so."""
    plain = shared_daemon.environment
    shared_daemon.environment = lambda: plain() | {"CMDC_FAULTS": str(plans)}
    return shared_daemon


class Application:
    """A package with a tool and a plugin, whose answer stands in a module of its own."""

    def __init__(self, folder, name):
        self.folder = folder / name
        self.tool, self.plugin = f"{name}.tools:probe", f"{name}.tools:Guard"
        self.answers = self.folder / "answers.py"
        self.folder.mkdir()
        (self.folder / "__init__.py").touch()
        (self.folder / "unused.py").write_text("GREETING = 'hello'\n")
        self.say("first")
        (self.folder / "tools.py").write_text(
            "import cmdc_runtime as cmdc\n\n"
            f"from {name}.answers import ANSWER\n\n\n"
            '@cmdc.tool(effects="read")\n'
            "def probe() -> str:\n"
            '    """Say which code this is."""\n'
            "    return ANSWER\n\n\n"
            "class Guard(cmdc.Plugin):\n"
            "    def before_prompt(self, event, context):\n"
            "        return None\n"
        )

    def say(self, answer):
        """Have the tool answer otherwise from the next process on."""
        self.answers.write_text(f"ANSWER = {answer!r}\n")

    def go(self):
        """Be there no more."""
        shutil.rmtree(self.folder)


@pytest.fixture
def application(code_path, request):
    """One application for each test: what a process has imported it keeps."""
    return Application(code_path, f"shop_{abs(hash(request.node.name))}")


@pytest.fixture
def agent(agent):
    """Make sessions that may be resumed."""

    def create(*model, **options):
        return agent(*model, **{"session_id": new_id(), **options})

    return create


def new_id():
    """Return the id of a session whose ends are not counted, since it may be resumed."""
    return f"{SLEEPER}{os.urandom(4).hex()}"


def kill(session):
    """Kill the session's process, when what it has written is on its way, and wait for its end."""
    session.status()
    monitor = session.monitor()
    os.kill(session.agent_pid(), signal.SIGKILL)
    assert monitor.wait(TURN_S).reason == KILLED


def parked(session):
    """Return the error of a session when it is parked."""

    def look():
        try:
            session.status()
        except cmdc.SessionParked as error:
            return error
        return None

    return poll_for(look, TURN_S)


def results(session):
    """Return what tools have answered."""
    return [one.content for one in session.messages() if one.role == "tool_result"]


def test_changed_code_parks_its_session_and_is_not_run(place, agent, scripted, application):
    """The last Down and the park name what changed; resumed with the latest code it goes on."""
    model = scripted(CALL, "one", CALL, "two")
    session = agent(model, tools=[application.tool])
    assert session.run("1", timeout=TURN_S).text == "one"
    monitor = session.monitor(persistent=True)
    application.say(SECOND)
    os.kill(session.agent_pid(), signal.SIGKILL)
    killed, notice = monitor.wait(TURN_S), monitor.wait(TURN_S)
    error = parked(session)
    with pytest.raises(cmdc.SessionParked) as refused:
        session.prompt("Are you there?")
    with pytest.raises(cmdc.SessionParked) as again:
        session.resume_session()
    listed = subprocess.run(
        [CMDC, "ps", "--all", "--address", str(place.address)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    resumed = session.resume_session(code="latest")
    replay = [CMDC, "replay", session.id, "--address", str(place.address)]

    assert (killed.reason, killed.restarting, notice.restarting) == (KILLED, True, False)
    assert isinstance(notice.reason, StartFailed)
    assert (notice.reason.stage, notice.incarnation) == ("code", 2)
    module = application.answers.parent.name
    assert f"({module}.answers)" in notice.reason.message
    assert 'code="latest"' in notice.reason.message
    assert error.reason == refused.value.reason == again.value.reason == str(notice.reason)
    assert [line for line in listed.splitlines() if session.id in line and "parked" in line]
    assert resumed.run("2", timeout=TURN_S).text == "two"
    assert results(resumed) == ["first", SECOND]
    subprocess.run(replay, capture_output=True, check=True)
    resumed.stop()


@pytest.fixture
def amid(agent, scripted, application):
    """Have a session's process die amid a turn, between two calls of the tool, the code changed."""

    def cut(**options):
        model = scripted(CALL, Hold(), default=last_of)
        session = agent(model, tools=[application.tool], **options)
        session.prompt("1")
        model.wait_held()
        application.say(SECOND)
        kill(session)
        model.release()
        return session

    return cut


def last_of(request):
    """Call the tool a second time; then the turn is over."""
    results = sum(one["role"] == "tool" for one in request["messages"])
    return "done" if results == 2 else CALL


def test_a_turn_that_was_cut_off_is_done_with_the_code_it_began_with(amid, application):
    """Put back, it goes on where it was: no part of the turn has seen the other code."""
    session = amid()
    parked(session)
    application.say("first")
    resumed = session.resume_session()

    assert resumed.collect_reply(timeout=TURN_S) == "done"
    assert (results(resumed), resumed.status().incarnation) == (["first"] * 2, 3)
    resumed.stop()


def test_a_turn_that_was_cut_off_goes_on_with_the_latest_code_if_its_options_say_so(amid):
    """Only then: what was answered stays, what is called next is the code of now."""
    session = amid(code="latest")

    assert session.collect_reply(timeout=TURN_S) == "done"
    assert results(session) == ["first", SECOND]


def test_with_the_latest_code_the_next_process_runs_what_is_there(agent, scripted, application):
    """As its options say: nobody is asked."""
    model = scripted(CALL, "one", CALL, "two")
    session = agent(model, tools=[application.tool], code="latest")
    session.run("1", timeout=TURN_S)
    application.say(SECOND)
    kill(session)

    assert session.run("2", timeout=TURN_S).text == "two"
    assert results(session) == ["first", SECOND]


@pytest.mark.parametrize("what", ["unused", "touched"])
def test_what_no_process_of_the_session_has_imported_is_not_its_code(
    agent, scripted, application, what
):
    """Neither another module of the package nor a file that says the same parks anything."""
    model = scripted(CALL, "one", CALL, "two")
    session = agent(model, tools=[application.tool])
    session.run("1", timeout=TURN_S)
    if what == "unused":
        (application.folder / "unused.py").write_text("GREETING = 'good morning'\n")
    else:
        application.say("first")
    kill(session)

    assert session.run("2", timeout=TURN_S).text == "two"


@pytest.mark.parametrize("way", ["plugin", "attached_tool", "attached_plugin"])
def test_code_counts_whichever_way_it_came(agent, application, way):
    """A plugin's code is the session's, and so is what was attached while it lived."""
    session = agent(plugins=[application.plugin] if way == "plugin" else [])
    if way == "attached_tool":
        session.attach_tool(application.tool)
    elif way == "attached_plugin":
        session.attach_plugin(application.plugin)
    application.say(SECOND)
    kill(session)
    error = parked(session)

    assert "answers) " not in str(error)
    assert ".answers)" in error.reason
    session.stop()
    with pytest.raises(cmdc.SessionNotAlive):
        session.status()


def test_parked_sessions_are_parked_for_the_next_daemon(place, audit, agent, application):
    """It starts no process for them, and goes on with them when somebody asks for it."""
    audit.daemon_died = True
    session = agent(tools=[application.tool])
    monitor = session.monitor(persistent=True)
    application.say(SECOND)
    kill(session)
    while monitor.wait(TURN_S).restarting:
        pass  # the last one is reported when the journal has it
    error = parked(session)
    place.kill()
    place.start()
    with pytest.raises(cmdc.SessionParked) as caught:
        session.status()
    resumed = session.resume_session(code="latest")

    assert caught.value.reason == error.reason
    assert resumed.status().incarnation == 3
    resumed.stop()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("where", ["agent", "append"])
def test_a_death_at_the_record_leaves_the_code_to_the_next_process(
    agent, application, plans, where, moment
):
    """Whether the record is there or not: that one has the same code, and later ones want it."""
    session_id = new_id()
    step = FaultStep(f"{where}.*{TAKEN}*.{moment}", 1, "agent")  # it may be written with others
    plan = plans / f"{session_id}.plan"
    plan.write_text(f"{step}\n")
    session = agent(tools=[application.tool], session_id=session_id)
    assert poll_for(lambda: not plan.read_text(), TURN_S)  # it has died
    session.run("1", timeout=TURN_S)
    application.say(SECOND)
    kill(session)

    assert ".answers)" in parked(session).reason


def test_tools_given_anew_are_taken_as_they_are(agent, scripted, application):
    """Who names them again has taken them again; from then on that code is the session's."""
    model = scripted(CALL, "one")
    session = agent(model, tools=[application.tool])
    application.say(SECOND)
    kill(session)
    parked(session)
    resumed = session.resume_session(tools=[application.tool])
    resumed.run("1", timeout=TURN_S)
    application.say("a third one")
    kill(resumed)
    error = parked(resumed)

    assert ".answers)" in error.reason
    resumed.stop()


def test_a_tool_host_runs_no_other_code_than_its_agent(agent, scripted, application):
    """It opens tools in a process of its own, perhaps long after the agent did."""
    model = scripted(CALL, "one")
    session = agent(model, tools=[application.tool])
    application.say(SECOND)
    session.run("1", timeout=TURN_S)

    (result,) = results(session)
    assert "its code has changed since the session took it" in result


@pytest.mark.parametrize("damage", ["gone", "broken"])
def test_code_that_cannot_be_loaded_any_more(agent, application, damage):
    """Parked, as any change; who wants the latest gets an error at once, with what is wrong."""
    session = agent(tools=[application.tool])
    if damage == "gone":
        application.go()
    else:
        application.answers.write_text("raise RuntimeError('half an update')\n")
    kill(session)
    parked(session)
    with pytest.raises(cmdc.StartFailed) as caught:
        session.resume_session(code="latest")
    with pytest.raises(cmdc.SessionNotAlive) as ended:
        session.status()

    assert caught.value.reason.stage == "load"
    problem = "No module named" if damage == "gone" else "RuntimeError: half an update"
    assert problem in caught.value.reason.message
    assert ended.value.reason == caught.value.reason
