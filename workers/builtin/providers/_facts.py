"""What one model is and can do, as far as that is known; where it comes from is ``_models``."""

from dataclasses import dataclass


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
