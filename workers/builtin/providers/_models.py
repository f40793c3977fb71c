"""What litellm knows of models before a request: names, prices, context windows, abilities, keys.

Everything is read offline. What the table does not know is None or False, never a guess; an entry
that a program adds (``litellm.register_model``) counts if it comes before the first question.
"""

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest
from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers._facts import (
    ModelFacts,
    forces_calls,
    litellm_model,
    media_of,
    unset_keys,
)
from workers.builtin.providers._library import litellm

MODELS_MAX: Final = 256
"""How many models' facts are kept; a session uses a handful."""


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
        forces_calls="tool_choice" in parameters and forces_calls(provider, model_id, listed),
        thinks_adaptively=listed.get("supports_adaptive_thinking") is True,
        media=media_of(provider, listed),
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
