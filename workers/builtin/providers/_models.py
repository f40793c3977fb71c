"""What is known of models before a request: names, prices, context windows, abilities, keys.

Everything is read offline. What the table does not know is None or False, never a guess; an entry
that a program adds (``litellm.register_model``) counts if it comes before the first question.

``ModelFacts`` is what one model is and can do, as far as that is known. ``check_keys`` says whether
the options and the key of a request can be sent, wherever they were given.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import FailureKind, ModelRequest, ProviderError
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.provider_options import KEYS, OURS, options_problem, value_problem
from workers.builtin.providers._library import litellm

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
    thinks_adaptively: bool = False
    """Claude only: thinking needs no signed thoughts of earlier rounds."""


def is_claude(facts: ModelFacts) -> bool:
    """Say whether the model is Anthropic's, whoever serves it."""
    return facts.provider == "anthropic" or "claude" in facts.model_id


def is_gemini(facts: ModelFacts) -> bool:
    """Say whether the model is Google's and speaks Google's wire."""
    return facts.provider in {"gemini", "vertex_ai", "vertex_ai_beta"} and not is_claude(facts)


# --- keys -----------------------------------------------------------------------------------------

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


# --- litellm's table ------------------------------------------------------------------------------

MODELS_MAX: Final = 256
"""How many models' facts are kept; a session uses a handful."""


def litellm_model(model: str) -> str:
    """Return litellm's name of a model: ``provider:model_id`` becomes ``provider/model_id``.

    A colon after a slash belongs to the model id (``ollama/llama3:8b``) and stays.
    """
    provider, colon, model_id = model.partition(":")
    return f"{provider}/{model_id}" if colon and "/" not in provider else model


@functools.lru_cache(MODELS_MAX)
def facts_of(model: str) -> ModelFacts:
    """Return what is known of ``model``; the second question is a lookup."""
    name = litellm_model(model)
    try:
        model_id, provider, _, _ = litellm.get_llm_provider(name)
        parameters = litellm.get_supported_openai_params(model_id, provider) or ()
    except Exception:  # noqa: BLE001 - what it raises for an unknown name is of no one class
        return ModelFacts()
    listed = _listed(name)
    window, answer = listed.get("max_input_tokens"), listed.get("max_output_tokens")
    return ModelFacts(
        provider=provider,
        model_id=model_id,
        is_listed=bool(listed),
        context_window=window if isinstance(window, int) else None,
        answer_tokens=answer if isinstance(answer, int) else None,
        has_price="input_cost_per_token" in listed,
        takes_response_format="response_format" in parameters,
        keeps_to_schemas=listed.get("supports_response_schema") is True,
        decodes_by_schema=listed.get("supports_native_structured_output") is True,
        thinks_adaptively=listed.get("supports_adaptive_thinking") is True,
    )


def missing_keys(request: ModelRequest) -> tuple[str, ...]:
    """Return the variables that a request's key is looked for in, where there is none at all."""
    try:
        found = litellm.validate_environment(litellm_model(request.model))
    except Exception:  # noqa: BLE001 - as above; then nobody knows which
        return ()
    missing = tuple(map(str, found.get("missing_keys") or ()))
    return missing or unset_keys(facts_of(request.model).provider)


def price_usd(model: str, prompt_tokens: int, completion_tokens: int) -> float | None:
    """Return the price of a request without cached tokens; see ``ModelTable.price_usd``."""
    usage = TokenUsage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    return _cost_usd(usage, None, model)


def usage_of(raw: Mapping[str, object], model: str) -> TokenUsage:
    """Return a usage with its price; the price of a model that litellm does not know is None."""
    usage = TokenUsage.from_raw(raw)
    return msgspec.structs.replace(usage, cost_usd=_cost_usd(usage, raw, model))


def _cost_usd(usage: TokenUsage, raw: Mapping[str, object] | None, model: str) -> float | None:
    # A model without a price costs 0 in litellm's words; only the table can say that it is free.
    if not facts_of(model).has_price:
        return None
    try:
        parts = litellm.cost_per_token(
            model=litellm_model(model),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            usage_object=None if raw is None else litellm.Usage(**raw),
        )
    except Exception:  # noqa: BLE001 - a usage that it cannot price has no price
        return None
    return float(sum(parts))


def _listed(name: str) -> Mapping[str, object]:
    try:
        key = litellm.get_model_info(name)["key"]
    except Exception:  # noqa: BLE001 - what it raises for an unknown model is of no one class
        return {}
    entry: Mapping[str, object] = litellm.model_cost.get(key, {})
    return entry
