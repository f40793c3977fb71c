"""Who is asked without litellm: by the vendor in the model's name, options and environment.

A vendor is a row of ``VENDORS``: its wire, address and variables. ``route_of`` says how a request
goes, or that it is litellm's: of any other vendor, with ``via``, or with an option that nobody here
knows. What litellm does about a model's own ways (a parameter under another name, a request that
needs another endpoint) is litellm's affair, so a request that needs it has no route either.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from cmdc_runtime.extensions.provider import ModelRequest, ToolSpec
from cmdc_runtime.messages import Message
from cmdc_runtime.provider_options import HEADERS, OURS, VIA
from workers.builtin.providers._facts import ModelFacts, litellm_model
from workers.builtin.providers._formats import Way, rooted, way_of
from workers.builtin.wires.claude_schemas import sent_schema
from workers.builtin.wires.table import ModelRow, entry_of, facts_of

# --- vendors --------------------------------------------------------------------------------------


class WireFormat(Enum):
    """How requests and replies are written."""

    OPENAI = auto()
    """Chat completions."""
    ANTHROPIC = auto()
    """Messages."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor whose wire is spoken here; variables count in their order."""

    wire: WireFormat
    address: str
    """Empty where a vendor has none of its own: whoever runs its server gives it."""
    keys: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    needs_key: bool = True
    body: Mapping[str, object] | None = None
    """What every request to it has besides."""
    refuses: frozenset[str] = frozenset()
    """What of a request is litellm's to put in the vendor's way."""


VENDORS: Final[Mapping[str, Vendor]] = {
    "openai": Vendor(
        wire=WireFormat.OPENAI,
        address="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        addresses=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        organizations=("OPENAI_ORGANIZATION", "OPENAI_ORG_ID"),
    ),
    "anthropic": Vendor(
        wire=WireFormat.ANTHROPIC,
        address="https://api.anthropic.com",
        keys=("ANTHROPIC_API_KEY",),
        addresses=("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    ),
    "groq": Vendor(
        wire=WireFormat.OPENAI,
        address="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        addresses=("GROQ_API_BASE",),
        refuses=frozenset(
            ("user", "max_completion_tokens", "reasoning_effort", "response_format", "store")
        ),
    ),
    "hosted_vllm": Vendor(
        wire=WireFormat.OPENAI,
        address="",
        keys=("HOSTED_VLLM_API_KEY",),
        addresses=("HOSTED_VLLM_API_BASE",),
        needs_key=False,
        refuses=frozenset({"user"}),
    ),
    "llamafile": Vendor(
        wire=WireFormat.OPENAI,
        address="http://127.0.0.1:8080/v1",
        keys=("LLAMAFILE_API_KEY",),
        addresses=("LLAMAFILE_API_BASE",),
        needs_key=False,
        refuses=frozenset({"user", "reasoning_effort"}),
    ),
    "lm_studio": Vendor(
        wire=WireFormat.OPENAI,
        address="",
        keys=("LM_STUDIO_API_KEY",),
        addresses=("LM_STUDIO_API_BASE",),
        needs_key=False,
        refuses=frozenset({"user", "reasoning_effort"}),
    ),
    "openrouter": Vendor(
        wire=WireFormat.OPENAI,
        address="https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY", "OR_API_KEY"),
        addresses=("OPENROUTER_API_BASE",),
        body={"usage": {"include": True}},
        refuses=frozenset({"user"}),
    ),
}

# --- what of a request is known -------------------------------------------------------------------

OF_THE_WAY: Final = frozenset(
    ("api_key", "api_base", "base_url", "timeout", "extra_headers", "headers")
)
"""Options that say where and how to ask, on every wire."""
_SAMPLING: Final = frozenset(("temperature", "top_p"))
_OPENAI: Final = frozenset(
    (
        *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "stop", "user"),
        *("max_tokens", "max_completion_tokens", "parallel_tool_calls", "reasoning_effort"),
        *("service_tier", "store", "prompt_cache_key", "safety_identifier"),
        *("organization", "extra_body", *_SAMPLING),
    )
)
_OF_REASONING: Final = frozenset(
    (
        *("max_tokens", "max_completion_tokens", "seed", "user", "service_tier", "store"),
        *("prompt_cache_key", "safety_identifier", "reasoning_effort"),
        *("organization", "extra_body"),
    )
)
"""What OpenAI's reasoning models take as it is."""
_ANTHROPIC: Final = frozenset(
    (
        *("max_tokens", "max_completion_tokens", "stop", "thinking", "parallel_tool_calls"),
        *("top_k", *_SAMPLING),
    )
)
_FOREIGN: Final = (
    "ANTHROPIC_AUTH_TOKEN",
    "USE_LITELLM_PROXY",
    "SSL_VERIFY",
    "SSL_CERTIFICATE",
    "SSL_SECURITY_LEVEL",
)
"""Variables that litellm reads, and that change where or how it asks."""
_REASONING_NAME: Final = re.compile(r"gpt-[56](?!-chat)")
_OLD_REASONING: Final = re.compile(r"^o\d")
_TOOLS_ELSEWHERE: Final = re.compile(r"^gpt-(?:5\.(?:[4-9]|\d\d)|[6-9])")
"""Models of OpenAI that take tools while they reason at another endpoint only."""
_CLAUDE_TOOL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OAUTH: Final = "sk-ant-oat"
"""How keys begin that are sent in another way."""
_CHAT: Final = "chat"
_COMBINED: Final = frozenset(("anyOf", "oneOf", "allOf", "not", "enum", "$ref"))
"""What no vendor takes at the root of a tool's parameters."""
_PATTERN: Final = "pattern"
_NAMES: Final = "patternProperties"
"""Of a schema: a pattern for a text, and patterns for the names of properties."""


@dataclass(frozen=True, slots=True)
class Route:
    """How one request goes: ``address`` is empty where nobody has given one."""

    vendor: Vendor
    provider: str
    model_id: str
    address: str
    key: str | None
    facts: ModelFacts
    entry: ModelRow
    reasons: bool
    """A model of OpenAI's that bounds answers by another name."""

    @property
    def takes_system(self) -> bool:
        """Whether the model knows a system prompt; else the user says it."""
        is_old = _OLD_REASONING.match(self.model_id) is not None
        return not is_old or self.entry.get("supports_system_messages") is True

    @property
    def organization(self) -> str | None:
        """The organization that pays, where the environment names one."""
        return next(_held(self.vendor.organizations), None)


def vendor_of(model: str) -> tuple[str, str, Vendor | None]:
    """Return the vendor's name, the model's id, and the vendor where its wire is spoken here."""
    provider, _, model_id = litellm_model(model).partition("/")
    return provider, model_id, VENDORS.get(provider) if model_id else None


def route_of(request: ModelRequest) -> Route | None:
    """Return how a request goes, or None where it is litellm's."""
    provider, model_id, vendor = vendor_of(request.model)
    given = request.provider_opts
    options = {name: one for name, one in given.items() if one is not None and name not in OURS}
    if vendor is None or VIA in options or any(os.environ.get(one) for one in _FOREIGN):
        return None
    facts = facts_of(provider, model_id)
    route = Route(
        vendor=vendor,
        provider=provider,
        model_id=model_id,
        address=_address(vendor, options),
        key=_key(vendor, options),
        facts=facts,
        entry=entry_of(provider, model_id),
        reasons=provider == "openai" and _reasons(facts),
    )
    fits = _fits_anthropic if vendor.wire is WireFormat.ANTHROPIC else _fits_openai
    return route if _can_go(route, request) and fits(route, request, options) else None


def missing_address(request: ModelRequest) -> str | None:
    """Return what is said where nobody has given the address of a server that users run."""
    _provider, _model_id, vendor = vendor_of(request.model)
    options = request.provider_opts
    if vendor is None or options.get(VIA) is not None or _address(vendor, options):
        return None
    named = " or ".join(vendor.addresses)
    return (
        f"there is no address for {request.model}: give api_base in provider_opts, or set {named}"
        " in the daemon's environment"
    )


def _reasons(facts: ModelFacts) -> bool:
    is_old = facts.is_listed and _OLD_REASONING.match(facts.model_id) is not None
    return is_old or _REASONING_NAME.search(facts.model_id) is not None


def _can_go(route: Route, request: ModelRequest) -> bool:
    is_chat = route.entry.get("mode", _CHAT) == _CHAT
    return is_chat and bool(route.address) and all(map(_is_plain, request.tools))


def _is_plain(tool: ToolSpec) -> bool:
    """Say whether the parameters of a tool are what every vendor takes as it is."""
    parameters = tool.parameters
    if parameters.get("type") != "object" or not _COMBINED.isdisjoint(parameters):
        return False
    is_free = b'"pattern' not in msgspec.json.encode(parameters)
    return is_free or all(map(_is_regex, _patterns_of(parameters)))


def _patterns_of(schema: object) -> Iterator[str]:
    """Yield what may be a pattern anywhere in a schema, whatever it is about there."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            if isinstance(pattern := part.get(_PATTERN), str):
                yield pattern
            if isinstance(names := part.get(_NAMES), Mapping):
                yield from map(str, names)
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part


@functools.lru_cache(256)
def _is_regex(pattern: str) -> bool:
    """Say whether ``re`` knows a pattern; any other is refused by vendors, and litellm's affair."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _address(vendor: Vendor, options: Mapping[str, object]) -> str:
    given = options.get("api_base") or options.get("base_url")
    held = next(_held(vendor.addresses), vendor.address)
    return (given if isinstance(given, str) else held).rstrip("/")


def _key(vendor: Vendor, options: Mapping[str, object]) -> str | None:
    given = options.get("api_key")
    return given if isinstance(given, str) and given else next(_held(vendor.keys), None)


def _held(variables: Iterable[str]) -> Iterator[str]:
    return (held for one in variables if (held := os.environ.get(one)))


def _fits_openai(route: Route, request: ModelRequest, options: Mapping[str, object]) -> bool:
    known = _OF_REASONING if route.reasons else _OPENAI
    unknown = route.vendor.refuses if route.provider != "openai" else _refuses(route.facts)
    if not options.keys() <= (known - unknown) | OF_THE_WAY or "?" in route.address:
        return False
    if request.response_format is not None and "response_format" in route.vendor.refuses:
        return False
    return not route.reasons or _fits_reasoning(route, request, options)


def _refuses(facts: ModelFacts) -> frozenset[str]:
    """Return what of the known options litellm decides about, by its table, for OpenAI's models."""
    if facts.is_listed:
        return frozenset() if _reasons(facts) else frozenset({"reasoning_effort"})
    return frozenset({"user"})


def _fits_reasoning(route: Route, request: ModelRequest, options: Mapping[str, object]) -> bool:
    if "search" in route.model_id:
        return False
    if _OLD_REASONING.match(route.model_id):
        return not request.tools or route.entry.get("supports_function_calling") is True
    has_effort = "reasoning_effort" in options or "reasoning_effort" in _body_of(options)
    is_elsewhere = has_effort or _TOOLS_ELSEWHERE.match(route.model_id) is not None
    return not (request.tools and is_elsewhere)


def _body_of(options: Mapping[str, object]) -> Mapping[str, object]:
    body = options.get("extra_body")
    return body if isinstance(body, Mapping) else {}


def _fits_anthropic(route: Route, request: ModelRequest, options: Mapping[str, object]) -> bool:
    if not options.keys() <= _ANTHROPIC | OF_THE_WAY or not _asks_plainly(route, request, options):
        return False
    samples = not options.keys().isdisjoint(_SAMPLING | {"top_k"})
    takes_samples = (
        route.facts.is_listed and route.entry.get("supports_sampling_params") is not False
    )
    if (samples and not takes_samples) or (route.key or "").startswith(_OAUTH):
        return False
    names = [tool.name for tool in request.tools]
    names += [call.name for one in request.messages for call in one.tool_calls]
    is_named = all(map(_CLAUDE_TOOL.fullmatch, names))
    is_plain = is_named and _thinks_as_asked(route, options.get("thinking"))
    return is_plain and _is_a_conversation(request.messages)


def _asks_plainly(route: Route, request: ModelRequest, options: Mapping[str, object]) -> bool:
    """Say whether a schema for the reply, if there is one, is sent as it is, or in words."""
    schema = request.response_format
    if schema is None or way_of(request, route.facts) is not Way.PARAMETER:
        return True
    given = (options.get(name) for name in HEADERS)
    names = {str(name).lower() for one in given if isinstance(one, Mapping) for name in one}
    # The schema needs a word in a header, which would have to be added to what is given.
    return "anthropic-beta" not in names and sent_schema(rooted(schema)) is not None


def _is_a_conversation(messages: Sequence[Message]) -> bool:
    """Say whether the system speaks at the beginning alone, and the model not at the end."""
    roles = [
        one.role for one in messages if one.role != "assistant" or one.content or one.tool_calls
    ]
    at = next((at for at, role in enumerate(roles) if role != "system"), len(roles))
    return "system" not in roles[at:] and roles[-1:] != ["assistant"] and at < len(roles)


def _thinks_as_asked(route: Route, thinking: object) -> bool:
    """Say whether the model takes ``thinking`` in the form that it was given in."""
    if thinking is None:
        return True
    if not isinstance(thinking, Mapping) or not route.facts.is_listed:
        return False
    wanted = "adaptive" if route.facts.thinks_adaptively else "enabled"
    return thinking.get("type") == wanted
