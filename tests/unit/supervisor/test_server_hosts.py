"""The hosts of shared MCP servers in the real tree, with workers that do what a test says."""

import asyncio

import pytest

from cmdc_runtime.errors import Overloaded
from cmdc_runtime.reasons import Normal, Other, Unresponsive
from cmdc_runtime.wire.frames import (
    Contained,
    ExitNotice,
    HostServer,
    IdleNotice,
    ServerFound,
    Started,
    Terminate,
)
from supervisor.core.limits import SERVER_RESTARTS_MAX, SERVERS_MAX, SERVERS_OF_AGENT_MAX
from supervisor.core.session_tree import SERVERS, server_name
from supervisor.sessions import server_hosts
from supervisor.sessions.server_hosts import ServerHosts
from tests.unit.supervisor.services import PlayedWorker, play, services_with_tree, settle

KEY = "0123456789abcdef" * 2
AGENT_PID = 2**22 + 1_000


class Stage:
    """The hosts of one daemon, and agents that ask for them."""

    def __init__(self):
        self.services = services_with_tree()
        self.pool, self.runtime = self.services.pool, self.services.runtime
        self.hosts = ServerHosts(self.pool, self.runtime, lambda: self.services.is_leaving)
        self.agents = [PlayedWorker(AGENT_PID + at) for at in range(3)]

    @property
    def host(self):
        """The newest process of a host."""
        return self.pool.workers[-1]

    def want(self, agent=0, key=KEY):
        self.hosts.want(self.agents[agent], key)

    def heard(self, agent=0):
        return [one for one in self.agents[agent].sent if isinstance(one, ServerFound)]

    async def up(self, agent=0, key=KEY):
        self.want(agent, key)
        await settle()
        self.host.says(Started())
        await settle()
        return self.host

    async def dies(self, said=None, status=70):
        """Have the newest host end, and wait for what becomes of that."""
        worker, count = self.host, len(self.pool.workers)
        if said is not None:
            worker.says(ExitNotice(reason=said))
        worker.ends(status)
        await until(lambda: not self.hosts.all or len(self.pool.workers) > count)


async def until(condition):
    while not condition():  # noqa: ASYNC110 - as below
        await asyncio.sleep(0.001)  # tidy: a thread of the host's, and no event, makes it true


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Have no delay before a restart."""
    monkeypatch.setattr("supervisor.core.session_tree.SERVER_DELAY_S", (0.0, 0.0))


def test_the_first_who_asks_has_a_host_started_and_all_learn_where():
    """One process for one server; who asks while it starts hears when it listens."""

    async def scenario():
        stage = Stage()
        stage.want(0)
        stage.want(1)
        stage.want(1)
        await settle()
        before = stage.heard(0)
        stage.host.says(Started())
        stage.want(2)
        await settle()
        stage.host.owner.on_contained()
        return stage, before

    stage, before = play(scenario)
    order = stage.host.sent[0]

    assert len(stage.pool.workers) == 1
    assert before == []
    found = ServerFound(key=KEY, address=order.address, token=order.token, pid=stage.host.pid)
    assert [stage.heard(at) for at in range(3)] == [[found]] * 3
    assert isinstance(order, HostServer)
    assert (order.name, order.generation, len(order.token)) == (server_name(KEY), 1, 32)
    assert stage.host.mark == (server_name(KEY), 1)
    assert isinstance(stage.host.sent[1], Contained)
    assert stage.hosts.all[KEY].state == "up"


def test_another_server_has_another_host():
    """They stand side by side in the tree."""

    async def scenario():
        stage = Stage()
        await stage.up(0)
        await stage.up(1, KEY[::-1])
        return stage

    stage = play(scenario)

    assert stage.heard(0)[0].address != stage.heard(1)[0].address
    assert {*stage.hosts.all} == {KEY, KEY[::-1]}


def test_a_host_that_crashed_is_started_again_and_who_asks_learns_the_new_place():
    """Nobody gets the token of a dead one."""

    async def scenario():
        stage = Stage()
        await stage.up()
        await stage.dies(Other(detail="it was killed by signal 9"))
        await settle()
        stage.want()
        between = len(stage.heard())
        stage.host.says(Started())
        await settle()
        return stage, between

    stage, between = play(scenario)
    first, second = stage.heard()

    assert between == 1
    assert first.token != second.token
    assert stage.hosts.all[KEY].restarts == 1
    assert stage.host.mark == (server_name(KEY), 2)


def test_a_host_that_nobody_uses_is_forgotten_and_a_late_agent_has_another():
    """It has said goodbye: that is no crash."""

    async def scenario():
        stage = Stage()
        await stage.up()
        stage.host.has_ended = True
        stage.want(1)
        stage.host.says(ExitNotice(reason=Normal()))
        stage.host.ends(0)
        await until(lambda: len(stage.pool.workers) == 2)
        stage.host.says(Started())
        await settle()
        stage.host.says(ExitNotice(reason=Normal()))
        stage.host.ends(0)
        await until(lambda: not stage.hosts.all)
        return stage

    stage = play(scenario)

    assert [one.problem for one in stage.heard(1)] == [""]


def test_one_that_crashes_too_often_is_refused_for_a_while(monkeypatch):
    """Who waits learns why, and so does who asks again."""

    async def scenario():
        stage = Stage()
        await stage.up()
        for _ in range(SERVER_RESTARTS_MAX + 1):
            await stage.dies(Other(detail="no licence"))
            await settle()
            stage.want(1)
        await settle()
        stage.want(2)
        refused = stage.heard(2)
        monkeypatch.setattr(server_hosts, "SERVER_REFUSED_S", 0.0)
        stage.hosts._failed.clear()
        await stage.up(2)
        return stage, refused

    stage, refused = play(scenario)

    assert "no licence" in stage.heard(1)[-1].problem
    assert "it has ended too often" in refused[0].problem
    assert stage.heard(2)[-1].problem == ""


def test_a_host_that_cannot_be_started_is_reported():
    """The agent tries again by its own budget."""

    async def scenario():
        stage = Stage()
        stage.pool.problems.append(Overloaded("no room"))
        stage.want()
        await settle()
        return stage

    stage = play(scenario)

    assert "no room" in stage.heard()[0].problem
    assert stage.hosts.all == {}


def test_there_are_bounds(monkeypatch):
    """Of the servers of one agent, and of all."""

    async def scenario():
        stage = Stage()
        stage.agents[0].servers_wanted |= {str(at) for at in range(SERVERS_OF_AGENT_MAX)}
        stage.want(0)
        stage.hosts.all |= dict.fromkeys(map(str, range(SERVERS_MAX)))
        stage.want(1)
        return stage

    stage = play(scenario)

    assert [stage.heard(at)[0].problem for at in range(2)] == [
        f"a process of a session has had {SERVERS_OF_AGENT_MAX} shared servers",
        f"the daemon has {SERVERS_MAX} shared servers already",
    ]


def test_a_host_that_hangs_is_killed_and_writes_its_stacks():
    """As an agent is; what it says beside its own words is refused."""

    async def scenario():
        stage = Stage()
        worker = await stage.up()
        worker.says(IdleNotice())
        worker.owner.on_stack()
        worker.owner.on_fail(Unresponsive(silent_ms=1))
        await settle()
        assert not stage.hosts.all[KEY].is_over()
        await stage.dies(status=-9)
        return worker

    assert play(scenario).signals == [3, 9]


def test_the_daemons_end_ends_it():
    """Politely, and nothing is started any more."""

    async def scenario():
        stage = Stage()
        worker = await stage.up()
        stage.services.is_leaving = True
        stage.runtime.stop("the daemon is stopping", 5.0)
        await settle()
        asked = [one for one in worker.sent if isinstance(one, Terminate)]
        worker.ends(0)
        await until(lambda: not stage.hosts.all)
        stage.want(1)
        await settle()
        return stage, asked

    stage, asked = play(scenario)

    assert [one.reason for one in asked] == ["the daemon is stopping"]
    assert stage.heard(1)[0].problem
    assert stage.hosts.all == {}
    assert len(stage.pool.workers) == 1


def test_one_that_is_ended_while_it_waits_for_a_process_has_none():
    """The process that comes too late is given back."""

    async def scenario():
        stage = Stage()
        stage.pool.is_open.clear()
        stage.want()
        await settle()
        name = server_name(KEY)
        stage.runtime.terminate_child((SERVERS,), name, lambda _: None, "enough", 1.0)
        await settle()
        stage.pool.is_open.set()
        await settle()
        return stage

    stage = play(scenario)

    assert len(stage.pool.released) == 1
    assert stage.hosts.all == {}
