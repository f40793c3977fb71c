"""What a JSON Schema may hold: the edge that each one passes, of a tool as of an answer.

A provider gets a schema as JSON, and the journal keeps it as MessagePack. What one of them has no
form for (nan, an infinity, an integer beyond 64 bits, half a surrogate pair, bytes, a set, a key
that is no text) or nests too deep for either is told here, where somebody can mend it, and not by a
request that fails again and again.
"""

from typing import Final

from cmdc_runtime.plain import TOO_DEEP, json_problem

_OUT: Final = "leave it out; a default can be None, which the code then replaces"
_OUT_OF_DEPTH: Final = 'name its parts under "definitions" or "$defs" and refer to them'


def values_problem(schema: object) -> str | None:
    """Return what of ``schema`` cannot be sent, with its place and the way out, or None."""
    problem = json_problem(schema)
    if problem is None:
        return None
    return f"{problem}; {_OUT_OF_DEPTH if problem == TOO_DEEP else _OUT}"
