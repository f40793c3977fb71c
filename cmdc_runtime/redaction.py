"""Which texts of options are credentials, and how they are taken out of what is shown.

Every text among the options of a provider, of a plugin's headers and of ``user_data`` is a secret
unless it is known to be none: by the name of its option (``_PLAIN_OPTIONS``), of its header
(``_PLAIN_HEADERS``), or as one of the words that options choose from (``_PLAIN_VALUES``). So are
the users of addresses. To let an option be read, add its name to the table. A class whose fields
hold options has ``printed`` as its ``__repr__``: who prints it sees their names.

In a text they are known by their values, whatever they are called. Each is hidden in every form in
which somebody may repeat it; a text may also repeat it in another shape, or a part of it: see
``spans_alike``. What that costs is bounded by the size of the text and the number of the secrets.
"""

import base64
import binascii
import contextlib
import functools
import html
import itertools
import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import msgspec

# --- which texts are credentials ------------------------------------------------------------------

SECRET_CHARS_MIN: Final = 4
"""Of a value that is hidden, wherever it stands. Fewer characters are no credential, since anybody
guesses them, and to hide them would take syllables out of plain words."""
SECRET_CHARS_MAX: Final = 4_096
"""Of a value that is hidden; a longer one is a document, and no service has such a credential."""
DEPTH_MAX: Final = 64
"""What lies deeper in options is not shown."""
HIDDEN: Final = "[hidden]"

SECRET_NAME: Final = re.compile(
    r"key|token|secret|password|passwd|credential|authorization|cookie|signature"
    # Short ones are words of a name, not parts of "compass", "passes", "path" or "pattern".
    r"|(?<![a-z0-9])(?:pg|db|my|mysql|redis|smtp)?(?:pass|pw|passphrase)(?![a-z0-9])"
    # PWD by itself is the folder that a shell works in.
    r"|(?<=[a-z0-9][_.-])pwd(?![a-z0-9])"
    r"|(?<![a-z0-9])pat(?![a-z0-9])",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
"""A part of a command that is an option, with its value where that is not the next part."""
_COUNTS: Final = re.compile(
    r"tokens$|(?:max|num|count|limit)[_.-]|[_.-](?:count|limit)s?$", re.IGNORECASE
)
"""Options whose name has a secret's in it, and that are numbers of them."""
_OPTIONS: Final = re.compile(
    r"(?:^|_)(?:opts|user_data|headers|state)$|^(?:api_key|keys)$", re.IGNORECASE
)
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
    if isinstance(value, list | tuple) and path[-1:] == ("command",):
        value = type(value)(command_shown(value))
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


def command_shown(command: Sequence[Any]) -> Iterator[Any]:
    """Yield the parts of a command without the values of options that have a secret's name.

    A value stands behind ``=``, or as the next part where that is no option itself. Any: whatever
    somebody gave as a command.
    """
    hides_next = False
    for part in command:
        found = _OPTION.fullmatch(part) if isinstance(part, str) else None
        if found is None:
            yield HIDDEN if hides_next and isinstance(part, str) else part
            hides_next = False
            continue
        name, value = found.groups()
        is_secret = SECRET_NAME.search(name) is not None and _COUNTS.search(name) is None
        hides_next = is_secret and value is None
        yield f"{part[: found.start(2)]}{HIDDEN}" if is_secret and value else part


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
    """Yield the users in the addresses of a text, and what is asked there under a secret's name."""
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


# --- in another shape, or in part -----------------------------------------------------------------

ALIKE_CHARS_MIN: Final = 8
"""Of a secret that is known by its likeness."""
LONG_CHARS_MIN: Final = 20
"""Of a secret that is known by a part of it."""
RUN_CHARS: Final = 8
"""Of such a part."""
RUNS_MAX: Final = 200_000
"""Of all secrets together: beyond it, secrets are known as a whole only."""
_KINDS_MIN: Final = 4
"""Of different characters in a run: others are rulers and zeros."""
_ESCAPE: Final = re.compile(
    r"\\+u([0-9a-f]{4})|\\+x([0-9a-f]{2})|%(?:25)*([0-9a-f]{2})"
    r"|&(?:amp;)*#(?:x([0-9a-f]{1,6})|([0-9]{1,7}));|&(?:amp;)*([a-z]{2,8};)"
    r"|\\+",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"\s+|\\+[nrt]")
_SIGNS: Final = re.compile(r"[\W_]")
_PHRASE: Final = re.compile(r"\s|://|^[/~.]")
"""What phrases, addresses and paths have in them, and keys do not."""


def spans_alike(text: str, secrets: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield where ``text`` repeats any of ``secrets``, or a run of one.

    Both are compared as their characters alone: without white space and case, and without the
    escapes of URLs, HTML, JSON and Python, however often they were put on. A run of ``RUN_CHARS``
    characters of a long secret is hidden too, where the secret is no phrase and the run no word.
    Short secrets and words are left to who looks for them as they are. The cost is bounded by the
    sizes of both.
    """
    wholes, runs = _needles(secrets)
    if not wholes or not _may_have(text, wholes, runs):
        return
    chars, places = _bare(text)
    lowered = chars.lower()
    for whole in wholes:
        at = lowered.find(whole)
        while at >= 0:
            yield places[at][0], places[at + len(whole) - 1][1]
            at = lowered.find(whole, at + len(whole))
    for at in range(len(lowered) - RUN_CHARS + 1 if runs else 0):
        if lowered[at : at + RUN_CHARS] in runs:
            yield places[at][0], places[at + RUN_CHARS - 1][1]


def _may_have(text: str, wholes: frozenset[str], runs: frozenset[str]) -> bool:
    """Say whether a text has anything to be found; most have not, and cost less so."""
    if _ESCAPE.search(text):
        return True
    lowered = _as_bytes("".join(text.split())).lower()
    found = (lowered[at : at + RUN_CHARS] for at in range(len(lowered) - RUN_CHARS + 1))
    return any(whole in lowered for whole in wholes) or not runs.isdisjoint(found if runs else ())


@functools.lru_cache(maxsize=4)
def _needles(secrets: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return what is looked for: whole secrets, and runs of the long ones."""
    # A secret may have in it what reads as an escape, and a text may have that or what it means.
    bare = {_as_bytes("".join(secret.split())): secret for secret in secrets}
    bare |= {_bare(secret)[0]: secret for secret in secrets}
    alike = {chars: one for chars, one in bare.items() if _is_distinctive(one) and chars[3:]}
    runs = set[str]()
    for chars, secret in alike.items():
        is_long = LONG_CHARS_MIN <= len(chars) <= RUNS_MAX - len(runs)
        if is_long and _is_random(chars) and _PHRASE.search(unquote(secret)) is None:
            runs |= set(_runs(chars))
    return frozenset(chars.lower() for chars in alike), frozenset(runs)


def _is_distinctive(secret: str) -> bool:
    chars = "".join(secret.split())
    return len(chars) >= ALIKE_CHARS_MIN and not chars.isalpha()


def _is_random(chars: str) -> bool:
    return any(map(str.isdigit, chars)) and any(map(str.isalpha, chars))


def _runs(chars: str) -> Iterator[str]:
    for at in range(len(chars) - RUN_CHARS + 1):
        run = chars[at : at + RUN_CHARS]
        letters = _SIGNS.sub("", run)
        is_word = letters.isalpha() and (letters[1:].islower() or letters.isupper())
        if not is_word and len(set(run)) >= _KINDS_MIN:
            yield run.lower()


def _bare(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the bytes of a text as characters, and where each begins and ends in it."""
    # White space goes first: it may stand within an escape.
    kept, done = list[int](), 0
    for space in _SPACE.finditer(text):
        kept += range(done, space.start())
        done = space.end()
    kept += range(done, len(text))
    text = "".join([text[at] for at in kept])
    chars, places, done = list[str](), list[tuple[int, int]](), 0
    for found in (*_ESCAPE.finditer(text), None):
        upto = len(text) if found is None else found.start()
        pieces = [(_as_bytes(text[at]), at, at + 1) for at in range(done, upto)]
        if found is not None:
            pieces.append((_meant(found), found.start(), found.end()))
            done = found.end()
        for piece, start, end in pieces:
            if not (piece.isascii() and piece.isspace()):
                chars.append(piece)
                places += [(kept[start], kept[end - 1] + 1)] * len(piece)
    return "".join(chars), places


def _meant(found: re.Match[str]) -> str:
    """Return what an escape stands for, as ``_bare`` writes it."""
    long, short, byte, hexed, number, name = found.groups()
    if byte:
        return chr(int(byte, 16))
    code = int(long or short or hexed or "0", 16) or int(number or "0")
    meant = html.unescape(f"&{name}") if name else chr(code) if 0 < code <= sys.maxunicode else ""
    return _as_bytes("".join(meant.split()))


def _as_bytes(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode("latin-1")


# --- as they are ----------------------------------------------------------------------------------

SECRETS_MAX: Final = 512
"""Values that are hidden; where there are more, nothing of a text is shown."""
NAMED_MAX: Final = 256
"""Of these, values that are known by their names alone."""
STRINGS_MAX: Final = 10_000
"""Values of the options that are looked at; where there are more, nothing of a text is shown."""
LOOKED_CHARS_MAX: Final = 64 * 1024
"""Of a text that is looked at for all shapes of a secret; of a longer one both ends are, and what
stands between them for secrets as a whole."""
ALL: Final = ""
"""Stands among secrets for whatever a text says."""
WORDS_OF_OURS: Final = ("via", "litellm")
"""An option of a provider, and its value, that say nothing of anybody's: the name of a library."""
_BELOW: Final = ("opts", "headers")
"""How names end of what holds options of a provider or headers, wherever they are given."""


def secrets_of_options(given: object) -> set[str]:
    """Return the secrets among the options of a provider; ``ALL`` where they are too many."""
    found: dict[str, None] = {}
    strings = _strings(given)
    for path, text in itertools.islice(strings, STRINGS_MAX):
        if (*path, text) != WORDS_OF_OURS:
            found |= dict.fromkeys(secrets_in(path, text))
    is_all = len(found) > SECRETS_MAX or next(strings, None) is not None
    return {ALL} if is_all else {*found}


def secrets_by_name(given: object) -> set[str]:
    """Return the secrets among other options than a provider's.

    They are what has a secret's name, what lies in headers or in options that are for a provider
    after all, and what is secret in addresses. There are ``NAMED_MAX`` of them at most: such
    options may be large, and mean nothing.
    """
    found: dict[str, None] = {}
    for path, text in itertools.islice(_strings(given), STRINGS_MAX):
        is_named = bool(path) and SECRET_NAME.search(path[-1]) is not None
        is_secret = is_named or any(name.lower().endswith(_BELOW) for name in path)
        found |= dict.fromkeys(secrets_in(path, text) if is_secret else of_address(text))
    return {*itertools.islice(found, NAMED_MAX)}


def secrets_of_environment(environment: Mapping[str, str]) -> set[str]:
    """Return the values of variables with a secret's name, and what is secret in addresses."""
    found: set[str] = set()
    for name, text in environment.items():
        if SECRET_NAME.search(name):
            found |= {*values_of(text, name)}
        found |= {*of_address(text)}
    return found


def forms_of(values: Iterable[str]) -> frozenset[str]:
    """Return secrets in every form that they may come in, ``ALL`` where they are too many.

    Backslashes are left out of them: see ``hidden``.
    """
    kept = {*values}
    if ALL in kept or len(kept) > SECRETS_MAX:
        return frozenset({ALL})
    return frozenset(form for value in kept for form in _forms(value))


def hidden(text: str, secrets: frozenset[str], *, is_cut: bool = False) -> str:
    """Return ``text`` without ``secrets``, which ``forms_of`` has made.

    One that ``is_cut`` does not end in the beginning of a secret.
    """
    if ALL in secrets:
        return HIDDEN
    if not secrets:
        return text
    shown, done = list[str](), 0
    for start, end in sorted(_spans(text, secrets, is_cut=is_cut)):
        if start > done or not shown:
            shown += [text[done:start], HIDDEN]
        done = max(done, end)
    return "".join((*shown, text[done:]))


def _spans(text: str, secrets: frozenset[str], *, is_cut: bool) -> Iterator[tuple[int, int]]:
    """Yield where a text repeats a secret."""
    if len(text) <= LOOKED_CHARS_MAX:
        yield from _close_spans(text, secrets, is_cut=is_cut)
        return
    for secret in secrets:
        yield from _found(text, secret)
    half = LOOKED_CHARS_MAX // 2
    yield from _close_spans(text[:half], secrets, is_cut=False)
    behind = len(text) - half
    for start, end in _close_spans(text[behind:], secrets, is_cut=is_cut):
        yield behind + start, behind + end


def _close_spans(text: str, secrets: frozenset[str], *, is_cut: bool) -> Iterator[tuple[int, int]]:
    # Who quotes a text that is quoted already doubles the backslashes in it, so none counts.
    is_plain = "\\" not in text
    places = range(len(text)) if is_plain else [i for i, char in enumerate(text) if char != "\\"]
    bare = text.replace("\\", "")
    found = [span for secret in secrets for span in _found(bare, secret)]
    if is_cut:
        begun = max((_begun(bare, secret) for secret in secrets), default=0)
        found += [(len(bare) - begun, len(bare))] if begun else []
    yield from ((places[start], places[end - 1] + 1) for start, end in found)
    yield from spans_alike(text, secrets)


def _strings(given: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every text in ``given`` with the names of all that it lies in; others as "".

    Text that is JSON itself, as the file of a service account, is looked into as well.
    """
    left: deque[tuple[tuple[str, ...], object]] = deque([((), given)])
    while left:
        path, value = left.popleft()
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, Mapping):
            left += (((*path[-2:], str(key)), inner) for key, inner in value.items())
        elif isinstance(value, list | tuple | set | frozenset):
            # Headers may come as pairs, too: the first of a pair is the name of the second.
            is_pair = len(value) == len(("name", "value")) and is_header(path)
            name = [str(next(iter(value)))] if is_pair else []
            left += (((*path[-2:], *name), inner) for inner in value)
        elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                left.append((path, msgspec.json.decode(value.encode(errors="replace"))))
        yield path, value if isinstance(value, str) else ""


def _forms(value: str) -> Iterable[str]:
    """Return a value as a server may write it."""
    raw = value.encode(errors="replace")
    encoded = base64.b64encode(raw).decode().rstrip("=")
    forms = {
        value,
        quote(value, safe="", errors="replace"),
        quote(value, errors="replace"),
        quote_plus(value, errors="replace"),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        html.escape(value),
        encoded,
        encoded.replace("+", "-").replace("/", "_"),
    }
    if len(value) >= ALIKE_CHARS_MIN:
        forms |= {raw.hex(), *_cores(raw)}
    return {form.replace("\\", "") for form in forms}


def _cores(raw: bytes) -> Iterator[str]:
    """Yield what base64 makes of ``raw`` behind any other bytes, such as ``Bearer `` or a user."""
    for before in (1, 2):
        encoded = base64.b64encode(bytes(before) + raw).decode()
        core = encoded[before + 1 : (before + len(raw)) * 8 // 6]
        yield from (core, core.replace("+", "-").replace("/", "_"))


def _found(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Yield where ``secret`` begins and ends in ``text``."""
    at = text.find(secret) if secret else -1
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + len(secret))


def _begun(text: str, secret: str) -> int:
    """Return how many characters at the end of ``text`` are the beginning of ``secret``."""
    most = min(len(secret) - 1, len(text))
    sizes = range(most, 0, -1)
    return next((size for size in sizes if text.endswith(secret[:size])), 0)
