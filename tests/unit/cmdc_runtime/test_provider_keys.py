"""Which variables hold the key of a provider, and what can be none."""

import pytest

from cmdc_runtime.provider_keys import (
    KEY_CHARS_MAX,
    KEYS_MAX,
    api_key_problems,
    key_problem,
    key_variables,
    keys_of_environment,
    keys_problem,
)


def test_the_variable_called_after_the_provider_comes_first():
    """Then those of other names; a bearer token is no key."""
    assert key_variables("openai") == ("OPENAI_API_KEY", "OPENAI_API_TOKEN")
    assert key_variables("gemini") == ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_TOKEN")
    assert key_variables("azure-ai.x")[0] == "AZURE_AI_X_API_KEY"


def test_the_first_variable_that_is_set_counts():
    """An empty one is not set, and a provider without one has no key."""
    environ = {"OPENAI_API_KEY": "", "OPENAI_API_TOKEN": "t", "GOOGLE_API_KEY": "g"}

    keys, problems = keys_of_environment({"openai", "gemini", "groq"}, environ)

    assert (keys, problems) == ({"openai": "t", "gemini": "g"}, [])


def test_a_variable_that_can_be_no_key_is_a_problem_without_a_part_of_it():
    """It says whose environment it is, and the way out."""
    keys, (problem,) = keys_of_environment({"openai"}, {"OPENAI_API_KEY": "secret\n"})

    assert keys == {}
    assert problem == (
        "OPENAI_API_KEY in the environment of this process: it begins or ends with whitespace, "
        "perhaps the line break of a file; strip() it; mend it, or give send_keys=False"
    )


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("sk-1", []),
        ({"openai": "sk-1"}, []),
        ({}, []),
        (3, [": expected a str, got int"]),
        ("", [": it is empty"]),
        ({"openai": ""}, ["['openai']: it is empty"]),
        ({"no name": "x"}, [": 'no name' is no name of a provider, such as 'openai'"]),
        ({3: "x"}, [": 3 is no name of a provider, such as 'openai'"]),
        (
            {f"p{at}": "x" for at in range(KEYS_MAX + 1)},
            [f": expected at most {KEYS_MAX} keys, got {KEYS_MAX + 1}"],
        ),
    ],
)
def test_what_is_wrong_with_the_option(value, problems):
    """It is a key, or a dict of keys by provider."""
    assert api_key_problems(value) == problems


def test_a_key_that_is_too_long_to_be_hidden_is_none():
    """The bound is that of what is hidden."""
    assert key_problem("x" * KEY_CHARS_MAX) is None
    assert key_problem("x" * (KEY_CHARS_MAX + 1)) == (
        "it has 4,097 characters, at most 4,096 are taken"
    )


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, None),
        ({"openai": "sk", "openai:m": "sk-2"}, None),
        ({"openai": ""}, "'openai': it is empty"),
        ({f"p{at}": "x" for at in range(KEYS_MAX + 1)}, "expected at most 64, got 65"),
        ({"x" * 600: "sk"}, "no model has so long a name"),
    ],
)
def test_what_a_daemon_takes_of_keys(keys, problem):
    """A client that is none of ours may send anything."""
    found = keys_problem(keys)

    assert (found is None) if problem is None else found.endswith(problem)
