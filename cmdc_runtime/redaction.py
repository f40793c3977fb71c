"""Which texts of options are credentials: the one rule, for errors and for what is printed.

Every text among the options of a provider, of a plugin's headers and of ``user_data`` is a secret
unless it is known to be none: by the name of its option (``_PLAIN_OPTIONS``), of its header
(``_PLAIN_HEADERS``), or as one of the words that options choose from (``_PLAIN_VALUES``). So are
the users of addresses. To let an option be read, add its name to the table. A class whose fields
hold options has ``printed`` as its ``__repr__``: who prints it sees their names.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

import msgspec

SECRET_CHARS_MIN: Final = 4
"""Of a value that is hidden, wherever it stands. Fewer characters are no credential, since anybody
guesses them, and to hide them would take syllables out of plain words."""
SECRET_CHARS_MAX: Final = 4_096
"""Of a value that is hidden; a longer one is a document, and no service has such a credential."""
DEPTH_MAX: Final = 64
"""What lies deeper in options is not shown."""
HIDDEN: Final = "[hidden]"

SECRET_NAME: Final = re.compile(
    r"key|token|secret|password|passwd|credential|authorization|cookie|signature", re.IGNORECASE
)
_OPTIONS: Final = re.compile(r"(?:^|_)(?:opts|user_data|headers|state)$", re.IGNORECASE)
"""Fields and keys below which every text is an option's."""
_HEADERS: Final = re.compile(r"headers$", re.IGNORECASE)
_PLAIN_HEADERS: Final = frozenset(
    (
        *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control"),
        *("connection", "content-encoding", "content-language", "content-length", "content-type"),
        *("anthropic-beta", "anthropic-version", "openai-beta", "host", "origin", "referer"),
        *("http-referer", "x-title", "user-agent"),
    )
)
"""Headers that say nothing which anybody would hide."""
_PLAIN_VALUES: Final = frozenset(
    (
        *("application/json", "text/event-stream", "text/plain", "keep-alive", "no-cache"),
        *("none", "null", "undefined", "empty", "true", "false", "auto", "default", "required"),
        *("enabled", "disabled", "adaptive", "minimal", "medium", "high", "xhigh", "ephemeral"),
        *("text", "json", "json_object", "json_schema", "object", "string", "number", "integer"),
        *("boolean", "array", "function", "flex", "priority", "standard", "verbose", "concise"),
    )
)
"""Words that options choose from, and what stands where there is no key."""
_PLAIN_OPTIONS: Final = frozenset(
    (
        *("model", "base_model", "custom_llm_provider", "api_version", "api_type", "timeout"),
        *("api_base", "base_url"),  # but for the user and the query in them
        *("reasoning_effort", "effort", "verbosity", "service_tier", "tool_choice", "stop"),
        *("stop_sequences", "modalities", "response_format", "json_schema", "type", "role"),
        *("region_name", "aws_region_name", "vertex_location", "location", "truncation"),
        *("drop_params", "additional_drop_params", "allowed_openai_params", "summary", "format"),
        *("provider", "order", "only", "ignore", "sort", "quantizations", "transforms"),
        *("prompt_cache_retention", "ttl", "search_context_size", "voice", "detail"),
    )
)
"""Options that say nothing which anybody would hide, wherever they lie."""
_SCHEME: Final = re.compile(r"^(?:Bearer|Basic|Token|ApiKey|Digest)\s+(.+)$", re.IGNORECASE)
_USER: Final = re.compile(r"://([^/?#\s@]{1,4096})@")
_QUERY: Final = re.compile(r"://[^\s?#]{0,4096}\?([^\s#]{1,4096})")
_NO_USERS: Final = frozenset((HIDDEN, "USER:PASSWORD", "PASSWORD"))
"""What stands for the user of an address in our own errors."""
_USER_SHOWN: Final = re.compile(r"(://|^//)(?!USER:PASSWORD@)[^\s@]{0,4096}@(?:\S{0,4096}@)?")
"""All up to the last @ of an address: a password may have the signs that end a host."""
_FIELD_SHOWN: Final = re.compile(
    rf"([?&;#](?:[^\s=&;?#]{{0,64}}(?:{SECRET_NAME.pattern})[^\s=&;?#]{{0,64}}|sig|auth|sas)=)"
    r"[^\s&;#]+",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(
    r"(?:^|_)(?:url|uri|dsn|endpoint|address|api_base|proxy)$", re.IGNORECASE
)
"""Options that are addresses: of these nothing before an @ is shown, and no query."""
_BARE_USER: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:/*)?.*@", re.DOTALL)
_BARE_QUERY: Final = re.compile(r"[?#].+", re.DOTALL)
_MAY_HIDE: Final = re.compile(r"//|[?&;#]")
"""What a text has that an address is in."""


def printed_fields(held: msgspec.Struct) -> list[tuple[str, Any]]:  # Any: a field's own
    """Return each field with what may be printed of it: the ``__rich_repr__`` of what has options.

    rich prints it so, and ``printed``, its ``__repr__``, makes a text of it.
    """
    return [(name, shown(getattr(held, name), (name,))) for name in held.__struct_fields__]


def printed(held: msgspec.Struct) -> str:
    """Return the class and what may be printed of its fields."""
    fields = ", ".join(f"{name}={value!r}" for name, value in printed_fields(held))
    return f"{type(held).__name__}({fields})"


def shown(value: Any, path: tuple[str, ...] = (), depth: int = 0) -> Any:
    """Return ``value`` as it may be printed, where ``path`` names what it lies in.

    Any: whatever somebody gave as an option.
    """
    if depth > DEPTH_MAX:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: shown(one, (*path, str(key)), depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        kind = next(kind for kind in (list, tuple, set, frozenset) if isinstance(value, kind))
        return kind(shown(one, _path_in(value, path), depth + 1) for one in value)
    if isinstance(value, str):
        return text_shown(value, path)
    is_plain = value is None or isinstance(value, bool | int | float | type)
    return value if is_plain or not is_option(path) else HIDDEN


def is_option(path: tuple[str, ...]) -> bool:
    """Say whether what lies at ``path`` is an option, which may be a secret."""
    is_named = len(path) > 1 and SECRET_NAME.search(path[-1]) is not None
    return is_named or any(map(_OPTIONS.search, path))


def text_shown(text: str, path: tuple[str, ...] = ()) -> str:
    """Return a text as it may be printed: hidden where it is a secret, its addresses without one.

    ``path`` names what it lies in.
    """
    name = path[-1].lower() if path else ""
    if is_option(path) and not is_plain_name(path) and text and not _is_plain_value(text, name):
        return HIDDEN
    if _ADDRESS.search(name):
        text = _BARE_QUERY.sub(f"?{HIDDEN}", _BARE_USER.sub(rf"\1{HIDDEN}@", text))
    if not _MAY_HIDE.search(text):
        return text
    text = _USER_SHOWN.sub(rf"\1{HIDDEN}@", text)
    for secret in sorted(set(of_address(text)) - _NO_USERS, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _FIELD_SHOWN.sub(rf"\1{HIDDEN}", text)


def is_header(path: tuple[str, ...]) -> bool:
    """Say whether what lies at ``path`` is a header."""
    return any(map(_HEADERS.search, path))


def _path_in(value: Any, path: tuple[str, ...]) -> tuple[str, ...]:  # Any: as of ``shown``
    """Return what the parts of a list lie in; headers may come as pairs of name and value."""
    is_pair = len(value) == len(("name", "value")) and is_header(path)
    return (*path, str(next(iter(value)))) if is_pair else path


def is_plain_name(path: tuple[str, ...]) -> bool:
    """Say whether the name of an option or header says that it holds no secret."""
    plain = _PLAIN_HEADERS if is_header(path) else _PLAIN_OPTIONS
    return bool(path) and path[-1].lower() in plain


def _is_plain_value(value: str, name: str) -> bool:
    return value.lower() in _PLAIN_VALUES or value.lower() == name.lower()


def secrets_in(path: tuple[str, ...], text: str) -> Iterator[str]:
    """Yield what of a text of the options is a secret; ``path`` is what it lies in."""
    yield from of_address(text)
    if not is_plain_name(path):
        yield from values_of(text, path[-1].lower() if path else "")


def values_of(text: str, name: str) -> Iterator[str]:
    """Yield the values that a text of the option or variable ``name`` gives."""
    found = _SCHEME.match(text)
    for value in (text, text.strip(), *_credentials(found[1] if found else "")):
        is_secret = SECRET_CHARS_MIN <= len(value) <= SECRET_CHARS_MAX
        if is_secret and not _is_plain_value(value, name):
            yield value


def of_address(text: str) -> Iterator[str]:
    """Yield the users in the addresses of a text, and what is asked of them by a telling name."""
    if "://" not in text:
        return
    for found in _USER.finditer(text):
        yield from _user_parts(found[1])
    fields = (field for found in _QUERY.finditer(text) for field in found[1].split("&"))
    for name, _, value in (field.partition("=") for field in fields):
        if SECRET_NAME.search(name):
            for form in (value, unquote(value), unquote_plus(value)):
                yield from values_of(form, name)


def _credentials(value: str) -> tuple[str, ...]:
    """Return what follows the scheme of an Authorization, and what it says in base64."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return (value,)
    return (value, *_user_parts(decoded))


def _user_parts(user: str) -> tuple[str, ...]:
    """Return ``name:password`` and the password, also without their percent signs."""
    _, _, password = user.partition(":")
    parts = (user, password, unquote(user), unquote(password))
    return tuple(part for part in parts if len(part) >= SECRET_CHARS_MIN)
