"""Which vendors there are, to tell a mistyped one from one that is only unknown here.

Those whose wire is spoken here are known at once. Of all others litellm's files say it, read as
text: its table of models, and the enumeration of its vendors. litellm itself is never imported for
that, and a session whose vendor is spoken here reads neither file. A name that is like none of them
is the vendor's affair: a program may have added it.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from cmdc_runtime.plain import nearest, short
from cmdc_runtime.provider_options import model_parts
from workers.builtin.wires import table
from workers.builtin.wires.routes import VENDORS

LIKENESS: Final = 0.8
"""Of a name to a known one from which on it is taken for a mistyped one."""
SOURCE: Final = ("types", "utils.py")
"""In litellm's package: where ``LlmProviders`` stands."""
SOURCE_BYTES_MAX: Final = 4 * 2**20
OWN_VENDOR: Final = "custom_llm_provider"
"""The option that says how a request goes, whatever the model is called."""
_CLASS: Final = re.compile(
    r"^class LlmProviders\(str, Enum\):\n((?:(?:[ \t][^\n]*)?\n)*)", re.MULTILINE
)
_MEMBER: Final = re.compile(r'^[ \t]+\w+ = "([^"\n]{1,64})"', re.MULTILINE)
_LISTED: Final = re.compile(rb'"litellm_provider":\s*"([^"]{1,64})"')


def vendor_problem(model: str, provider_opts: Mapping[str, Any]) -> str | None:
    """Return why the vendor in a model's name is a mistyped one, with the name that may be meant.

    None where it is known, is like none that is, or nobody here knows them (Any: litellm's own).
    """
    vendor, model_id = model_parts(model)
    if vendor in VENDORS or OWN_VENDOR in provider_opts or vendor in _enumerated():
        return None
    known = known_vendors()
    near = None if vendor in known else nearest(vendor.lower(), sorted(known), LIKENESS)
    if near is None:
        return None
    return f"there is no provider {short(vendor)}; did you mean {near}:{model_id}?"


def known_vendors() -> frozenset[str]:
    """Return the names of all vendors, none where litellm's files don't say them."""
    named, listed = _enumerated(), table.matches(_LISTED)
    return named | listed | VENDORS.keys() if named and listed else frozenset()


@functools.cache
def _enumerated() -> frozenset[str]:
    """Return the members of litellm's enumeration, which is the smaller file."""
    folder = table.package()
    if folder is None:
        return frozenset()
    try:
        with folder.joinpath(*SOURCE).open("rb") as file:
            text = file.read(SOURCE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return frozenset()
    found = _CLASS.search(text)
    return frozenset[str]() if found is None else frozenset(_MEMBER.findall(found[1]))
