"""What the tests of this folder need to use the run's daemon.

A session is stopped by the test's ``agent`` fixture and a model's server by ``scripted``; when a
test file is done, no session and no process beyond the daemon's own may be left.
"""

import contextlib
import threading

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import CmdcError
from cmdc_runtime.testing import ScriptedModel
from tests.ended import has_ended

TURN_S = 20.0
"""For anything that a session does in a test, the machine being busy."""
POLL_S = 0.02
OWN_PROCESSES = 4
"""Of a daemon without sessions: the zygote, the resource tracker and two spares."""


def poll(condition, timeout=TURN_S):
    """Return the first true answer of ``condition``, asked again and again until the time is up."""
    never = threading.Event()
    for _ in range(round(timeout / POLL_S)):
        if found := condition():
            return found
        never.wait(POLL_S)
    return condition()


def below(daemon):
    """Return the living processes that the daemon started, directly or not."""
    return [
        one for one in psutil.Process(daemon.pid).children(recursive=True) if not has_ended(one)
    ]


@pytest.fixture(scope="session")
def client(cmdc_daemon):
    """A client of the run's daemon, which no test here ends."""
    with cmdc.Client(cmdc_daemon.address) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(cmdc_daemon, client):
    """When a file is done, the daemon has its own processes again and no session.

    What a failed test has left is ended, so that it is the failure of one file only.
    """
    yield
    left = client.list_sessions()
    for status in left:
        with contextlib.suppress(CmdcError):  # one may end another, or by itself
            client.stop(status.session_id)
    assert left == []
    assert poll(lambda: len(below(cmdc_daemon)) <= OWN_PROCESSES), below(cmdc_daemon)


@pytest.fixture(scope="session", autouse=True)
def _everything_is_heard(client, heard):
    """Note what the sessions of the run's daemon publish, for the test of the event catalogue."""
    with client.subscribe_all() as stream:
        listener = threading.Thread(target=listen, args=(stream, heard))
        listener.start()
        yield
        with ScriptedModel(["Bye."]) as model, client.create_agent(model=model) as last:
            last.run("Hello.", timeout=TURN_S)  # events arrive in their order: its own come last
            assert poll(lambda: "AgentEnd" in heard.get(last.id, ()))
    listener.join(TURN_S)
    assert not listener.is_alive()


def listen(stream, heard):
    """Note the name of every event until the stream is closed."""
    for envelope in stream:
        heard.setdefault(envelope.session_id, set()).add(type(envelope.event).__name__)


@pytest.fixture
def scripted():
    """Make scripted models that are closed at the test's end."""
    with contextlib.ExitStack() as stack:
        yield lambda *steps, **more: stack.enter_context(ScriptedModel(steps, **more))


@pytest.fixture
def agent(client):
    """Make sessions of the shared daemon that are stopped at the test's end."""
    with contextlib.ExitStack() as stack:

        def create(model, **options):
            return stack.enter_context(client.create_agent(model=model, **options))

        yield create


def cycle_events(stream, ends=("agent_end", "agent_abort", "agent_error")):
    """Return the envelopes up to the end of the running cycle."""
    found = [stream.get(TURN_S)]
    while found[-1].event.kind not in ends:
        found.append(stream.get(TURN_S))
    return found


@pytest.fixture(name="cycle_of")
def _cycle_of():
    """Read a stream up to the end of the running cycle."""
    return cycle_events


@pytest.fixture(name="poll")
def _poll():
    """Wait for a condition of the operating system."""
    return poll


def plugin_class(name="fixed", priority=500, fail="open", **answers):
    """Return a class of plugins that answer these hooks, by actions or by functions."""
    methods = {kind: _method(answer) for kind, answer in answers.items()}
    return type(
        "Fixed", (cmdc.Plugin,), {"name": name, "priority": priority, "fail": fail} | methods
    )


def _method(answer):
    def heard(_self, event, context):
        return answer(event, context) if callable(answer) else answer

    return heard


@pytest.fixture
def plugin_of():
    """Make plugins that answer fixed actions: ``plugin_of(before_prompt=cmdc.Abort("no"))``."""
    return plugin_class


def events_until(stream, kind, name=None):
    """Return the events up to the first of this kind, of a plugin's up to the one of this name."""
    found = []
    while not found or found[-1].kind != kind or (name is not None and found[-1].name != name):
        found.append(stream.get(TURN_S).event)
    return found


@pytest.fixture(name="events_until")
def _events_until():
    """Read a stream up to an event."""
    return events_until


@pytest.fixture
def resumed(client):
    """Resume sessions that are stopped at the test's end."""
    made = []

    def resume(session, **given):
        made.append(client.resume_session(session, **given))
        return made[-1]

    yield resume
    for one in made:
        with one:
            pass
