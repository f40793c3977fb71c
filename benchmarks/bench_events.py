"""How many events a second pass through the hub, and how late is one at 5,000 a second?

Expected: C ``zmq_proxy`` with one frame per event about 200,000 a second to one subscriber and
75,000 to ten; ours more, because a batch passes undecoded. Latency of the proxy about 150 us p50;
ours two Python processes more, so two or three times that.
"""  # noqa: D400 - a question

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cmdc_runtime as cmdc
from benchmarks.daemon import Daemon
from benchmarks.flood import drip, flood
from benchmarks.metrics import TAIL, Metric, at_least, at_most, measured
from benchmarks.processes import Peer
from benchmarks.settings import Settings
from cmdc_runtime.runtime_dir import EVENTS_SOCKET, socket_address
from cmdc_runtime.testing import ScriptedModel, ToolCalls, ToolUse

EVENTS: Final = {1: 100_000, 10: 30_000}
"""By subscribers: half a second of the baseline."""
INTERVAL_US: Final = 200
DRIP_EVENTS: Final = 5_000
"""One second at 5,000 a second."""
GREETINGS: Final = 50
REPLY_S: Final = 120.0
FAST: Final = at_least(5.0)
LATE_P50: Final = at_most(2.0)
LATE_P99: Final = at_most(3.0, rank=TAIL)
TOPIC: Final = "bench"

Request = dict[str, Any]  # Any: the body of a model request


def _obey(request: Request) -> str | ToolCalls:
    """Answer a prompt ``tool name=value …`` by that call, and its result by a word."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return "done"
    name, *given = str(last["content"]).split()
    pairs = (pair.split("=") for pair in given)
    return ToolCalls(ToolUse(name, {key: int(value) for key, value in pairs}))


@dataclass(frozen=True, slots=True)
class Stage:
    """The daemon with one agent, and the proxy with one publisher."""

    session: cmdc.Session
    publisher: Peer
    pacer: Peer
    hub_events: str
    proxy_events: str

    @classmethod
    def open(cls, stack: ExitStack) -> "Stage":
        """Start everything."""
        model = stack.enter_context(ScriptedModel([], default=_obey))
        daemon = stack.enter_context(Daemon())
        daemon.await_warm()
        client = stack.enter_context(cmdc.Client(daemon.runtime_dir))
        session = client.create_agent(
            model=model, session_id=TOPIC, tools=[flood, drip], tool_timeout=REPLY_S
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cmdc-bench-"))
        front, back = (f"ipc://{Path(folder, name)}" for name in ("front", "back"))
        stack.enter_context(Peer("benchmarks.proxy", "relay", front, back))
        publisher = stack.enter_context(Peer("benchmarks.proxy", "publish", front, TOPIC))
        pacer = stack.enter_context(Peer("benchmarks.pacer"))
        events = socket_address(daemon.runtime_dir, EVENTS_SOCKET)
        return cls(session, publisher, pacer, events, back)

    def perform(self, call: str) -> None:
        """Let the agent carry out one tool call."""
        self.session.run(call, timeout=REPLY_S)

    def subscribers(self, stack: ExitStack, kind: str, count: int) -> list[Peer]:
        """Start subscribers whose subscriptions have arrived."""
        address = self.hub_events if kind == "hub" else self.proxy_events
        peers = [
            stack.enter_context(Peer("benchmarks.subscriber", kind, address, TOPIC))
            for _ in range(count)
        ]
        for peer in peers:
            peer.post("greet")
        answered = 0
        while answered < count:
            if kind == "proxy":
                self.publisher.ask("greet", times=GREETINGS)
            if not peers[answered].answer():
                peers[answered].post("greet")
                continue
            answered += 1
        return peers


def run(settings: Settings) -> Iterator[Metric]:
    """Yield every metric of the subject."""
    with ExitStack() as stack:
        stage = Stage.open(stack)
        stage.perform("flood events=1000")
        for count in EVENTS:
            yield from _throughput(settings, stage, count)
        yield from _latency(settings, stage)


def _throughput(settings: Settings, stage: Stage, count: int) -> Iterator[Metric]:
    events = EVENTS[count]
    ours: list[float] = []
    theirs: list[float] = []
    lost: list[float] = []
    with ExitStack() as stack:
        hub = stage.subscribers(stack, "hub", count)
        proxy = stage.subscribers(stack, "proxy", count)
        for turn in range(settings.fewer + 1):
            theirs_now, _ = _counted(
                proxy, events, lambda: stage.publisher.ask("flood", events=events)
            )
            ours_now, got = _counted(hub, events, lambda: stage.perform(f"flood events={events}"))
            if turn:  # the first one warms up
                theirs.append(theirs_now)
                ours.append(ours_now)
                lost.append(events - got)
    name = f"events.hub_{count}_subscribers" if count > 1 else "events.hub_1_subscriber"
    yield measured(name, "1/s", ours, baseline=theirs, bar=FAST)
    yield measured(f"{name}_lost", "events", lost)


def _counted(peers: Sequence[Peer], events: int, produce: Any) -> tuple[float, int]:
    """Return the rate of the slowest subscriber, and how many events the worst one got."""
    for peer in peers:
        peer.post("count", events=events)
    produce()
    found = [peer.answer() for peer in peers]
    return min(one["per_s"] for one in found), min(one["got"] for one in found)


def _latency(settings: Settings, stage: Stage) -> Iterator[Metric]:
    ours: list[float] = []
    theirs: list[float] = []
    with ExitStack() as stack:
        (hub,) = stage.subscribers(stack, "hub", 1)
        (proxy,) = stage.subscribers(stack, "proxy", 1)
        given = {"events": DRIP_EVENTS, "interval_us": INTERVAL_US}
        call = f"drip events={DRIP_EVENTS} port={stage.pacer.ask('port')}"
        for turn in range(settings.rounds + 1):
            proxy.post("latency", events=DRIP_EVENTS)
            stage.publisher.ask("drip", **given)
            theirs_now = proxy.answer()
            hub.post("latency", events=DRIP_EVENTS)
            stage.pacer.post("pace", **given)
            stage.perform(call)
            stage.pacer.answer()
            ours_now = hub.answer()
            if turn:
                theirs += theirs_now
                ours += ours_now
    name = "events.latency_at_5000"
    yield measured(name, "us", ours, baseline=theirs, bar=LATE_P50)
    yield measured(f"{name}_p99", "us", ours, baseline=theirs, bar=LATE_P99)
