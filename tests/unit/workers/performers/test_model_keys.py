"""With which key a model is asked."""

import pytest

from cmdc_runtime.extensions.provider import ModelRequest
from workers.performers.provider_edge import KeyedProvider

KEYS = {"openai": "of all", "openai:local": "of one"}


class Noting:
    """A provider that returns the request."""

    def stream(self, request):
        return request


@pytest.mark.parametrize(
    ("model", "opts", "used"),
    [
        ("openai:x", {}, "of all"),
        ("openai/x", {"temperature": 1}, "of all"),
        ("openai:local", {}, "of one"),
        ("openai:x", {"api_key": "own"}, "own"),
        ("openai:x", {"api_key": None}, "of all"),
        ("groq:x", {}, None),
    ],
)
def test_a_request_without_a_key_gets_the_one_for_its_model(model, opts, used):
    """That of the model, else that of its provider, and its own before both."""
    request = ModelRequest(model=model, messages=(), provider_opts=opts)

    found = KeyedProvider(Noting(), KEYS).stream(request)

    assert found.provider_opts.get("api_key") == used
    assert found.provider_opts | {"api_key": None} == {"api_key": None, **opts} | {"api_key": None}
    assert request.provider_opts == opts
