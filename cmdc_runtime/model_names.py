"""What a model may be called: the one rule, wherever one is chosen.

Options, commands, subagents, branches, actions and options of plugins ask ``model_problem`` before
a name is kept: it goes into records, events, prices and the address of a request. Whether there is
such a model only its provider knows.
"""

import re
from typing import Final

from cmdc_runtime.plain import is_a, own, short, text_problem

MODEL_CHARS_MAX: Final = 512
"""Of a model's name with its provider's; the longest in use, ARNs of Bedrock, have about 200."""
EXPECTED: Final = "expected 'provider:model_id'"
"""What every problem begins with."""
_PROVIDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def model_parts(model: str) -> tuple[str, str]:
    """Return the provider and the id of a model; one that is missing is empty."""
    provider, _mark, name = model.replace(":", "/", 1).partition("/")
    return provider, name


def model_problem(model: object) -> str | None:
    """Return why no model can be called so, with its value, or None where one can.

    It is one line of at most ``MODEL_CHARS_MAX`` printable characters: a ``provider:model_id`` or a
    ``provider/model_id``.
    """
    why = _why(model)
    return None if why is None else f"{EXPECTED}{why}, got {short(model)}"


def check_models(**models: object) -> None:
    """Check the models that are given among the options of a plugin; None is none.

    Raises:
        ValueError: there can be no such model; it names the option.
    """
    for option, model in models.items():
        if model is not None and (problem := model_problem(model)) is not None:
            raise ValueError(f"{option}: {problem}")


def _why(model: object) -> str | None:
    """Return what of ``model`` is wrong, None where nothing is, and "" where it names no model."""
    if not is_a(model, str):
        return ""
    held: str = own(model)
    if held != held.strip():
        return ": it begins or ends with whitespace, perhaps the line break of a file"
    if (problem := text_problem(held, chars_max=MODEL_CHARS_MAX, one_line=True)) is not None:
        return f": {problem}"
    if not held.isprintable():
        return ": it has a character that is not printable"
    provider, name = model_parts(held)
    is_named = bool(name) and _PROVIDER.fullmatch(provider) is not None
    return None if is_named and name[0] not in "/: " else ""
