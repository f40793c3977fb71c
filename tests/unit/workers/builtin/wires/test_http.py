"""What of a request is decided before a connection: proxies, authorities, names of refusals."""

import ssl
from pathlib import Path

import certifi
import pytest

from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from workers.builtin.providers._facts import BadAddressError
from workers.builtin.wires import http
from workers.builtin.wires.http import AnsweredError, proxy_of, refusal, tls_context

PROXY = "http://proxy:3128"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Have none of the variables but those that a test sets."""
    for name in (*VARIABLES, *map(str.lower, VARIABLES), "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def held(monkeypatch):
    """Set variables."""

    def held_(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return held_


# --- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https", "HTTPS"])
def test_an_address_has_the_proxy_of_its_scheme(held, scheme):
    """Or the one of all."""
    assert proxy_of(f"{scheme}://host/v1") is None
    held(ALL_PROXY="http://all:1")
    assert proxy_of(f"{scheme}://host/v1") == "http://all:1"
    held(**{f"{scheme}_PROXY".upper(): PROXY})
    assert proxy_of(f"{scheme}://host/v1") == PROXY
    held(**{f"{scheme}_proxy".lower(): "http://lower:1"})
    assert proxy_of(f"{scheme}://host/v1") == "http://lower:1"


def test_an_empty_variable_names_no_proxy(held):
    """In the lower case it takes back what the upper case says."""
    held(HTTPS_PROXY=PROXY, https_proxy="")

    assert proxy_of("https://host") is None


def test_a_proxy_without_a_scheme_is_one_of_http(held):
    """As curl takes it."""
    held(HTTPS_PROXY="proxy:3128")

    assert proxy_of("https://host") == PROXY


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "http://", "ftp://proxy", "http://p:0"])
def test_a_proxy_that_cannot_be_asked_is_an_error(held, proxy):
    """It is never passed by in silence."""
    held(HTTPS_PROXY=proxy)
    with pytest.raises(BadAddressError, match=r"^the proxy of the environment: "):
        proxy_of("https://host")


def test_the_password_of_a_proxy_is_not_in_the_error(held):
    """Nor its user."""
    held(HTTPS_PROXY="socks5://someone:hush@proxy:1080")
    with pytest.raises(BadAddressError) as caught:
        proxy_of("https://host")

    assert "someone" not in str(caught.value)
    assert "hush" not in str(caught.value)


EXCEPTED = {
    "host": ("https://host/v1", "host"),
    "case": ("https://HOST/v1", "Host"),
    "host and port": ("https://host:81/v1", "host:81"),
    "host of any port": ("https://host:81/v1", "host"),
    "name below": ("https://a.b.org/v1", "b.org"),
    "name below a dot": ("https://a.b.org/v1", ".b.org"),
    "one of several": ("https://host/v1", "a , host ,b"),
    "all": ("https://host/v1", "*"),
    "all among others": ("https://host/v1", "a, *"),
    "user": ("https://a:b@host/v1", "host"),
    "IPv4": ("http://127.0.0.1:81", "127.0.0.1"),
    "IPv6": ("http://[::1]:81", "::1"),
    "IPv6 in brackets": ("http://[::1]:81", "[::1]"),
}
NOT_EXCEPTED = {
    "other host": ("https://host/v1", "other"),
    "end of a name": ("https://ahost/v1", "host"),
    "beginning of a name": ("https://host.org/v1", "host"),
    "other port": ("https://host:81/v1", "host:82"),
    "other address": ("http://[::1]:81", "::2"),
    "empty": ("https://host/v1", ""),
    "commas": ("https://host/v1", ", ,"),
    "star in a name": ("https://host/v1", "h*"),
}


@pytest.mark.parametrize("case", EXCEPTED)
def test_what_no_proxy_names_has_none(held, case):
    """In each form that a host is written in."""
    address, excepted = EXCEPTED[case]
    held(ALL_PROXY=PROXY, NO_PROXY=excepted)

    assert proxy_of(address) is None


@pytest.mark.parametrize("case", NOT_EXCEPTED)
def test_any_other_host_has_the_proxy(held, case):
    """A part of a name is none."""
    address, excepted = NOT_EXCEPTED[case]
    held(ALL_PROXY=PROXY, NO_PROXY=excepted)

    assert proxy_of(address) == PROXY


# --- authorities ----------------------------------------------------------------------------------


def test_certifi_is_trusted_beside_the_system():
    """And names and certificates are looked at."""
    context = tls_context()

    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    ours = ssl.create_default_context(cafile=certifi.where()).cert_store_stats()["x509_ca"]
    assert context.cert_store_stats()["x509_ca"] >= ours


def test_a_file_of_the_environment_stands_in_for_all(held, tmp_path):
    """One authority is trusted where it has one; the context is made once."""
    head, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = Path(certifi.where()).read_text("utf-8").partition(head)[2].partition(end)[0]
    path = tmp_path / "one.pem"
    path.write_text(f"{head}{first}{end}\n")
    held(SSL_CERT_FILE=str(path))
    context = tls_context()

    assert context.cert_store_stats()["x509_ca"] == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert tls_context() is context


def test_a_folder_of_the_environment_stands_in_for_all(held, tmp_path):
    """Its files are read when a server shows a certificate."""
    held(SSL_CERT_DIR=str(tmp_path))

    assert tls_context().cert_store_stats()["x509_ca"] == 0


def test_a_file_that_is_missing_is_named(held, tmp_path):
    """The next request would fail as well."""
    held(SSL_CERT_FILE=str(tmp_path / "none.pem"))
    with pytest.raises(ProviderError) as caught:
        tls_context()

    assert caught.value.kind is FailureKind.PERMANENT
    assert caught.value.reason == (
        f"nothing was sent: SSL_CERT_FILE in the environment, '{tmp_path}/none.pem':"
        " No such file or directory"
    )


# --- refusals -------------------------------------------------------------------------------------

NAMES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    402: "APIError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "Timeout",
    413: "APIError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    499: "APIError",
    500: "InternalServerError",
    502: "InternalServerError",
    503: "ServiceUnavailableError",
    529: "InternalServerError",
}


@pytest.mark.parametrize("status", NAMES)
def test_a_refusal_has_the_name_that_libraries_have_for_it(status):
    """One class for each name; it keeps words, status and headers."""
    error = refusal(status, "no", {"retry-after": "7"})

    assert type(error).__name__ == NAMES[status]
    assert isinstance(error, AnsweredError)
    assert type(error) is type(refusal(status, "again", {}))
    assert (str(error), error.status_code) == ("no", status)
    assert error.response_headers == {"retry-after": "7"}


def test_a_connection_has_a_bound():
    """It waits half a minute at most, and is kept as long."""
    assert (http.CONNECT_TIMEOUT_S, http.KEEP_S) == (30.0, 30.0)
