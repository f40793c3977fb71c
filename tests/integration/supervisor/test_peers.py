"""Whose process made a connection, found out of real ones."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from cmdc_runtime.process_table import children_of
from supervisor.adapters import peers
from supervisor.adapters.peers import Origin, SessionProcesses, peer_of
from supervisor.core.authority import PERSON, Kind, Peer
from supervisor.core.cgroups import cgroup_name

pytestmark = pytest.mark.process

MARK = ("s-1", 4)
OF_SESSION = Peer(Kind.TOOL, *MARK)


@contextmanager
def running(*command, **options):
    """Yield a process that says when it is up; it ends afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as process:
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def session_processes(tmp_path, agents=None, hosts=None):
    return SessionProcesses(agents or {}, hosts or {}, tmp_path)


@pytest.fixture(name="elsewhere")
def _elsewhere(monkeypatch):
    """Have this process be no daemon: what it starts is not of its sessions."""
    own = os.getpid
    monkeypatch.setattr(peers.os, "getpid", lambda: -own())


def test_who_is_none_of_ours_is_a_person(tmp_path, elsewhere):
    """A child of a shell, an unknown namespace, another machine."""
    with running("sh", "-c", "echo up; read x", stdin=subprocess.PIPE) as pid:
        assert peer_of(pid, session_processes(tmp_path)) == PERSON
    assert (
        peer_of(0, session_processes(tmp_path))
        == peer_of(None, session_processes(tmp_path))
        == PERSON
    )


def test_an_agent_is_its_pid_and_what_is_below_it_a_tool(tmp_path, elsewhere):
    """A spare is nobody's agent yet."""
    with running("sh", "-c", "sh -c 'echo $$; sleep 60' & wait") as pid:
        (child,) = children_of(pid)

        assert peer_of(pid, session_processes(tmp_path, {pid: MARK})) == Peer(Kind.AGENT, *MARK)
        assert peer_of(pid, session_processes(tmp_path, {pid: None})) == Peer(Kind.TOOL)
        assert peer_of(child, session_processes(tmp_path, {pid: MARK})) == OF_SESSION
        assert peer_of(child, session_processes(tmp_path, {}, {pid: MARK})) == OF_SESSION
        os.kill(child, signal.SIGKILL)


def test_what_came_to_the_daemon_is_a_tool(tmp_path):
    """Its parents are dead, and it has hidden whose it was."""
    with running("sh", "-c", "echo up; read x", stdin=subprocess.PIPE) as pid:
        assert peer_of(pid, session_processes(tmp_path)) == Peer(Kind.TOOL)


@pytest.mark.parametrize("trace", ["session", "mark", "host"])
def test_what_descends_from_nobody_we_know_is_recognized_by_its_traces(tmp_path, elsewhere, trace):
    """As with an agent that an earlier daemon left: a POSIX session, an environment, a host."""
    words = [sys.executable, "-c", "print('up', flush=True); input()"]
    environment = {"CMDC_SESSION_ID": MARK[0], "CMDC_INCARNATION": str(MARK[1])}
    options = {
        "session": {"start_new_session": True},
        "mark": {"env": environment},
        "host": {},
    }[trace]
    words += [str(tmp_path / "h-12345678")] if trace == "host" else []
    with running(*words, stdin=subprocess.PIPE, **options) as pid:
        agents = {"session": {pid + 10**6: MARK}, "mark": {10**7: MARK}, "host": {}}[trace]
        if trace == "session":  # its leader is the agent, and no ancestor: as after a setsid
            agents = {os.getsid(pid): MARK}
            found = peers._by_traces(pid, [pid], session_processes(tmp_path, agents))
        else:
            found = peer_of(pid, session_processes(tmp_path, agents))

    assert found == (Peer(Kind.TOOL) if trace == "host" else OF_SESSION)


@pytest.mark.parametrize("trace", ["daemon", "zygote's child", "host", "mark"])
def test_what_a_session_of_another_daemon_has_started_is_a_tool(tmp_path, elsewhere, trace):
    """No daemon need know what shows it; who comes from the same session is a person there."""
    words = [sys.executable, "-c", "print('up', flush=True); input()"]
    words += {
        "daemon": ["-m", "supervisor"],
        "zygote's child": ["-m", "workers.toolhost"],
        "host": ["/elsewhere/h-0123abcd01"],
        "mark": [],
    }[trace]
    mark = {"CMDC_SESSION_ID": "s-other", "CMDC_INCARNATION": "2"} if trace == "mark" else {}
    with running(*words, stdin=subprocess.PIPE, env={**os.environ, **mark}) as pid:
        found = peer_of(pid, session_processes(tmp_path))
        same = SessionProcesses({}, {}, tmp_path, peers._origin([pid]))
        of_the_same = peer_of(pid, same)

    assert (found, of_the_same) == (Peer(Kind.TOOL), PERSON)


def test_a_cgroup_shows_whose_a_process_is(tmp_path, elsewhere, monkeypatch):
    """Of this daemon's cgroups by its name, of another daemon's by there being one."""
    cgroup = cgroup_name("s-1", 4)
    with running("sh", "-c", "echo up; read x", stdin=subprocess.PIPE) as pid:
        monkeypatch.setattr(peers, "_cgroup_of", lambda _pid, _base: cgroup)
        own = peer_of(pid, session_processes(tmp_path))
        monkeypatch.setattr(peers, "_cgroup_of", lambda _pid, _base: None)
        monkeypatch.setattr(peers, "_cgroups_of", lambda _pid: {("cmdc-0", "s-1")})
        others = peer_of(pid, session_processes(tmp_path))

    assert (own, others) == (OF_SESSION, Peer(Kind.TOOL))


def test_another_session_is_not_the_same_one():
    """All that a process comes from has to be what the daemon comes from."""
    both = Origin(frozenset({("", "s-1"), ("", "s-2")}))
    one = Origin(frozenset({("", "s-1")}))
    program, other = Origin(programs=frozenset({(5, 1)})), Origin(programs=frozenset({(6, 1)}))

    assert (one.is_within(both), both.is_within(one), Origin().is_within(one)) == (
        True,
        False,
        True,
    )
    assert (program.is_within(program), program.is_within(other)) == (True, False)


def test_who_has_ended_is_nobody(tmp_path):
    """Its pid may be anybody's from now on."""
    with running("sh", "-c", "echo up") as pid:
        pass

    assert peer_of(pid, session_processes(tmp_path)).kind is Kind.GONE


@pytest.mark.parametrize("title", ["cmdcd --embedded", "cmdc agent s-1", "cmdc call look h-1"])
def test_who_descends_from_a_titled_process_of_another_daemon_is_a_tool(tmp_path, elsewhere, title):
    """A title has taken the place of the module's name, and says as much."""
    with running("bash", "-c", f"exec -a '{title}' bash -c 'sleep 60 & echo up; wait'") as pid:
        (child,) = children_of(pid)

        assert peer_of(child, session_processes(tmp_path)) == Peer(Kind.TOOL)
