"""Which hosts a list allows, and which addresses no name may have."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdc_runtime.confinement.hosts import (
    ENTRIES_MAX,
    NOT_PUBLIC,
    PORTS,
    Destination,
    destination_of,
    kind_of,
    rules_of,
)

# fmt: off
NO_HOSTS = (
    "", ":443", "example.org", "example.org:", "example.org:0", "example.org:65536",
    "example.org:4 43", "example.org:+443", "example.org:\u0664\u0664\u0663", "a:b:443",
    "example.org\0.evil.org:443", "example.org\r\nX:443", "example.org\t:443", "example.org :443",
    "user@example.org:443", "example.org\\@evil.org:443", "example.org%00:443", "%65xample.org:443",
    "-a.org:443", "a-.org:443", "a..org:443", ".org:443", "..:443", "a" * 64 + ".org:443",
    "a.b/c:443", "*.example.org:443", "ex*mple.org:443", "a,b.org:443", "[example.org]:443",
    "[::1:443", "::1:443", "[::1]443", "[fe80::1%eth0]:443", "[fe80::1%25eth0]:443",
    "[127.0.0.1]:443",
    "127.1:443", "127.0.1:443", "2130706433:443", "0x7f000001:443", "0x7f.0.0.1:443", "0:443",
    "0177.0.0.1:443", "127.0.0.01:443", "127.0.0.1.:443", "127.0.0.256:443", "1.2.3.4.5:443",
    "\uff11\uff12\uff17.0.0.1:443", "127\u30020\u30020\u30021.:443", "a.0x7f:443", "a.1:443",
    "\u202eexample.org:443",
    "a\u00ad\u200b:443",
)
SAME = {
    # as it is written        as it is compared
    "Example.ORG:443":        "example.org:443",
    "example.org.:443":       "example.org:443",
    "Bücher.example:443":     "xn--bcher-kva.example:443",
    "BÜCHER.example:443":     "xn--bcher-kva.example:443",
    "xn--bcher-kva.example:443": "xn--bcher-kva.example:443",
    "\uff45xample\u3002org:443":        "example.org:443",
    "p\u0430ypal.com:443":         "xn--pypal-4ve.com:443",
    "[2606:4700:0:0::1]:443": "[2606:4700::1]:443",
    "[::ffff:8.8.8.8]:443":   "8.8.8.8:443",
    "_srv.example.org:80":    "_srv.example.org:80",
}
ALLOWED = {
    # entry                ["allowed", …]                                  ["refused", …]
    "pypi.org":            (["pypi.org:443", "PyPI.org.:80"],
                            ["pypi.org:22", "evil.org:443", "a.pypi.org:443",
                             "pypi.org.evil.org:443", "xpypi.org:443", "pypi.orgx:443"]),
    "*.example.org":       (["a.example.org:443", "a.b.example.org:80"],
                            ["example.org:443", "aexample.org:443", "a.example.org:8443"]),
    "example.org:8443":    (["example.org:8443"], ["example.org:443", "example.org:84"]),
    "*.example.org:22":    (["a.example.org:22"], ["a.example.org:443"]),
    "bücher.example":      (["xn--bcher-kva.example:443", "bücher.example:443"],
                            ["bucher.example:443", "xn--bcher-kvb.example:443"]),
    "paypal.com":          (["paypal.com:443"], ["p\u0430ypal.com:443", "\u03c1aypal.com:443"]),
    "10.1.2.3":            (["10.1.2.3:443", "[::ffff:10.1.2.3]:80"],
                            ["10.1.2.4:443", "10.1.2.3:22", "example.org:443"]),
    "10.0.0.0/8:8080":     (["10.9.9.9:8080"], ["10.9.9.9:80", "11.0.0.0:8080"]),
    "[fd00::1]:8080":      (["[fd00::1]:8080"], ["[fd00::2]:8080", "[fd00::1]:80"]),
    "fd00::/8":            (["[fd00::1]:80"], ["[fc00::1]:80"]),
    "::ffff:10.1.2.3":     (["10.1.2.3:80"], ["[::10.1.2.3]:80"]),
    "*":                   (["example.org:443", "a:80", "8.8.8.8:443"], ["example.org:22"]),
    "*:2222":              (["example.org:2222"], ["example.org:443"]),
}
# fmt: on


@pytest.mark.parametrize("text", NO_HOSTS, ids=ascii)
def test_what_can_be_read_in_two_ways_is_no_host(text):
    """Nor what has characters that no name has; it is never a name by chance."""
    with pytest.raises(ValueError, match=r"."):
        destination_of(text)


@pytest.mark.parametrize("written", SAME, ids=ascii)
def test_hosts_are_compared_in_one_form(written):
    """In A-labels, small letters, and addresses as the numbers that they are."""
    assert str(destination_of(written)) == SAME[written]
    assert str(destination_of(SAME[written])) == SAME[written]


@pytest.mark.parametrize("entry", ALLOWED)
def test_an_entry_allows_what_it_names(entry):
    """And nothing that begins or ends like it."""
    allowed, refused = ALLOWED[entry]
    rules = rules_of([entry])

    assert [one for one in allowed if rules.refusal(destination_of(one))] == []
    assert [one for one in refused if not rules.refusal(destination_of(one))] == []


def test_a_refusal_names_the_host_and_the_way_out():
    """The entry that it names allows it."""
    rules = rules_of(["pypi.org"])
    for text in ("example.org:443", "example.org:22", "pypi.org:22", "[fd00::1]:80", "10.0.0.1:22"):
        destination = destination_of(text)
        why = rules.refusal(destination)
        entry = why.split('"')[1]

        assert str(destination) in why
        assert rules_of([entry]).refusal(destination) is None


@pytest.mark.parametrize(
    "entry",
    ["", "http://a.org", "a.org/path", "a b", "*.*.org", "*a.org", "10.0.0.1/8", "10.0.0.0/33",
     "127.1", "a.org:0", "a.org:x", "[::1", "a@b", "a\0b", "999.1.1.1", "a.org:443:443"],
    ids=ascii,
)  # fmt: skip
def test_an_entry_that_is_none_is_named(entry):
    """With what is wrong, and examples."""
    with pytest.raises(ValueError, match="is no host to allow") as caught:
        rules_of(["pypi.org", entry])

    assert repr(entry) in str(caught.value)


def test_a_list_is_bounded():
    """More entries are refused where they are written."""
    rules_of(["a.org"] * ENTRIES_MAX)
    with pytest.raises(ValueError, match=f"{ENTRIES_MAX} allowed hosts, got {ENTRIES_MAX + 1}"):
        rules_of(["a.org"] * (ENTRIES_MAX + 1))


# --- addresses ------------------------------------------------------------------------------------


def forms(address):
    """Yield an address, and those of version 6 that lead to it."""
    yield address
    if address.version == 4:
        number = int(address)
        yield ipaddress.IPv6Address(0xFFFF << 32 | number)
        yield ipaddress.IPv6Address((0x64FF9B << 96) | number)
        yield ipaddress.IPv6Address((0x2002 << 112) | number << 80 | 1)
        yield ipaddress.IPv6Address(number)


@pytest.mark.parametrize("network", NOT_PUBLIC)
def test_no_name_leads_to_a_special_address(network):
    """From its first to its last, in every form of it; the reason is named."""
    found = ipaddress.ip_network(network)
    rules = rules_of(["*"])
    for address in (found[0], found[-1], found[found.num_addresses // 2]):
        for form in forms(address):
            assert rules.address_refusal(form) is not None, form
        assert kind_of(address) == NOT_PUBLIC[network]


@given(st.ip_addresses())
def test_what_is_taken_as_public_is_so_for_python_too(address):
    """Whose own table was written by others."""
    if kind_of(address) is None:
        held = [form for form in (address,) if form.version == 6]
        bare = next((one.sixtofour or one.ipv4_mapped for one in held), None) or address

        assert bare.is_global
        assert not bare.is_multicast


@pytest.mark.parametrize(
    "text",
    ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "192.167.0.1", "11.0.0.1",
     "100.63.0.1", "100.128.0.1", "169.253.0.1", "223.255.255.255", "2606:4700::1111",
     "2a00:1450::1", "64:ff9b::808:808", "2002:808:808::1"],
)  # fmt: skip
def test_public_addresses_are_reached(text):
    """Neighbours of special ones among them."""
    assert kind_of(ipaddress.ip_address(text)) is None


def test_a_private_address_is_reached_where_it_is_named():
    """By itself or by a network, whatever its form, and however it was found."""
    rules = rules_of(["intranet.example", "10.0.0.0/8", "fd00::1"])
    for text in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1"):
        assert rules.address_refusal(ipaddress.ip_address(text)) is None
    for text in ("192.168.0.1", "127.0.0.1", "fd00::2", "64:ff9b::a01:203", "2002:a01:203::"):
        assert rules.address_refusal(ipaddress.ip_address(text)) is not None


def test_a_tunnel_may_carry_anything_to_a_port_that_is_named():
    """To those of the web TLS alone."""
    rules = rules_of(["a.org:22", "a.org:443", "b.org", "*:2222"])

    assert rules.any_protocol(Destination("a.org", 22))
    assert rules.any_protocol(Destination("c.org", 2222))
    assert not any(rules.any_protocol(Destination("a.org", port)) for port in PORTS)
    assert not rules.any_protocol(Destination("b.org", 22))


def test_who_is_named_in_particular():
    """By name or by network; the entry for all names names nobody."""
    rules = rules_of(["*", "localhost:8080", "127.0.0.0/8"])

    assert rules.names("localhost")
    assert rules.names(ipaddress.ip_address("127.0.0.1"))
    assert not rules.names("example.org")
    assert not rules.names(ipaddress.ip_address("::1"))
