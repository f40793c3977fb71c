"""The host of a shared MCP server, with a real server and the agents' own side of the socket."""

import asyncio
import contextlib
import json
import sys

import psutil
import pytest

from cmdc_runtime.process import EXIT_CRASHED, EXIT_OK
from cmdc_runtime.reasons import Normal, Other
from cmdc_runtime.wire.frames import HostServer, ServerFound, ServerWanted
from workers.mcp import host as hosts
from workers.mcp import shared as shares
from workers.mcp.host import Declared, ServerHost
from workers.mcp.process import NotStartedError
from workers.mcp.shared import ServerFinder, SharedServer

SOON_S = 60.0
ECHO = """
import json, os, sys, time
for line in sys.stdin:
    one = json.loads(line)
    asked, method = one.get("id"), one.get("method")
    size = one.get("params", {}).get("size", 0)
    if method == "ping" and size == -1:
        os._exit(3)
    if method == "tools/call" and size == -1:
        time.sleep(600)
    if method == "ping" and size == -2:
        print("x" * 200_000, flush=True)
    if asked is not None:
        result = {"pid": os.getpid(), "environment": dict(os.environ), "filler": "x" * max(0, size)}
        print(json.dumps({"jsonrpc": "2.0", "id": asked, "result": result}), flush=True)
"""
"""Answers whatever it is asked; "size" says how much, or has it end, hang or say too much."""


def declared(*more, **environment):
    command = (sys.executable, "-c", ECHO, *more)
    return Declared(command=command, working_dir="/", environment=environment)


class Stage:
    """One host and its end; the daemon's place is taken by ``send``."""

    def __init__(self, folder, server, linger_s=SOON_S):
        self.server = server
        self.order = HostServer(
            key=server.key,
            name="@mcp-test",
            generation=1,
            address=str(folder / "h"),
            token="right",
            linger_s=linger_s,
        )
        self.ended = asyncio.get_running_loop().create_future()
        self.host = ServerHost(self.order, self.contained, self.end)
        self.finder = ServerFinder(self)
        self.token = self.order.token
        self.closing = None
        self.wanted = []
        self.agents = []

    async def contained(self):
        pass

    def end(self, code, reason):
        """Close the host, as its worker does."""
        self.ended.set_result((code, reason))
        self.closing = asyncio.create_task(self.host.close())

    async def attached(self):
        pass

    def send(self, frame, *_):
        assert frame == ServerWanted(key=self.server.key)
        self.wanted.append(frame)
        pid = psutil.Process().pid
        self.finder.found(
            ServerFound(key=frame.key, address=self.order.address, token=self.token, pid=pid)
        )

    async def agent(self):
        self.agents.append(await SharedServer.connect(self.finder, self.server))
        return self.agents[-1]


@contextlib.asynccontextmanager
async def staged(folder, server=None, **given):
    """Have a host that listens."""
    stage = Stage(folder, server or declared(), **given)
    await stage.host.listen()
    try:
        async with asyncio.timeout(SOON_S):
            yield stage
    finally:
        await (stage.closing or stage.host.close())
        for agent in stage.agents:
            await agent.close()


def say(agent, own, method="ping", **params):
    message = {"jsonrpc": "2.0", "id": own, "method": method, "params": params}
    agent.stdin.write(json.dumps(message).encode() + b"\n")


async def all_of(agent):
    while True:
        await heard(agent)


async def heard(agent):
    return json.loads(await agent.stdout.readuntil(b"\n"))


def test_agents_speak_to_one_server(tmp_path):
    """Under their own numbers; it has the environment that is declared, and the host's mark."""

    async def run():
        async with staged(tmp_path, declared(SAYS="hello")) as stage:
            agents = [await stage.agent() for _ in range(3)]
            for agent in agents:
                say(agent, 7)
            return [await heard(agent) for agent in agents]

    answers = asyncio.run(run())

    assert [one["id"] for one in answers] == [7, 7, 7]
    assert len({one["result"]["pid"] for one in answers}) == 1
    assert {"SAYS": "hello", "CMDC_SESSION_ID": "@mcp-test", "CMDC_INCARNATION": "1"}.items() <= (
        answers[0]["result"]["environment"].items()
    )
    assert not psutil.pid_exists(answers[0]["result"]["pid"])
    assert not (tmp_path / "h").exists()


def test_the_socket_is_its_users_alone(tmp_path):
    """From its first moment on."""

    async def run():
        async with staged(tmp_path):
            return (tmp_path / "h").stat().st_mode & 0o777

    assert asyncio.run(run()) == 0o600


def test_who_has_no_token_or_another_server_gets_nothing(tmp_path, monkeypatch):
    """Nor who says nothing that can be understood; the others go on."""
    monkeypatch.setattr(shares, "PAUSES_S", (0.0, 0.0))

    async def run():
        async with staged(tmp_path) as stage:
            reader, writer = await asyncio.open_unix_connection(stage.order.address)
            writer.write(b"[1]\n")
            junk = await reader.read()
            writer.close()
            stage.token = "wrong"
            with pytest.raises(ConnectionError):
                await stage.agent()
            stage.token = "right"
            greeting = {"token": "right", "server": {"command": ["true"], "working_dir": "/"}}
            greeting["server"]["environment"] = {}
            reader, writer = await asyncio.open_unix_connection(stage.order.address)
            writer.write(json.dumps(greeting).encode() + b"\n")
            refused = json.loads(await reader.readuntil(b"\n"))
            writer.close()
            agent = await stage.agent()
            say(agent, 1)
            return junk, refused, await heard(agent)

    junk, refused, answer = asyncio.run(run())

    assert junk == b""
    assert refused == {"cmdc": "ended", "problem": "it is another server", "is_final": False}
    assert answer["id"] == 1


def test_one_that_does_not_read_is_disconnected_and_holds_up_nobody(tmp_path, monkeypatch):
    """What waits for it has a bound."""
    monkeypatch.setattr(hosts, "UNREAD_BYTES_MAX", 1_000_000)

    async def run():
        async with staged(tmp_path) as stage:
            slow, quick = await stage.agent(), await stage.agent()
            slow.stdin.transport.pause_reading()
            for own in range(20):
                say(slow, own, size=500_000)
                say(quick, own)
                await heard(quick)
            slow.stdin.transport.resume_reading()
            with pytest.raises((EOFError, OSError)):
                await all_of(slow)
            say(quick, 99)
            return await heard(quick)

    assert asyncio.run(run())["id"] == 99


@pytest.mark.parametrize(
    ("size", "problem"), [(-1, "it exited with status 3"), (-2, "it says more than")]
)
def test_the_end_of_the_server_is_reported_to_all_and_is_the_hosts(
    tmp_path, monkeypatch, size, problem
):
    """With why, and the host ends as one that crashed: another one starts the server again."""
    monkeypatch.setattr(hosts, "MESSAGE_BYTES_MAX", 100_000)
    monkeypatch.setattr("workers.mcp.process.MESSAGE_BYTES_MAX", 100_000)

    async def run():
        async with staged(tmp_path) as stage:
            agents = [await stage.agent() for _ in range(2)]
            say(agents[0], 1, size=size)
            code, reason = await stage.ended
            await stage.closing
            for agent in agents:
                with pytest.raises(EOFError):
                    await heard(agent)
            return code, reason, [agent.ending() for agent in agents]

    code, reason, reported = asyncio.run(run())

    assert code == EXIT_CRASHED
    assert isinstance(reason, Other)
    assert problem in reason.detail
    assert reported == [reason.detail] * 2


def test_what_a_server_says_at_its_end_is_reported_without_its_keys(tmp_path):
    """They are in its environment, and so perhaps in what it complains of."""
    code = "import os, sys; print('bad key', os.environ['API_KEY'], file=sys.stderr); sys.exit(2)"
    server = Declared(
        command=(sys.executable, "-c", code),
        working_dir="/",
        environment={"API_KEY": "sk-0123456789abcdef"},
    )

    async def run():
        async with staged(tmp_path, server) as stage:
            agent = await stage.agent()
            _, reason = await stage.ended
            await stage.closing
            with pytest.raises(EOFError):
                await heard(agent)
            return reason.detail, agent.ending()

    detail, reported = asyncio.run(run())

    assert "it exited with status 2: bad key" in detail
    assert "0123456789" not in detail
    assert reported == detail


def test_a_server_that_does_not_answer_after_a_request_was_given_up_is_ended(tmp_path, monkeypatch):
    """It may only be busy, so it has a while; nobody else has to find it out."""
    monkeypatch.setattr(hosts, "STUCK_S", 0.5)

    async def run():
        async with staged(tmp_path) as stage:
            agent = await stage.agent()
            say(agent, 1, "tools/call", size=-1)
            await agent.close()
            return await stage.ended

    code, reason = asyncio.run(run())

    assert code == EXIT_CRASHED
    assert "does not answer any more" in reason.detail


def test_a_server_that_does_not_read_is_ended(tmp_path, monkeypatch):
    """A line that can't be written holds up all, so it is waited for a while."""
    monkeypatch.setattr(hosts, "STUCK_S", 0.5)

    async def run():
        async with staged(tmp_path) as stage:
            agent = await stage.agent()
            say(agent, 1, "tools/call", size=-1)
            for own in range(2, 6):
                say(agent, own, filler="x" * 1_000_000)
            return await stage.ended

    code, reason = asyncio.run(run())

    assert code == EXIT_CRASHED
    assert "has read nothing" in reason.detail


def test_a_program_that_is_not_there_is_reported_as_final(tmp_path, monkeypatch):
    """Nobody asks again."""
    server = Declared(command=("/nowhere",), working_dir="/", environment={})
    nowhere = Declared(command=("true",), working_dir="/nowhere", environment={})

    async def run():
        async with staged(tmp_path, server) as stage:
            agent = await stage.agent()
            await stage.ended
            await stage.host.close()
            with pytest.raises(EOFError):
                await heard(agent)
        async with staged(tmp_path, nowhere) as stage:
            with pytest.raises(NotStartedError, match="cannot be started"):
                await stage.agent()
        return agent

    agent = asyncio.run(run())

    assert agent.is_final
    assert "cannot run /nowhere" in agent.ending()


def test_it_ends_when_nobody_is_there(tmp_path):
    """Behind its last agent, and where none has come; that is no crash."""

    async def run():
        async with staged(tmp_path, linger_s=0.2) as stage:
            agent = await stage.agent()
            say(agent, 1)
            await heard(agent)
            assert not stage.ended.done()
            await agent.close()
            return await stage.ended

    assert asyncio.run(run()) == (EXIT_OK, Normal())


def test_a_host_that_is_gone_is_asked_for_again(tmp_path, monkeypatch):
    """A few times, with pauses; then it is reported."""
    monkeypatch.setattr(shares, "PAUSES_S", (0.0, 0.01, 0.01))

    async def run():
        stage = Stage(tmp_path, declared())
        with pytest.raises(ConnectionError, match="its host does not answer"):
            await stage.agent()
        return len(stage.wanted)

    assert asyncio.run(run()) == 3


def test_another_process_in_the_hosts_place_is_given_nothing(tmp_path, monkeypatch):
    """What is declared may hold keys."""
    monkeypatch.setattr(shares, "PAUSES_S", (0.0,))

    async def run():
        async with staged(tmp_path) as stage:
            stage.finder.found = lambda frame, reply=stage.finder.found: reply(
                ServerFound(key=frame.key, address=frame.address, token=frame.token, pid=1)
            )
            with pytest.raises(ConnectionError, match="listens there"):
                await stage.agent()

    asyncio.run(run())
