"""A secret is hidden in whatever shape it is repeated, and in part; words are not."""

import base64
import html
import json
import textwrap
import time
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmdc_runtime.extensions.provider import ModelRequest
from cmdc_runtime.messages import Message
from cmdc_runtime.redaction import HIDDEN, RUN_CHARS, SECRETS_MAX
from tests.unit.cmdc_runtime.extensions.test_provider import NO_OVERFLOWS, OVERFLOWS
from workers.builtin.providers._failures import TEXT_CHARS_MAX, hidden, secrets_of

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SIGNS = "0123456789-_./+=~:&<>'\"%"
SOON_S = 2.0
LOOKS = 4
"""At the texts of one failure and of its causes."""


def of(**options):
    return secrets_of(
        ModelRequest(model="openai:m", messages=(Message.user("hi"),), provider_opts=options)
    )


def escaped(form):
    """Return a shape that writes each character so."""
    return lambda key: "".join(form.format(ord(char)) for char in key)


SHAPES = {
    "upper": str.upper,
    "lower": str.lower,
    "swapped": str.swapcase,
    "wrapped": lambda key: "\n".join(textwrap.wrap(key, 7)),
    "wrapped in JSON": lambda key: json.dumps("\r\n\t".join(textwrap.wrap(key, 7)))[1:-1],
    "spaced": " ".join,
    "html": html.escape,
    "html twice": lambda key: html.escape(html.escape(key)),
    "html decimal": escaped("&#{};"),
    "html hex": escaped("&#x{:x};"),
    "html hex, escaped": lambda key: html.escape(escaped("&#x{:x};")(key)),
    "url": lambda key: quote(key, safe=""),
    "url twice": lambda key: quote(quote(key, safe=""), safe=""),
    "url thrice": lambda key: quote(quote(quote(key, safe=""), safe=""), safe=""),
    "url of all": escaped("%{:02x}"),
    "unicode": escaped("\\u{:04x}"),
    "unicode twice": escaped("\\\\u{:04X}"),
    "bytes": escaped("\\x{:02x}"),
    "json twice": lambda key: json.dumps(json.dumps(key)[1:-1])[1:-1],
    "hex": lambda key: key.encode().hex(),
    "upper hex": lambda key: key.encode().hex().upper(),
    "spaced hex": lambda key: key.encode().hex(" "),
    "base64": lambda key: base64.b64encode(key.encode()).decode().rstrip("="),
    "wrapped base64": lambda key: base64.encodebytes(key.encode()).decode().strip("=\n"),
}


def keys(size):
    """Return keys of at least so many characters, letters of both cases and signs in turn."""
    pairs = st.tuples(st.sampled_from(LETTERS), st.sampled_from(SIGNS[:10]), st.sampled_from(SIGNS))
    return st.lists(pairs, min_size=-(-size // 3), max_size=20).map(
        lambda parts: "".join("".join(part) for part in parts)
    )


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@given(key=keys(9))
def test_a_key_is_hidden_in_every_shape(shape, key):
    """All of it, and nothing around it."""
    assert hidden(f"got «{shape(key)}» here", of(api_key=key)) == f"got «{HIDDEN}» here"


@pytest.mark.parametrize("before", ["Bearer ", "user:", "a:", "ab:", ""])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@given(key=keys(12))
def test_a_key_is_hidden_within_base64(encode, before, key):
    """Behind a scheme or a user; what is left of it are a few bits at its ends."""
    written = encode(f"{before}{key}".encode()).decode()
    shown = hidden(f"«{written}»", of(api_key=key))

    assert len(shown.replace(HIDDEN, "").strip("«»=")) <= len(before) * 4 // 3 + 3


@given(key=keys(24), data=st.data())
def test_a_part_of_a_long_key_is_hidden(key, data):
    """From ``RUN_CHARS`` characters on, wherever in it they lie, in any case."""
    assume(all(len(set(key[at : at + RUN_CHARS].lower())) > 3 for at in range(len(key) - 7)))
    assume("%" not in key)
    start = data.draw(st.integers(0, len(key) - RUN_CHARS))
    end = data.draw(st.integers(start + RUN_CHARS, len(key)))

    assert hidden(f"«{key[start:end]}»", of(api_key=key)) == f"«{HIDDEN}»"


def test_both_ends_of_a_key_are_hidden():
    """As servers show a key that they do not know."""
    key = "zq7Gh2Kp9Lm4Xw8Rt1Vb6Nc3Yd5Fs0Ja2Ue7"

    assert hidden(f"bad {key[:12]}...{key[-12:]}", of(api_key=key)) == f"bad {HIDDEN}...{HIDDEN}"
    assert hidden(f"bad {key[:30]}******", of(api_key=key)) == f"bad {HIDDEN}******"


def test_a_key_with_a_slash_is_hidden_to_its_end():
    """Whoever gave it."""
    assert hidden("bad sk-abc123/def456+ghi=, yes", frozenset()) == f"bad {HIDDEN}, yes"


WORDS = {
    "word": "production",
    "words": "please answer in the language of the user",
    "joined words": "the-maximum-context-length-of-2024-messages",
    "address": "https://maximum.context.example/length/of/messages-1",
    "path": "/maximum/context/length-1/of/messages",
    "zeros": "key-4-00000000000000000000000",
}


@pytest.mark.parametrize("value", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("text", [*OVERFLOWS.values(), *NO_OVERFLOWS.values()])
def test_no_ordinary_text_is_hidden(value, text):
    """An option that is no key hides nothing but itself."""
    written = f"{text} PRODUCT, https://other.example/v1, 00000000"

    assert hidden(written, of(organization=value)) == written


@given(key=keys(30))
def test_no_key_hides_ordinary_text(key):
    """Of what vendors say."""
    secrets = of(api_key=key)

    assert [one for one in OVERFLOWS.values() if hidden(one, secrets) != one] == []


def test_the_cost_is_bounded():
    """By the most secrets, the longest text and the longest of each."""
    options = {f"key_{n}": f"{n}aB-".join(map(str, range(600))) for n in range(SECRETS_MAX // 2)}
    secrets = of(**options)
    began = time.process_time()
    for _ in range(LOOKS):
        hidden("\\u0041%2541&amp;#65;1aB-" * TEXT_CHARS_MAX, secrets)

    assert time.process_time() - began < SOON_S * LOOKS
