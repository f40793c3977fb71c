"""Requests that vendors get without litellm are those that litellm would send, as they are sent.

The corpus is generated, the oracle is litellm itself, and nothing is sent. What is otherwise on
purpose is a row of ``differences.py``.
"""

import json

import pytest

from tests.contract.providers.corpus import models, request_of
from tests.contract.providers.differences import DIFFERENCES
from tests.contract.providers.oracle import BETA, Oracle
from workers.builtin.providers.default import call_of
from workers.builtin.wires.routes import route_of

pytestmark = [
    pytest.mark.slow,
    # litellm and pydantic disagree about each other's newest versions; both work.
    pytest.mark.filterwarnings("ignore:Items? .* `ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]
EACH = 30
"""Requests to a model."""
SHARE_MIN = 0.15
"""Of a model's requests that go without litellm: a third of the options are another vendor's."""
OPENAI_PATH = "/chat/completions"
VLLM = "additionalProperties of tools for vLLM"


@pytest.fixture(scope="session")
def oracle():
    """Import litellm, which takes seconds."""
    return Oracle()


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    """Have a key of each vendor, and no address but their own."""
    for vendor in ("OPENAI", "ANTHROPIC", "GROQ", "OPENROUTER"):
        monkeypatch.setenv(f"{vendor}_API_KEY", "no-key-at-all")
        monkeypatch.delenv(f"{vendor}_API_BASE", raising=False)
        monkeypatch.delenv(f"{vendor}_BASE_URL", raising=False)


def expected(oracle, request):
    """Return what litellm makes of a request, as it is sent in the end."""
    address, body, beta = oracle.asked(request)
    if request.model.startswith("anthropic"):
        body |= {"stream": True}  # added after the oracle has looked
    elif not address.endswith(OPENAI_PATH):
        address = address.rstrip("/") + OPENAI_PATH  # added by the library behind litellm
    return address, body, beta


def without(key, value):
    """Return JSON without a key, wherever it is."""
    if isinstance(value, dict):
        return {name: without(key, one) for name, one in value.items() if name != key}
    return [without(key, one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("model", models())
def test_a_request_is_what_litellm_would_send(oracle, model):
    """Address, body and beta; what litellm itself refuses is never sent without it."""
    requests = [request_of(number, [model]) for number in range(EACH)]
    routed = [(one, route) for one in requests if (route := route_of(one)) is not None]
    for request, route in routed:
        call = call_of(route, request)
        body = json.loads(call.body)
        if model.startswith("hosted_vllm"):
            assert VLLM in DIFFERENCES
            body["tools"] = without("additionalProperties", body.get("tools", []))
            body = {name: one for name, one in body.items() if one != []}

        sent = (call.address, body, call.headers.get(BETA))
        assert sent == expected(oracle, request), request

    assert len(routed) >= (0 if "nobody-3" in model else SHARE_MIN * EACH)
