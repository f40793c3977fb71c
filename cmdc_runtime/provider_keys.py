"""Keys of providers: which variables hold one, and which of this process's a session is given.

A session's keys go beside its definition, by the name of their provider or, if it is for that one
alone, by that of their model. The daemon keeps them out
of the journal, and the agent puts one into a request that has no ``api_key`` of its own: before a
variable of the daemon's. So a script's key counts wherever its daemon runs.

To let a variable of another name count, add it to ``_OTHERS``.
"""

from collections.abc import Collection, Mapping
from typing import Final

from cmdc_runtime.plain import is_a, short
from cmdc_runtime.provider_options import MODEL_CHARS_MAX, PROVIDER_NAME, value_problem

KEYS_MAX: Final = 64
"""Providers that one session has keys of."""
KEY_CHARS_MAX: Final = 4_096
"""As ``redaction.SECRET_CHARS_MAX``: what is longer could not be hidden."""

_ENDS: Final = ("_API_KEY", "_API_TOKEN")
ENDS: Final = (*_ENDS, "_AUTH_TOKEN")
"""Of the variables that litellm looks for the credential of a provider in."""
_OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "gemini": ("GOOGLE_API_KEY",),
    "huggingface": ("HF_TOKEN",),
    "openrouter": ("OR_API_KEY",),
    "snowflake": ("SNOWFLAKE_JWT",),
    "cohere_chat": ("COHERE_API_KEY",),
}


def other_variables(provider: str) -> tuple[str, ...]:
    """Return the variables of a provider that are not called after it."""
    return _OTHERS.get(provider, ())


def key_variables(provider: str) -> tuple[str, ...]:
    """Return the variables that may hold the key of a provider, the usual one first."""
    own = tuple(_variable(provider) + end for end in _ENDS)
    return (own[0], *other_variables(provider), *own[1:])


def keys_of_environment(
    providers: Collection[str], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the keys of these providers that are set, and what is wrong with others of them."""
    keys: dict[str, str] = {}
    problems: list[str] = []
    for provider in sorted(providers):
        name = next((one for one in key_variables(provider) if environ.get(one)), None)
        if name is None:
            continue
        problem = key_problem(environ[name])
        if problem is None:
            keys[provider] = environ[name]
        else:
            way = "mend it, or give send_keys=False"
            problems.append(f"{name} in the environment of this process: {problem}; {way}")
    return keys, problems


def key_problem(key: object) -> str | None:
    """Return why something can be no key, without a part of it, or None where it can."""
    if not is_a(key, str):
        return f"expected a str, got {type(key).__name__}"
    if not key:
        return "it is empty"
    if len(str(key)) > KEY_CHARS_MAX:
        return f"it has {len(str(key)):,} characters, at most {KEY_CHARS_MAX:,} are taken"
    return value_problem(key)


def keys_problem(keys: Mapping[str, str]) -> str | None:
    """Return why a session can't be given these keys, by model or provider, or None."""
    if len(keys) > KEYS_MAX:
        return f"expected at most {KEYS_MAX}, got {len(keys)}"
    for name, key in keys.items():
        if len(name) > MODEL_CHARS_MAX:
            return f"{short(name)}: no model has so long a name"
        if (problem := key_problem(key)) is not None:
            return f"{short(name)}: {problem}"
    return None


def api_key_problems(value: object) -> list[str]:
    """Return what is wrong with the option ``api_key``: a key, or a dict of keys by provider."""
    if not is_a(value, dict):
        problem = key_problem(value)
        return [] if problem is None else [f": {problem}"]
    held = dict(value)  # type: ignore[call-overload] # is_a has looked
    if len(held) > KEYS_MAX:
        return [f": expected at most {KEYS_MAX} keys, got {len(held)}"]
    problems = []
    for provider, key in held.items():
        if not isinstance(provider, str) or PROVIDER_NAME.fullmatch(provider) is None:
            problems.append(f": {short(provider)} is no name of a provider, such as 'openai'")
        elif (problem := key_problem(key)) is not None:
            problems.append(f"[{provider!r}]: {problem}")
    return problems


def _variable(provider: str) -> str:
    return provider.upper().replace("-", "_").replace(".", "_")
