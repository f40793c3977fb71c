"""Lines of JSON that MCP servers send and whose text is no UTF-8, as lines that decoders take."""

import json

from cmdc_runtime.plain import mended


def mended_line(line: bytes) -> bytes | None:
    """Return a line of JSON with U+FFFD for what is no character in it; None: it is no JSON.

    Half a surrogate pair, as an escape, is what decoders refuse a whole line for; so are bytes that
    are no UTF-8.
    """
    try:
        found = json.loads(line.decode(errors="replace"))
        text = json.dumps(found, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return mended(text).encode()
