"""The next daemon is other code of an equal wire version: what goes on, and what becomes new.

The code is a copy of the three packages in a folder of the test's own. An upgrade puts other files
into its place while the old daemon runs, as an installer does.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.cli import main
from cmdc_runtime.reasons import Unresponsive
from cmdc_runtime.testing import Hold, Text, ToolCalls, ToolUse
from cmdc_runtime.version import VERSION
from tests.fault.test_adoption import indexes_of

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
QUIET_S = 3.0
"""For an agent of a busy machine to be silent."""
ROOT = Path(cmdc.__file__).parents[1]
PACKAGES = ("cmdc_runtime", "supervisor", "workers")
OTHER_VERSION = f"{VERSION}.post999"
CHANGES = {
    "cmdc_runtime/version.py": (f'"{VERSION}"', f'"{OTHER_VERSION}"'),
    "supervisor/sessions/agent.py": (
        'log.info("agent.adopted",',
        'log.info("agent.adopted", by="other",',
    ),
}
"""What the other code has in place of what, in which file."""
WAYS = ("killed", "asked to leave")


class Code:
    """A folder from which a daemon and all its processes import."""

    def __init__(self, folder):
        self.folder = folder
        self._copy(folder)

    def upgrade(self):
        """Put the other code in its place."""
        new, old = (self.folder.with_name(name) for name in ("new", "old"))
        self._copy(new)
        for name, (before, after) in CHANGES.items():
            text = (new / name).read_text()
            assert text.count(before) == 1, f"{name} has no single {before}"
            (new / name).write_text(text.replace(before, after))
        self.folder.rename(old)
        new.rename(self.folder)

    @staticmethod
    def _copy(folder):
        for name in PACKAGES:
            shutil.copytree(ROOT / name, folder / name)


@pytest.fixture
def code(own_daemon):
    """The code of a daemon, whose agents wait for the next one."""
    found, plain = Code(own_daemon.place / "code"), own_daemon.environment
    path = os.pathsep.join([str(found.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    own_daemon.environment = lambda: plain() | {"PYTHONPATH": path}
    own_daemon.grace = 60.0
    return found


@pytest.fixture
def end(own_daemon):
    """End the daemon in one of the ways."""

    def leave():
        own_daemon.process.send_signal(signal.SIGUSR2)
        assert own_daemon.process.wait(TURN_S) == 0

    return dict(zip(WAYS, (own_daemon.kill, leave), strict=True))


@pytest.fixture
def advice(own_daemon, capsys):
    """Return what ``cmdc doctor``, which is of the old code, advises about the daemon."""

    def ask():
        main(["doctor", "--json", "--address", str(own_daemon.address)])
        findings = json.loads(capsys.readouterr().out)
        return next(one["advice"] for one in findings if one["name"] == "daemon")

    return ask


@cmdc.tool(effects="read")
async def code_version() -> str:
    """Return the version of the agent that runs this."""
    return sys.modules["cmdc_runtime.version"].VERSION


def until_end(stream):
    """Return the events of a stream up to the end of the cycle."""
    seen = []
    while not seen or seen[-1].event.kind != "agent_end":
        seen.append(stream.get(TURN_S))
    return seen


def whole(indexes):
    """Return the indexes without a hole or a repeat."""
    return list(range(indexes[0], indexes[0] + len(indexes)))


def processes_of(client):
    """Return pid and incarnation of every session."""
    return {one.session_id: (one.pid, one.incarnation) for one in client.list_sessions()}


def start_talker(client, model):
    """Return a session in the middle of its answer, and its stream."""
    session = client.create_agent(model=model, session_id="talker")
    stream = session.subscribe()
    session.prompt("Go.")
    model.wait_held()
    return session, stream


def start_asker(client, model):
    """Return a session that waits for the approval of a call, and the approval's id."""
    guard = cmdc.plugins.HumanApproval(mode="hold")
    session = client.create_agent(
        model=model, session_id="asker", tools=[cmdc.tools.Shell], plugins=[guard]
    )
    with session.subscribe(types=["approval_required"]) as asked:
        session.prompt("Go.")
        return session, asked.get(TURN_S).event.id


@pytest.mark.parametrize("way", WAYS)
def test_other_code_takes_over_what_runs(  # noqa: PLR0913, PLR0917 - fixtures
    own_daemon, code, end, way, scripted, poll, advice, tmp_path
):
    """Processes, streams, held calls and monitors are as they were; the daemon is the new one."""
    talk = scripted((Text("before "), Hold(), Text("after")))
    command = {"command": f"echo x >> {tmp_path / 'ran'}"}
    ask = scripted(ToolCalls(ToolUse("shell", command)), "done")
    own_daemon.start()
    assert advice() == ""
    with own_daemon.client() as client:
        talker, stream = start_talker(client, talk)
        asker, approval = start_asker(client, ask)
        downs = []
        client.monitor("asker", downs.append)
        before = processes_of(client)
        code.upgrade()
        end[way]()
        talk.release()
        own_daemon.start()
        after = processes_of(client)
        asker.approve(approval)
        replies = [one.collect_reply(timeout=TURN_S) for one in (talker, asker)]
        seen = until_end(stream)
        heard = list(downs)
        os.kill(asker.agent_pid(), signal.SIGKILL)
        assert poll(lambda: downs)
        indexes = [indexes_of(client, name) for name in before]

        assert OTHER_VERSION in advice()
        assert own_daemon.log.read_text().count("by=other") == len(before)
        assert after == before
        assert replies == ["before after", "done"]
        assert (tmp_path / "ran").read_text() == "x\n"
        assert heard == []
        assert [(one.incarnation, one.reason.name) for one in downs] == [(1, "SIGKILL")]
    assert [one.index for one in seen] == whole([one.index for one in seen])
    assert "events_lost" not in {one.event.kind for one in seen}
    assert indexes == [whole(one) for one in indexes]
    assert [one[0] for one in indexes] == [1, 1]


@pytest.mark.parametrize("by", ["its own memory", "a place at the path"])
def test_the_next_daemon_sees_an_agent_that_hangs(own_daemon, code, scripted, by):
    """By the slot that it brings, or, of an earlier release, by the one that it looks for."""
    roll, board = code.folder / "cmdc_runtime" / "runtime_dir.py", own_daemon.address / "board"
    if by == "a place at the path":
        text = roll.read_text()
        assert text.count("brings_slot=True") == 1
        roll.write_text(text.replace("brings_slot=True", "brings_slot=False"))
    own_daemon.start()
    with own_daemon.client() as client:
        model = scripted(default="fine")
        session = client.create_agent(model=model, session_id="s-1", unresponsive_after=QUIET_S)
        session.run("1", timeout=TURN_S)
        pid = session.agent_pid()
        for _ in range(2):  # what it has brought once, it brings again
            own_daemon.kill()
            own_daemon.start()
            session.run("2", timeout=TURN_S)
        is_there, last = board.exists(), client.last_index("s-1")
        monitor = session.monitor()
        os.kill(pid, signal.SIGSTOP)
        down = monitor.wait(TURN_S)
        session.run("3", timeout=TURN_S)

    assert (down.incarnation, down.evidence.pid) == (1, pid)
    assert isinstance(down.reason, Unresponsive)
    assert (down.evidence.state, down.evidence.last_index) == ("idle", last)
    assert (is_there, board.exists()) == (by == "a place at the path", False)


def test_who_dies_under_other_code_comes_back_with_it(own_daemon, code, scripted):
    """An adopted agent stays what it was; its next process is a child of the new zygote."""
    say = ToolCalls(ToolUse("code_version", {}))
    model = scripted(say, "one", say, "two", say, "three")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="s-1", tools=[code_version])
        session.run("1", timeout=TURN_S)
        code.upgrade()
        own_daemon.kill()
        own_daemon.start()
        session.run("2", timeout=TURN_S)
        old = psutil.Process(session.agent_pid())
        old.kill()
        assert session.run("3", timeout=TURN_S).text == "three"
        status = session.status()
        results = [one.content for one in session.messages() if one.role == "tool_result"]
        indexes = indexes_of(client, "s-1")

    assert results == [VERSION, VERSION, OTHER_VERSION]
    assert (status.incarnation, status.restarts) == (2, 1)
    assert status.pid != old.pid
    assert indexes == whole(indexes)
