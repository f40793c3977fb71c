"""Whether the options and the key of a request can be sent, wherever they were given."""

import os
from typing import Final

from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError
from cmdc_runtime.header_values import KEYS, value_problem
from cmdc_runtime.provider_options import OURS, options_problem

_ENDS: Final = ("_API_KEY", "_AUTH_TOKEN", "_API_TOKEN")
"""Of the variables that litellm looks for the key of a provider in."""
_OTHERS: Final = {
    "gemini": ("GOOGLE_API_KEY",),
    "huggingface": ("HF_TOKEN",),
    "snowflake": ("SNOWFLAKE_JWT",),
    "cohere_chat": ("COHERE_API_KEY",),
}


def check_keys(request: ModelRequest, provider: str) -> None:
    """Check the options, and the key, that a request to ``provider`` would have.

    Raises:
        ProviderError: one can't work; the text names it and does not show it.
    """
    options = request.provider_opts
    problem = options_problem({name: options[name] for name in options.keys() - OURS})
    if problem is not None:
        raise _refused(f"provider_opts{problem}")
    if any(request.provider_opts.get(name) for name in KEYS):
        return
    own = (provider.upper() + end for end in _ENDS) if provider else ()
    for variable in (*own, *_OTHERS.get(provider, ())):
        held = os.environ.get(variable)
        if held and (problem := value_problem(held)):
            raise _refused(f"{variable} in the environment: {problem}")


def unset_keys(provider: str) -> tuple[str, ...]:
    """Return the variables of a provider that litellm says nothing of, if none of them is set."""
    names = _OTHERS.get(provider, ())
    own = (provider.upper() + end for end in _ENDS)
    return () if any(os.environ.get(name) for name in (*own, *names)) else names


def _refused(problem: str) -> ProviderError:
    return ProviderError(FailureKind.PERMANENT, f"nothing was sent: {problem}")
