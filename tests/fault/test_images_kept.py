"""An image whose prompt was accepted reaches the model, whoever is killed before the answer."""

import base64
import os
import signal

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.pages import PAGE_BYTES
from cmdc_runtime.testing import Hold, Text

pytestmark = [pytest.mark.fault, pytest.mark.process]

TURN_S = 30.0
IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(PAGE_BYTES)
URL = f"data:image/png;base64,{base64.b64encode(IMAGE).decode()}"


def asked(request):
    """Return what the user has said, as the model's server got it."""
    return [one["content"] for one in request["messages"] if one["role"] == "user"]


def test_agent_and_daemon_are_killed_between_prompt_and_answer(own_daemon, scripted):
    """The next daemon has the bytes, and the next process sends them again."""
    model = scripted((Text("half"), Hold(), "never"), "whole", "again")
    own_daemon.start()
    with own_daemon.client() as client:
        session = client.create_agent(model=model, session_id="sees")
        session.prompt(["Look.", cmdc.Image(IMAGE)])
        model.wait_held(TURN_S)
        pid = session.agent_pid()
        own_daemon.kill()
        os.kill(pid, signal.SIGKILL)
    model.wait_abandoned()
    own_daemon.start()
    with own_daemon.client() as client:
        answer = client.collect_reply("sees", timeout=TURN_S)
        client.run("sees", "And now?", timeout=TURN_S)
    seen = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": URL}}]

    assert answer == "whole"
    assert [asked(one) for one in model.requests] == [[seen], [seen], [seen, "And now?"]]
