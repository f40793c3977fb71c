"""What plugins bring into one step has a bound in sum, so that no step is too large for a frame."""

import msgspec
import pytest

import cmdc_runtime as cmdc

TURN_S = 60.0
PLUGINS = 20
STATE_BYTES = 1_000_000
FIT = 6
"""Of these states into what all plugins together may have at one hook."""


def hoarders(policy):
    """Return plugins that each keep a new megabyte at each prompt."""

    class Hoarder(cmdc.Plugin):
        fail = policy

        class State(msgspec.Struct):
            kept: bytes = b""

        def before_prompt(self, event, _context):
            self.state.kept = event.text.encode() * (STATE_BYTES // len(event.text.encode()))

    return [
        type(
            f"Hoarder{number}", (Hoarder,), {"name": f"hoarder-{number:02}", "priority": 1 + number}
        )
        for number in range(PLUGINS)
    ]


def crashed(stream, count):
    """Return who failed and why, for so many failures."""
    events = [stream.get(TURN_S).event for _ in range(count)]
    return [(event.plugin, event.error) for event in events]


def test_states_that_are_too_much_together_are_refused_to_who_brings_them(agent, scripted):
    """The cycle goes on without these; each gets its size, and what fits."""
    session = agent(scripted(default="fine"), plugins=hoarders("open"), max_restarts=0)
    stream = session.subscribe(since=0, types=["plugin_crashed"])
    pid = session.agent_pid()
    answers = [session.run(text, timeout=TURN_S).text for text in ("a", "b")]
    found = crashed(stream, 2 * (PLUGINS - FIT))

    assert answers == ["fine", "fine"]
    assert [name for name, _ in found] == 2 * [
        f"hoarder-{number:02}" for number in range(FIT, PLUGINS)
    ]
    assert "its new state 1,000,0" in found[0][1]
    assert "of the 6,291,456 that all of them together may have at one hook" in found[0][1]
    assert session.agent_pid() == pid


def test_a_guard_whose_state_is_too_much_closes_the_cycle(agent, scripted):
    """It has failed as by any other failure; the session lives on."""
    session = agent(scripted(default="fine"), plugins=hoarders("closed"), max_restarts=0)
    pid = session.agent_pid()
    with pytest.raises(cmdc.CmdcError, match=r"hoarder-06 failed at before_prompt: .*new state"):
        session.run("a", timeout=TURN_S)

    assert session.agent_pid() == pid


def test_events_with_much_user_data_are_counted_with_it(agent, scripted):
    """Each is published with it, and is itself within its bound."""

    class Emitter(cmdc.Plugin):
        fail = "open"

        def before_prompt(self, _event, _context):
            return cmdc.Emit([("emitted", {"number": number}) for number in range(100)])

    large = {"document": "x" * 1_000_000}
    session = agent(scripted(default="fine"), plugins=[Emitter], user_data=large, max_restarts=0)
    stream = session.subscribe(since=0, types=["plugin_crashed"])
    pid = session.agent_pid()
    answer = session.run("a", timeout=TURN_S).text
    ((name, why),) = crashed(stream, 1)

    assert answer == "fine"
    assert name == "emitter"
    assert "bytes with user_data" in why
    assert session.agent_pid() == pid
