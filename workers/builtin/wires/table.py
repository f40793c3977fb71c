"""litellm's table of models, read as a file: windows, prices and abilities, without litellm.

The file lies in litellm's package, which is found and not imported. It is read once, at the first
question. What it does not know is None or False, never a guess: a model that is not in it has no
price and no window. An entry that a program adds (``litellm.register_model``) is litellm's alone.

A usage of a model without a price costs None, and never 0. A rate that a vendor has for long
conversations (``…_above_272k_tokens``) counts for all tokens of a request that is longer. Where a
vendor has no rate for cached tokens they cost what others cost.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import structlog

from cmdc_runtime.messages import TokenUsage
from workers.builtin.providers._facts import ModelFacts, forces_calls, media_of

# --- the table ------------------------------------------------------------------------------------

log = structlog.get_logger()

TABLE: Final = "model_prices_and_context_window_backup.json"
"""In litellm's package."""
TABLE_BYTES_MAX: Final = 64 * 2**20
"""Of the file, which has 3 MB; one that is longer can't be read."""
MODELS_MAX: Final = 256
"""How many models' entries are kept; a session uses a handful."""
ModelRow = Mapping[str, object]

_NO_FORMAT: Final = frozenset({"gpt-3.5-turbo-16k", "gpt-4"})
"""Models of OpenAI that take no ``response_format``."""
_SEARCH: Final = "search-api"
"""In the names of models of OpenAI that take no ``tool_choice``."""


@functools.lru_cache(MODELS_MAX)
def entry_of(provider: str, model_id: str) -> ModelRow:
    """Return the table's entry of a model, empty where it has none."""
    table = _table()
    for name in (f"{provider}/{model_id}", model_id):
        raw = table.get(name)
        if raw is None:
            continue
        entry = _decoded(raw)
        if entry.get("litellm_provider") == provider:
            return entry
    return {}


@functools.lru_cache(MODELS_MAX)
def facts_of(provider: str, model_id: str) -> ModelFacts:
    """Return what is known of a model of a vendor whose wire is spoken here."""
    entry = entry_of(provider, model_id)
    return ModelFacts(
        provider=provider,
        model_id=model_id,
        is_listed=bool(entry),
        context_window=_whole(entry.get("max_input_tokens")),
        answer_tokens=_whole(entry.get("max_output_tokens")),
        has_price="input_cost_per_token" in entry,
        takes_response_format=provider != "openai" or model_id not in _NO_FORMAT,
        keeps_to_schemas=entry.get("supports_response_schema") is True,
        decodes_by_schema=entry.get("supports_native_structured_output") is True,
        forces_calls=_SEARCH not in model_id and forces_calls(provider, model_id, entry),
        thinks_adaptively=entry.get("supports_adaptive_thinking") is True,
        media=media_of(provider, entry),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decoded(raw: msgspec.Raw) -> ModelRow:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.DecodeError:  # of a shape of its own, as one of its entries is
        return {}


@functools.cache
def _table() -> Mapping[str, msgspec.Raw]:
    """Return the table, each entry as it stands in the file: most are never looked at."""
    path = _place()
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(TABLE_BYTES_MAX), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError) as error:
        log.warning("models.unknown", problem=str(error))
        return {}


def matches(pattern: re.Pattern[bytes]) -> frozenset[str]:
    """Return what the group of a pattern matches in the entries of the table, as they stand."""
    found = (pattern.findall(bytes(raw)) for raw in _table().values())
    return frozenset(one.decode(errors="replace") for many in found for one in many)


def package() -> Path | None:
    """Return litellm's folder, None where it is not installed; nothing is imported."""
    found = importlib.util.find_spec("litellm")
    folders = found.submodule_search_locations if found is not None else None
    return next((Path(one) for one in folders or ()), None)


def _place() -> Path:
    return (package() or Path()) / TABLE


# --- prices ---------------------------------------------------------------------------------------

Priced: TypeAlias = Callable[[Mapping[str, object]], TokenUsage]
"""Returns a vendor's usage with its price."""
INPUT: Final = "input_cost_per_token"
OUTPUT: Final = "output_cost_per_token"
READ: Final = "cache_read_input_token_cost"
WRITTEN: Final = "cache_creation_input_token_cost"
WRITTEN_FOR_AN_HOUR: Final = "cache_creation_input_token_cost_above_1hr"
_REASONED: Final = "output_cost_per_reasoning_token"
_ABOVE: Final = re.compile(rf"^{INPUT}_above_(\d+)(k?)_tokens$")


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens by what they cost; ``prompt`` are all of a request's, cached ones too."""

    prompt: int
    completion: int
    read: int = 0
    written: int = 0
    written_for_an_hour: int = 0
    reasoned: int = 0


def usage_of(raw: Mapping[str, object], entry: ModelRow) -> TokenUsage:
    """Return the usage in a vendor's words, OpenAI's or Anthropic's, with its price."""
    usage = TokenUsage.from_raw(raw)
    counts = _counts_of(raw, usage)
    cost_usd = None if counts is None else cost_of(counts, entry)
    return msgspec.structs.replace(usage, cost_usd=cost_usd)


def cost_of(counts: Counts, entry: ModelRow) -> float | None:
    """Return what tokens cost in US dollars, None where the table has no price."""
    if INPUT not in entry:
        return None
    above = _above(entry, counts.prompt)

    def rate(name: str, otherwise: float) -> float:
        own = _number(entry.get(name))
        longer = _number(entry.get(f"{name}_above_{above}_tokens")) if above else None
        found = own if longer is None else longer
        return otherwise if found is None else found

    new, said = rate(INPUT, 0.0), rate(OUTPUT, 0.0)
    written = rate(WRITTEN, new)
    uncached = counts.prompt - counts.read - counts.written - counts.written_for_an_hour
    return (
        max(uncached, 0) * new
        + counts.read * rate(READ, new)
        + counts.written * written
        + counts.written_for_an_hour * rate(WRITTEN_FOR_AN_HOUR, written)
        + max(counts.completion - counts.reasoned, 0) * said
        + counts.reasoned * rate(_REASONED, said)
    )


def _above(entry: ModelRow, prompt_tokens: int) -> str:
    """Return the highest bound that a conversation exceeds, as the table writes it, or ""."""
    bounds = (found for name in entry if (found := _ABOVE.match(name)) is not None)
    exceeded = [
        (tokens, f"{one[1]}{one[2]}")
        for one in bounds
        if prompt_tokens > (tokens := int(one[1]) * (1000 if one[2] else 1))
    ]
    return max(exceeded)[1] if exceeded else ""


def _counts_of(raw: Mapping[str, object], usage: TokenUsage) -> Counts | None:
    """Return what is paid for; None where there are tokens of a kind that has prices of its own."""
    prompt, completion = (
        _part(raw, "prompt_tokens_details"),
        _part(raw, "completion_tokens_details"),
    )
    if _count(prompt, "audio_tokens") or _count(completion, "audio_tokens"):
        return None
    written = _count(raw, "cache_creation_input_tokens")
    for_an_hour = _count(_part(raw, "cache_creation"), "ephemeral_1h_input_tokens")
    return Counts(
        prompt=usage.prompt_tokens,
        completion=usage.completion_tokens,
        read=usage.cached_tokens or 0,
        written=max(written - for_an_hour, 0),
        written_for_an_hour=for_an_hour,
        reasoned=min(_count(completion, "reasoning_tokens"), usage.completion_tokens),
    )


def _part(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else {}


def _count(raw: Mapping[str, object], name: str) -> int:
    value = raw.get(name)
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
