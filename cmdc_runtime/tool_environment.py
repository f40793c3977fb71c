"""Which environment variables a tool's process gets: a list of what is let through.

Nobody can list every name that a key may have, so what stands here is what programs need to run:
paths, language, terminal, certificates and proxies. Nothing here leads to the daemon. The process
that runs calls and the ``shell`` tool take this one list; a session adds names to it by
``tool_env``. To let a variable through to everybody, add its name here.
"""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Final

from msgspec import Meta

VARIABLES_MAX: Final = 64
"""That one session may name beside the list."""

# What begins with CMDC_ leads to the daemon, or says whose a process is.
VariableName = Annotated[str, Meta(pattern=r"^(?!CMDC_)[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
VariableNames = Annotated[list[VariableName], Meta(max_length=VARIABLES_MAX)]

_PASSED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TZ"),
    *("LANG", "LANGUAGE", r"LC_\w+", "TERM", "COLORTERM", "NO_COLOR"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUTF8"),
    *("PYTHONIOENCODING", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_IS_PASSED: Final = re.compile("|".join(_PASSED))


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that every process of a tool gets."""
    return {name: text for name, text in environ.items() if _IS_PASSED.fullmatch(name)}


def chosen(environ: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the variables of ``environ`` that a session names; what is not set is left out."""
    return {name: environ[name] for name in names if name in environ}
