"""Routes and requests that no environment decides about."""

import pytest

from cmdc_runtime.extensions.provider import ModelRequest
from cmdc_runtime.messages import Message
from workers.builtin.wires.routes import VENDORS, route_of

VARIABLES = (
    *(name for one in VENDORS.values() for name in (*one.keys, *one.addresses, *one.organizations)),
    *("ANTHROPIC_AUTH_TOKEN", "USE_LITELLM_PROXY"),
    *("SSL_VERIFY", "SSL_CERTIFICATE", "SSL_SECURITY_LEVEL"),
)


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Have no variable of a vendor set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def asked():
    """Make a request; keywords that it has no field for are its options."""

    def asked_(model, *messages, **changes):
        names = ModelRequest.__struct_fields__
        fields = {name: changes.pop(name) for name in names if name in changes}
        fields["messages"] = messages or (Message.user("hi"),)
        return ModelRequest(model=model, provider_opts=changes, **fields)

    return asked_


@pytest.fixture
def routed(asked):
    """Make a request, and its route, which it has."""

    def routed_(model, *messages, **changes):
        request = asked(model, *messages, **changes)
        route = route_of(request)
        assert route is not None
        return route, request

    return routed_
