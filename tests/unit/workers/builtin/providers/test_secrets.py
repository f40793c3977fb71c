"""Which values are secrets, and that no form of them is left in a text."""

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest

from cmdc_runtime.extensions.provider import ModelRequest
from cmdc_runtime.messages import Message
from cmdc_runtime.redaction import SECRET_CHARS_MAX, SECRETS_MAX, STRINGS_MAX
from workers.builtin.providers import _failures
from workers.builtin.providers._failures import HIDDEN, hidden, is_safe, secrets_of

VALUE = "s3cr3t/value+of&nobody"
SOON_S = 2.0


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """Let the machine's own variables hide nothing."""
    for name in [*_failures.os.environ]:
        monkeypatch.delenv(name)


def of(**options):
    return secrets_of(
        ModelRequest(model="openai:m", messages=(Message.user("hi"),), provider_opts=options)
    )


GIVEN = {
    "api_key": {"api_key": VALUE},
    "nested": {"extra_body": {"auth": [{"client_secret": VALUE}]}},
    "tuple": {"tokens": ("x", VALUE)},
    "bytes": {"password": VALUE.encode()},
    "header of any name": {"extra_headers": {"X-Team": VALUE}},
    "headers": {"headers": {"X-Team": VALUE}},
    "header pairs": {"default_headers": [("X-Team", VALUE)]},
    "bearer": {"extra_headers": {"X-Auth": f"Bearer {VALUE}"}},
    "basic": {
        "extra_headers": {
            "Authorization": "Basic " + base64.b64encode(f"me:{VALUE}".encode()).decode()
        }
    },
    "an option of any name": {"organization": VALUE},
    "nested under any name": {"extra_body": {"a": {"b": [{"c": {"d": VALUE}}]}}},
    "query": {"extra_query": {"team": VALUE}},
    "a list of any name": {"tags": ["none", VALUE]},
    "text that is JSON": {"vertex_credentials": json.dumps({"a": [{"private_id": VALUE}]})},
    "query of an address": {"api_base": f"https://host/v1?key={VALUE.replace('&', '%26')}"},
    "user of an address": {"api_base": f"https://me:{VALUE.replace('/', '%2F')}@host/v1"},
}


@pytest.mark.parametrize("options", GIVEN.values(), ids=GIVEN)
def test_what_was_given_as_a_secret_is_one(options):
    """By its place, whatever its name."""
    assert hidden(f"it was {VALUE}!", of(**options)) == f"it was {HIDDEN}!"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MY_TOKEN", "DB_SECRET", "PGPASSWORD"])
def test_the_environment_has_secrets(monkeypatch, name):
    """Those whose name says so."""
    monkeypatch.setenv(name, VALUE)
    monkeypatch.setenv("EDITOR", "value-of-no-secret")

    assert hidden(f"{VALUE} value-of-no-secret", of()) == f"{HIDDEN} value-of-no-secret"


def test_an_address_in_the_environment_has_secrets(monkeypatch):
    """A proxy's, or a database's."""
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2-hunter2@proxy:1")

    assert "hunter2" not in hidden("to http://me:hunter2-hunter2@proxy:1", of())


HARMLESS = {
    "short": {"api_key": "x"},
    "a part of the model's name": {"api_key": "openai"},
    "three characters": {"extra_body": {"team": "app"}},
    "a word that options choose from": {"extra_body": {"mode": "json_object"}},
    "an option that says nothing": {"extra_body": {"model": "llama-of-us"}, "effort": "wild"},
    "an address": {"api_base": "http://host-of-us:1/v1"},
    "placeholder": {"api_key": "none"},
    "flag": {"extra_headers": {"X-Flag": "true"}},
    "number": {"extra_headers": {"X-Number": "1"}},
    "type": {"extra_headers": {"Content-Type": "application/json"}},
    "a type elsewhere": {"extra_headers": {"X-Type": "application/json"}},
    "a plain header": {"extra_headers": {"anthropic-version": "2023-06-01"}},
    "a plain header as a pair": {"extra_headers": [("anthropic-version", "2023-06-01")]},
    "its own name": {"wild": "wild"},
}


@pytest.mark.parametrize("options", HARMLESS.values(), ids=HARMLESS)
def test_what_says_nothing_is_no_secret(options):
    """Hiding ``x`` or ``true`` would blank out half of every text."""
    text = (
        "x is true, 1 is none: application/json of 2023-06-01, apple as json_object of openai"
        " by llama-of-us at http://host-of-us:1/v1 with wild"
    )

    assert hidden(text, of(**options)) == text


@pytest.mark.parametrize("name", ["api_key", "organization", "session"])
def test_a_short_credential_is_one(name):
    """It is hidden within other words, too: nobody knows where a server lets it begin."""
    assert hidden("is%3Dq7w!z, q7w! and nq7w!", of(**{name: "q7w!"})) == (
        f"is%3D{HIDDEN}z, {HIDDEN} and n{HIDDEN}"
    )


def test_what_was_given_before_is_a_secret():
    """A server may still have the key of the model before."""
    asked = ModelRequest(
        model="openai:m",
        messages=(Message.user("hi"),),
        former_opts=({"api_key": VALUE}, {"extra_body": {"team": "team-rocket"}}),
    )

    assert hidden(f"{VALUE} team-rocket", secrets_of(asked)) == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({f"o{n}": f"value-{n}" for n in range(SECRETS_MAX + 1)}, id="values"),
        pytest.param({"n": [*range(STRINGS_MAX + 1)], "api_key": VALUE}, id="parts"),
    ],
)
def test_more_than_is_looked_for_hides_everything(options):
    """What was left out would be shown otherwise."""
    secrets = of(**options)

    assert hidden(f"it was {VALUE} or value-1!", secrets) == HIDDEN
    assert not is_safe("nothing", secrets)


def test_a_document_is_no_credential():
    """A long text among the options leaves errors readable."""
    text = "w" * (SECRET_CHARS_MAX + 1)

    assert hidden(text, of(prediction={"content": text})) == text


FORMS = {
    "json": json.dumps(VALUE),
    "json twice": json.dumps(json.dumps(VALUE + '"')),
    "slashes": VALUE.replace("/", "\\/"),
    "url": "s3cr3t%2Fvalue%2Bof%26nobody",
    "half a url": "s3cr3t/value%2Bof%26nobody",
    "html": VALUE.replace("&", "&amp;"),
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "base64 of a url": base64.urlsafe_b64encode(VALUE.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_hidden(form):
    """Servers quote what they echo."""
    shown = hidden(f"<{form}> {form}", of(api_key=VALUE))

    assert shown.count(HIDDEN) == 2
    assert "nobody" not in shown
    assert "czNjcjN0" not in shown


ODD = "p\u00e4ss w\u00f6rd\\1/\t\b&?"
"""A value that each way to write it down writes otherwise."""
ODD_FORMS = {
    "itself": ODD,
    "url": quote(ODD, safe=""),
    "half a url": quote(ODD),
    "form": quote_plus(ODD),
    "json": json.dumps(ODD)[1:-1],
    "json of utf-8": json.dumps(ODD, ensure_ascii=False)[1:-1],
    "repr": repr(ODD + "'")[1:-2],
    "base64": base64.b64encode(ODD.encode()).decode(),
}


@pytest.mark.parametrize("form", ODD_FORMS.values(), ids=ODD_FORMS)
def test_every_form_of_odd_characters_is_hidden(form):
    """Spaces, letters beyond ASCII, a tab and a backslash."""
    assert hidden(f"<{form}>", of(api_key=ODD)).startswith(f"<{HIDDEN}")
    assert "rd" not in hidden(f"<{form}>", of(api_key=ODD))


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_base64_is_hidden_in_either_alphabet(encode):
    """Where they differ from each other."""
    value = "\u00fb\u00ff\u00bf?>~~"
    form = encode(value.encode()).decode()

    assert base64.urlsafe_b64encode(value.encode()) != base64.b64encode(value.encode())
    assert form.rstrip("=") not in hidden(form, of(api_key=value))


def test_a_plus_in_an_address_may_be_a_space():
    """Nobody knows how the server reads it."""
    assert "hunter two" not in hidden("hunter two", of(api_base="https://h/v1?key=hunter+two"))


SHAPES = [
    *(f"{prefix}-abc*****123456789" for prefix in ("sk", "pk", "rk", "gsk", "xai", "key")),
    "hf_abcdef0123456789",
    "AIzaSyA-0123456789abcdef",
    "AKIA0123456789ABCDEF",
    "Bearer x.y",
]


@pytest.mark.parametrize("key", SHAPES)
def test_what_looks_like_a_key_is_hidden_whoever_gave_it(key):
    """A server may quote another one's."""
    assert hidden(f"it has {key}, {key}", frozenset()) == f"it has {HIDDEN}, {HIDDEN}"


def test_a_key_in_an_address_is_hidden_whoever_gave_it():
    """Between what is no secret."""
    text = "asked https://h/v1?a=b&key=0123&c=d"

    assert hidden(text, frozenset()) == f"asked https://h/v1?a=b&key={HIDDEN}&c=d"


def test_secrets_side_by_side_and_within_each_other():
    """Nothing of any of them is left, nor of what lies between two."""
    secrets = of(api_key="abcdefgh", other_key="defghijk")

    assert hidden("-abcdefghijk-abcdefghabcdefgh-", secrets) == f"-{HIDDEN}-{HIDDEN}-"
    assert hidden("abcdefgh", secrets) == HIDDEN


def test_a_text_is_cut_and_does_not_end_in_a_part_of_a_secret():
    """What stood at the cut would be shown otherwise, all but its last character."""
    text = "x" * (_failures.TEXT_CHARS_MAX - 10) + VALUE
    shown = hidden(text, of(api_key=VALUE))

    assert shown == "x" * (_failures.TEXT_CHARS_MAX - 10) + HIDDEN
    assert not is_safe("x" * (_failures.TEXT_CHARS_MAX + 1), frozenset())
    assert is_safe("x" * _failures.TEXT_CHARS_MAX, frozenset())


def test_many_secrets_and_a_large_text_cost_little():
    """Both have a bound: no loop of an agent waits for this."""
    options = {f"key_{n}": f"value-number-{n}" for n in range(10_000)}
    began = time.process_time()
    hidden("value-number-" * 10**6, of(**options))

    assert time.process_time() - began < SOON_S
