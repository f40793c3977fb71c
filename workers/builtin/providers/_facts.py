"""What is known of a model before a request, and whether its options, key and address can be used.

``ModelFacts`` is what one model is and can do, as far as that is known, whoever knows it.
``check_keys`` says what is wrong with options and keys, wherever they were given.
``address_problem`` is the one rule for addresses: it is asked for the options before anything is
sent, and by the transport for each request, so that an address from the environment has the same
rule. What is said of an address never has the user or the query of it, which may be credentials.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError
from cmdc_runtime.message_parts import Medium
from cmdc_runtime.provider_keys import ENDS, other_variables
from cmdc_runtime.provider_options import KEYS, OURS, options_problem, value_problem

# --- addresses ------------------------------------------------------------------------------------

ADDRESS_CHARS_MAX: Final = 2_048
"""Of an address; servers take no longer ones."""
SHOWN_CHARS_MAX: Final = 200
"""Of an address in the text of a problem."""
OPTIONS: Final = ("api_base", "base_url")
"""The options that are addresses."""
SCHEMES: Final = frozenset({"http", "https"})

_USER: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
"""All before the last @: a password may have the signs that end a host."""
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_HOST: Final = re.compile(r"[^\x00-\x20\x7f/?#@<>\"^`{|}\\]+")


class BadAddressError(Exception):
    """No request can be sent to an address; the text shows it without credentials and says why."""


def check_addresses(options: Mapping[str, object]) -> None:
    """Check the addresses among the options of a request; one that is not given has no problem.

    Raises:
        BadAddressError: no request can be sent there.
    """
    for name in OPTIONS:
        given = options.get(name)
        if given is not None:
            problem = address_problem(given)
            if problem is not None:
                raise BadAddressError(f"{name}: {problem}")


def address_problem(address: object) -> str | None:
    """Return why no request can be sent to ``address``, or None where one can."""
    if not isinstance(address, str):
        return f"expected a str, got {type(address).__name__}"
    if len(address) > ADDRESS_CHARS_MAX:
        return f"it has {len(address):,} characters, at most {ADDRESS_CHARS_MAX:,} are taken"
    try:
        why = _problem(urlsplit(address))
    except ValueError:  # of a port or of the brackets of an IPv6 address
        why = "its host or port cannot be read; a port is a number from 1 to 65535"
    return None if why is None else f"{shown_address(address)!r}: {why}"


def shown_address(address: str) -> str:
    """Return an address as it may be shown: without its user, its query, and cut."""
    bare = _USER.sub(r"\1", address[:ADDRESS_CHARS_MAX])
    return _QUERY.sub("", bare)[:SHOWN_CHARS_MAX]


def _problem(parts: SplitResult) -> str | None:
    if parts.scheme.lower() not in SCHEMES:
        return "its scheme is neither http nor https"
    if not parts.hostname or _HOST.fullmatch(parts.hostname) is None:
        return "it names no host"
    if parts.port == 0:
        return "port 0 is none to connect to; a port is a number from 1 to 65535"
    return None


# --- facts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of one model; ``provider`` is empty for a name that litellm cannot place."""

    provider: str = ""
    model_id: str = ""
    is_listed: bool = False
    context_window: int | None = None
    answer_tokens: int | None = None
    has_price: bool = False
    takes_response_format: bool = False
    """litellm sends ``response_format`` on; what comes of it is the model's."""
    keeps_to_schemas: bool = False
    """The vendor says that replies are held to a JSON Schema."""
    decodes_by_schema: bool = False
    """Claude only: the schema binds the decoder; else litellm makes a forced tool call of it."""
    forces_calls: bool = False
    """It calls a tool where a request says that it has to, unless it thinks before."""
    thinks_adaptively: bool = False
    """Claude only: thinking needs no signed thoughts of earlier rounds."""
    media: frozenset[Medium] | None = None
    """What it takes beside text; None: nobody knows."""


_DEMANDED: Final = frozenset(
    (
        *("anthropic", "azure", "cerebras", "gemini", "groq", "mistral", "openai", "openrouter"),
        *("vertex_ai", "xai"),
    )
)
"""Vendors whose reference says that a request can demand a call, of any tool."""
_OF_CLAUDE: Final = frozenset({"bedrock", "bedrock_converse"})
"""Vendors that take it for Claude alone."""
_OF_CALLS: Final = ("supports_function_calling", "supports_tool_choice")
_BY_BYTES: Final[frozenset[Medium]] = frozenset({"image", "pdf"})
_CARRIED: Final[Mapping[str, frozenset[Medium]]] = {
    "anthropic": _BY_BYTES | {"image_url", "pdf_url"},
    "gemini": _BY_BYTES | {"image_url", "pdf_url"},
    "vertex_ai": _BY_BYTES | {"image_url", "pdf_url"},
}
"""What goes over a provider's wire; over that of the others no PDF by its address."""
_CARRIED_ELSE: Final[frozenset[Medium]] = _BY_BYTES | {"image_url"}


def forces_calls(provider: str, model_id: str, entry: Mapping[str, object]) -> bool:
    """Say whether a model can be made to call a tool, by its entry in litellm's table.

    The table says that a model takes a word on calls, not that a vendor does: some refuse a request
    that demands one.
    """
    is_demanded = provider in _DEMANDED or (provider in _OF_CLAUDE and "claude" in model_id)
    has_both = all(entry.get(one) is True for one in _OF_CALLS)
    return is_demanded and has_both and entry.get("supports_forced_tool_use") is not False


def media_of(provider: str, entry: Mapping[str, object]) -> frozenset[Medium]:
    """Return what a model takes beside text, by its entry in litellm's table.

    A model that is listed without a word of images takes none. Of one that is not listed nobody
    knows, so it is asked with all that the provider's wire has.
    """
    carried = _CARRIED.get(provider, _CARRIED_ELSE)
    if not entry:
        return carried
    sees, reads = (entry.get(f"supports_{one}") is True for one in ("vision", "pdf_input"))
    return frozenset(one for one in carried if (reads if one.startswith("pdf") else sees))


def is_claude(facts: ModelFacts) -> bool:
    """Say whether the model is Anthropic's, whoever serves it."""
    return facts.provider == "anthropic" or "claude" in facts.model_id


def is_gemini(facts: ModelFacts) -> bool:
    """Say whether the model is Google's and speaks Google's wire."""
    return facts.provider in {"gemini", "vertex_ai", "vertex_ai_beta"} and not is_claude(facts)


# --- names ----------------------------------------------------------------------------------------


def litellm_model(model: str) -> str:
    """Return litellm's name of a model: ``provider:model_id`` becomes ``provider/model_id``.

    A colon after a slash belongs to the model id (``ollama/llama3:8b``) and stays.
    """
    provider, colon, model_id = model.partition(":")
    return f"{provider}/{model_id}" if colon and "/" not in provider else model


# --- keys -----------------------------------------------------------------------------------------


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
    own = (provider.upper() + end for end in ENDS) if provider else ()
    for variable in (*own, *other_variables(provider)):
        held = os.environ.get(variable)
        if held and (problem := value_problem(held)):
            raise _refused(f"{variable} in the environment: {problem}")


def unset_keys(provider: str) -> tuple[str, ...]:
    """Return the variables of a provider that litellm says nothing of, if none of them is set."""
    names = other_variables(provider)
    own = (provider.upper() + end for end in ENDS)
    return () if any(os.environ.get(name) for name in (*own, *names)) else names


def _refused(problem: str) -> ProviderError:
    return ProviderError(FailureKind.PERMANENT, f"nothing was sent: {problem}")
