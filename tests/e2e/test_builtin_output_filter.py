"""The output filter in a running session."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import events, plugins
from cmdc_runtime.testing import Text, Thinking

TURN_S = 20.0
KEY = "sk-AbCdEfGhIjKlMnOpQrStUv"


def test_a_secret_in_pieces_is_seen_by_nobody(agent, scripted, cycle_of):
    """In no event, message or later request; a pattern that hangs on nothing lets text flow."""
    thought = Thinking(f"The key is {KEY}.", chunk_chars=3)
    model = scripted((thought, Text(f"Take {KEY} or SE\u200bCRET, ok?", chunk_chars=2)), "bye")
    guard = plugins.OutputFilter(patterns=[r"\bsk-[A-Za-z0-9]{20,}\b"], keywords=["secret"])
    session = agent(model, plugins=[guard])
    stream = session.subscribe(since=0)
    reply = session.run("Go.", timeout=TURN_S)
    seen = [one.event for one in cycle_of(stream)]
    session.run("On.", timeout=TURN_S)
    shown = "Take [filtered] or [filtered], ok?"

    assert reply.text == session.messages()[2].content == shown
    assert session.messages()[2].thinking == "The key is [filtered]."
    assert "".join(one.delta for one in seen if isinstance(one, events.MessageDelta)) == shown
    assert len([one for one in seen if isinstance(one, events.MessageDelta)]) > 3
    assert not [one for one in seen if "AbCd" in repr(one) or "CRET" in repr(one)]
    assert "AbCd" not in repr(model.requests[1])
    [published] = [one for one in seen if isinstance(one, events.PluginEvent)]
    assert (published.name, published.payload) == (
        "output_filtered",
        {"action": "replace", "count": 3, "channels": {"text": 2, "thinking": 1}},
    )


@pytest.mark.parametrize(
    ("options", "said", "reason"),
    [
        ({"keywords": ["secret"], "action": "abort"}, "no", "what must not be shown"),
        ({"patterns": ["(?s)n.*!"], "held_chars_max": 5}, "", "more than 5: a rule that matches"),
    ],
    ids=["abort", "undecided"],
)
def test_what_may_not_be_shown_ends_the_cycle(agent, scripted, options, said, reason):
    """And the session lives on."""
    model = scripted(Text("no secret here", chunk_chars=3), "fine")
    session = agent(model, plugins=[plugins.OutputFilter(**options)])
    with pytest.raises(cmdc.AgentAborted, match=reason):
        session.run("Go.", timeout=TURN_S)
    published = [one.content for one in session.messages() if one.role == "assistant"]

    assert not [one for one in published if "secret" in one]
    assert session.run("On.", timeout=TURN_S).text == "fine"
