"""What the command line prints and is given, as text: JSON, arguments, times.

Times may be any number.
"""

import json
import time
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from cmdc_runtime.lines import ESCAPED
from cmdc_runtime.ranges import TIME_MS_MAX

_JSON_ESCAPES: Final = {code: json.dumps(chr(code))[1:-1] for code in ESCAPED}
"""What JSON lets pass as it is; it stands in strings only, where the escape means the same."""


def json_line(value: Any) -> str:  # Any: whatever msgspec encodes
    """Return ``value`` as one line of JSON that no terminal takes for commands."""
    return msgspec.json.encode(value).decode().translate(_JSON_ESCAPES)


def typed(argument: str) -> str:
    """Return a command-line argument with bytes that are no UTF-8 replaced."""
    return argument.encode(errors="surrogateescape").decode(errors="replace")


def moment(at_ms: int) -> str:
    """Return a wall time as people read it: UTC, to the second; a wild one as the number it is."""
    if not 0 <= at_ms <= TIME_MS_MAX:
        return f"{at_ms} ms since 1970"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def clock(at_ms: int) -> str:
    """Return the local time of day of a wall time; nothing of a wild one."""
    is_time = 0 <= at_ms <= TIME_MS_MAX
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) if is_time else "--:--:--"
