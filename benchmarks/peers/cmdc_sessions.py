"""What stands beside the peers: a session of this project per agent, by the public client.

The daemon is the one that the client starts where none is running, as a script has it.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import cmdc_runtime as cmdc
from benchmarks.peers.fleet import Gone, Hear
from benchmarks.peers.prompts import KEY, MODEL
from cmdc_runtime import events

THREADS: Final = 16
"""Of the script, each of which creates and asks one agent at a time of a crowd."""


class CmdcAgent:
    """One session."""

    def __init__(self, client: cmdc.Client, url: str) -> None:
        """Create it."""
        self._session = client.create_agent(
            model=f"openai:{MODEL}", provider_opts={"api_base": url, "api_key": KEY}
        )

    @property
    def pid(self) -> int:
        """The session's process."""
        pid = self._session.agent_pid()
        assert pid is not None
        return pid

    def ask(self, prompt: str, hear: Hear) -> None:
        """Return when the answer has ended; raises ``Gone``."""
        self._events = self._session.stream_events(prompt)
        self._listen(hear)

    def go_on(self, _prompt: str, hear: Hear) -> None:
        """Hear what comes next: the session goes on with the prompt by itself."""
        self._listen(hear)

    def _listen(self, hear: Hear) -> None:
        for event in self._events:
            match event:
                case events.MessageDelta(delta=delta):
                    hear(delta)
                case events.AgentRecovered():
                    raise Gone
                case events.AgentAbort() | events.AgentError():
                    raise RuntimeError(str(event))
                case _:
                    pass

    def end(self) -> None:
        """Stop the session."""
        self._session.stop()


class CmdcFleet:
    """A client with its daemon."""

    def __init__(self, url: str) -> None:
        """Start both."""
        self._url = url
        self._client = cmdc.Client()

    def create(self) -> CmdcAgent:
        """Return a new agent."""
        return CmdcAgent(self._client, self._url)

    def crowd(self, count: int, prompt: str) -> list[CmdcAgent]:
        """Create agents together, ask each, and return when all have answered."""

        def answered(_place: int) -> CmdcAgent:
            agent = self.create()
            agent.ask(prompt, lambda _: None)
            return agent

        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(answered, range(count)))

    def roots(self) -> list[int]:
        """Return nothing: the daemon is a child of the script."""
        return []

    def close(self) -> None:
        """Close the client, and end its daemon with all sessions."""
        self._client.close()


def open_fleet(url: str) -> CmdcFleet:
    """Return a fleet of this project."""
    return CmdcFleet(url)
