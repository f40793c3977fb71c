"""litellm's table of models, read as a file: windows, prices and abilities, without litellm.

The file lies in litellm's package, which is found and not imported. It is read once, at the first
question. What it does not know is None or False, never a guess: a model that is not in it has no
price and no window. An entry that a program adds (``litellm.register_model``) is litellm's alone.
"""

import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from workers.builtin.providers._facts import ModelFacts

log = structlog.get_logger()

TABLE: Final = "model_prices_and_context_window_backup.json"
"""In litellm's package."""
TABLE_BYTES_MAX: Final = 64 * 2**20
"""Of the file, which has 3 MB; one that is longer can't be read."""
MODELS_MAX: Final = 256
"""How many models' entries are kept; a session uses a handful."""
Entry = Mapping[str, object]

_NO_FORMAT: Final = frozenset({"gpt-3.5-turbo-16k", "gpt-4"})
"""Models of OpenAI that take no ``response_format``."""


@functools.lru_cache(MODELS_MAX)
def entry_of(provider: str, model_id: str) -> Entry:
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
        thinks_adaptively=entry.get("supports_adaptive_thinking") is True,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decoded(raw: msgspec.Raw) -> Entry:
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


def _place() -> Path:
    found = importlib.util.find_spec("litellm")
    folders = found.submodule_search_locations if found is not None else None
    return next((Path(one) / TABLE for one in folders or ()), Path(TABLE))
