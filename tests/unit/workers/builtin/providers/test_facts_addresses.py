"""Which addresses a request can be sent to, and that none is shown with its credentials."""

import pytest

from workers.builtin.providers._facts import (
    ADDRESS_CHARS_MAX,
    SHOWN_CHARS_MAX,
    BadAddressError,
    address_problem,
    check_addresses,
    shown_address,
)

GOOD = [
    "http://127.0.0.1:1/v1",
    "HTTPS://host",
    "http://me:pass@host:65535/v1?key=x#y",
    "http://[::1]:80/",
    "https://münchen.example/v1",
]
BAD = {
    "htp://127.0.0.1:1/v1": "'htp://127.0.0.1:1/v1': its scheme is neither http nor https",
    "localhost:1": "'localhost:1': its scheme is neither http nor https",
    "": "'': its scheme is neither http nor https",
    "/v1": "'/v1': its scheme is neither http nor https",
    "http://": "'http://': it names no host",
    "http://:80/v1": "'http://:80/v1': it names no host",
    "http://a b/v1": "'http://a b/v1': it names no host",
    "http://h:0": "'http://h:0': port 0 is none to connect to",
    "http://h:65536": "'http://h:65536': its host or port cannot be read",
    "http://h:-1": "'http://h:-1': its host or port cannot be read",
    "http://h:x": "'http://h:x': its host or port cannot be read",
    "http://[::1": "'http://[::1': its host or port cannot be read",
    "ftp://me:hunter2@h/v1?key=hunter2": "'ftp://h/v1': its scheme is neither http nor https",
    "me:hunter2@h/v1": "'h/v1': its scheme is neither http nor https",
    "http://me:hunt/er2@h:1/v1": "'http://h:1/v1': its host or port cannot be read",
    "http://me:hunt?er2@h:x/v1": "'http://h:x/v1': its host or port cannot be read",
}


@pytest.mark.parametrize("address", GOOD)
def test_an_address_that_can_be_asked(address):
    """Http or https, a host, and a port that there is."""
    assert address_problem(address) is None


@pytest.mark.parametrize(("address", "problem"), BAD.items())
def test_an_address_that_nothing_can_be_sent_to(address, problem):
    """It is shown, and what is wrong with it."""
    found = address_problem(address)

    assert found is not None
    assert found.startswith(problem)
    assert "hunt" not in found
    assert "er2" not in found


def test_an_address_is_a_bounded_text():
    """Whatever else comes is no address."""
    assert address_problem(5) == "expected a str, got int"
    assert "at most 2,048" in str(address_problem("http://h/" + "x" * ADDRESS_CHARS_MAX))
    assert len(shown_address("http://h/" + "x" * ADDRESS_CHARS_MAX)) == SHOWN_CHARS_MAX


@pytest.mark.parametrize("name", ["api_base", "base_url"])
def test_every_option_that_is_an_address_is_checked(name):
    """The error names the option."""
    check_addresses({name: None, "other": "htp://h"})
    with pytest.raises(BadAddressError, match=f"^{name}: 'htp://h': its scheme"):
        check_addresses({name: "htp://h"})
