"""An answer that a guardrail takes back is taken back, whoever dies before or after its record."""

import pytest

from cmdc_runtime import events
from cmdc_runtime.errors import GuardrailTripped

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 120.0
WRITES = ("answer_retracted",)
DEATHS = [f"agent.*{kind}*.{moment}:1=agent" for kind in WRITES for moment in ("before", "after")]


def no_secrets(text, _context):
    """Trip where a text has a secret."""
    return "it has a secret" if "secret" in text else None


def test_a_death_of_the_agent_changes_nothing(own_daemon, armed, scripted):
    """The caller gets its error, the event comes once, and nobody reads the answer any more."""
    own_daemon.start()
    model = scripted(default="A secret.")
    for number, step in enumerate(DEATHS):
        with own_daemon.client() as client:
            session = client.create_agent(
                model=model,
                session_id=f"run-{number}",
                output_guardrails=[no_secrets],
                restart_delay=(0.0, 0.05),
            )
            armed(session.id, step)
            stream = session.subscribe()
            with pytest.raises(GuardrailTripped, match="no_secrets tripped: it has a secret"):
                session.run("Go.", timeout=TURN_S)
            found = [stream.get(TURN_S).event]
            while not isinstance(found[-1], events.AgentRecovered):
                found.append(stream.get(TURN_S).event)
            while not any(isinstance(one, events.AgentAbort) for one in found):
                found.append(stream.get(TURN_S).event)
            said = session.messages()
            session.stop()
        reported = [one for one in found if isinstance(one, events.GuardrailTripped)]

        assert [(one.guardrail, one.side) for one in reported] == [("no_secrets", "output")], step
        assert said[-1].content == "[This answer was withheld.]", step
        assert reported[0].retracted == said[-1].id, step
