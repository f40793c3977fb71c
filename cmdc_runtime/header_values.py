"""What a request to a model carries in its headers, checked before anything is sent.

A key with the line break of its file, or with a sign that no header takes, ends in a failure of the
connection that tells nothing of it. ``header_problem`` tells where it lies, and never shows it.
"""

import re
from collections.abc import Mapping
from typing import Final

KEYS: Final = ("api_key", "azure_ad_token", "organization")
"""Options that become the value of a header."""
HEADERS: Final = ("extra_headers", "headers", "default_headers")
"""Options that are headers: names and values."""
_UNSENT: Final = re.compile(r"[^\t\x20-\x7e]")
"""What no client puts into a header: control characters, and what is not ASCII."""
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")


def header_problem(options: Mapping[str, object]) -> str | None:
    """Return what among a model's ``options`` can't be sent in a header, by its place, or None."""
    for name in KEYS:
        if options.get(name) is not None and (problem := value_problem(options[name])):
            return f"[{name!r}]: {problem}"
    for name in HEADERS:
        headers = options.get(name)
        if headers is None:
            continue
        if not isinstance(headers, Mapping):
            return f"[{name!r}]: expected a dict of names and values, got {type(headers).__name__}"
        for field, value in headers.items():
            if not isinstance(field, str) or _NAME.fullmatch(field) is None:
                return f"[{name!r}]: one of its names is no name of a header; give letters and -"
            if value is not None and (problem := value_problem(value)):
                return f"[{name!r}][{field!r}]: {problem}"
    return None


def value_problem(value: object) -> str | None:
    """Return why ``value`` can't be sent in a header, without a part of it, or None."""
    if not isinstance(value, str):
        return f"expected a str, got {type(value).__name__}"
    if value != value.strip():
        return "it begins or ends with whitespace, perhaps the line break of a file; strip() it"
    found = _UNSENT.search(value)
    if found is None:
        return None
    place = f"its character {found.start() + 1:,} of {len(value):,}"
    return f"{place} is none that a header may have, printable ASCII; is it copied whole?"
