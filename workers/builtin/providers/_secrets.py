"""What no text of a provider's failure may show.

Credentials are known by their values (``cmdc_runtime.hiding``): those among the options of a
request and those that were in force before, and those in the environment. What looks like a key is
hidden, too: a provider may tell of one that nobody here has given. ``hidden`` is the one function
that texts of failures pass.
"""

import os
import re
from typing import Final

from cmdc_runtime import hiding
from cmdc_runtime.discretion import HIDDEN
from cmdc_runtime.extensions.provider import ModelRequest
from workers.builtin.providers._error_texts import TEXT_CHARS_MAX

_SECRET_SHAPE: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*./+=~-]{6,}"  # also when masked with stars
    r"|\bAIza[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{12,}"
    r"|\bBearer\s+[^\s'\",]+"
    r"|(?<=[?&]key=)[^&\s'\"]+",
    re.IGNORECASE,
)


def secrets_of(request: ModelRequest) -> frozenset[str]:
    """Return the values that no text may show, in every form that they may come in."""
    given = hiding.secrets_of_options((request.provider_opts, *request.former_opts))
    values = given | hiding.secrets_of_environment(os.environ)
    # The model's name is told everywhere; a key that is a part of it is a placeholder.
    return hiding.forms_of(one for one in values if one == hiding.ALL or one not in request.model)


def hidden(text: str, secrets: frozenset[str]) -> str:
    """Return ``text`` without ``secrets`` and without what looks like a key.

    It has ``TEXT_CHARS_MAX`` characters at most, and does not end in the beginning of a secret.
    """
    is_cut = len(text) > TEXT_CHARS_MAX
    return _SECRET_SHAPE.sub(HIDDEN, hiding.hidden(text[:TEXT_CHARS_MAX], secrets, is_cut=is_cut))


def is_safe(text: str, secrets: frozenset[str]) -> bool:
    """Say whether the whole of ``text`` may be shown as it is."""
    return len(text) <= TEXT_CHARS_MAX and hidden(text, secrets) == text
