"""Credentials are taken out of texts of any length, and nothing else is."""

import time

import pytest

from cmdc_runtime.redaction import (
    ALL,
    HIDDEN,
    LOOKED_CHARS_MAX,
    NAMED_MAX,
    SECRETS_MAX,
    STRINGS_MAX,
    forms_of,
    hidden,
    secrets_by_name,
    secrets_of_environment,
    secrets_of_options,
)

KEY = "sk-SEKRIT1234567890abcdefGHIJ"
SOON_S = 2.0


def test_a_secret_is_hidden_where_it_stands():
    """At the beginning, at the end, and twice."""
    assert hidden(f"{KEY} and {KEY}", forms_of([KEY])) == f"{HIDDEN} and {HIDDEN}"
    assert hidden(KEY, forms_of([KEY])) == HIDDEN
    assert hidden("nothing", forms_of([KEY])) == "nothing"
    assert hidden(f"{KEY}", forms_of([])) == KEY


def test_a_text_may_be_cut_within_a_secret():
    """Its beginning is hidden then, and only then."""
    assert hidden("a key-1", forms_of(["key-12345"]), is_cut=True) == f"a {HIDDEN}"
    assert hidden("a key-1", forms_of(["key-12345"])) == "a key-1"


@pytest.mark.parametrize("before", [0, LOOKED_CHARS_MAX, 2 * LOOKED_CHARS_MAX])
def test_a_secret_is_hidden_anywhere_in_a_long_text(before):
    """As a whole."""
    dots, more = "." * before, "." * (2 * LOOKED_CHARS_MAX - before)

    assert hidden(f"{dots}{KEY}{more}", forms_of([KEY])) == f"{dots}{HIDDEN}{more}"


def test_a_secret_is_hidden_in_any_shape_at_the_ends_of_a_long_text():
    """What a failure begins with, and what is kept of a traceback."""
    dots = "." * LOOKED_CHARS_MAX
    text = f"{KEY.upper()}{dots}{' '.join(KEY)}{dots}{KEY[:12]}"

    assert hidden(text, forms_of([KEY])) == f"{HIDDEN}{dots}{' '.join(KEY)}{dots}{HIDDEN}"


def test_the_cost_of_a_long_text_is_bounded():
    """A tool may fail with all that it has read."""
    secrets = forms_of([KEY, *(f"value-number-{n}" for n in range(20))])
    text = "some words of a file \\u0041" * 10**6
    began = time.process_time()
    hidden(text, secrets)

    assert time.process_time() - began < SOON_S


NAMED = {
    "a secret's name": {"api_key": KEY},
    "a secret's name, deeper": [{"auth": {"client_secret": KEY}}],
    "a header of any name": {"headers": {"X-Team": KEY}},
    "options of a provider": {"provider_opts": {"extra_body": {"team": KEY}}},
    "the user of an address": {"endpoint": f"http://me:{KEY}@host/"},
}


@pytest.mark.parametrize("given", NAMED.values(), ids=NAMED)
def test_other_options_are_secrets_by_their_names(given):
    """And nothing else among them is: it may be anything."""
    assert KEY in secrets_by_name([given, {"customer": "Alice Liddell"}])
    assert "Alice Liddell" not in secrets_by_name([given, {"customer": "Alice Liddell"}])


def test_too_many_secrets_hide_everything_but_not_those_known_by_name_alone():
    """An application's own data may be large, and failures are read all the same."""
    many = {f"key_{n}": f"value-number-{n}" for n in range(SECRETS_MAX + 1)}

    assert secrets_of_options(many) == {ALL}
    assert secrets_of_options([*range(STRINGS_MAX + 1)]) == {ALL}
    assert hidden("anything", forms_of([ALL, KEY])) == HIDDEN
    assert forms_of(many.values()) == {ALL}
    assert len(secrets_by_name(many)) == NAMED_MAX


def test_variables_are_secrets_by_their_names():
    """So are users in addresses."""
    variables = {
        "A_TOKEN": KEY,
        "PROXY": "http://me:hunter2-hunter2@proxy",
        "EDITOR": "vi-of-nobody",
    }

    assert secrets_of_environment(variables) == {KEY, "me:hunter2-hunter2", "hunter2-hunter2"}
