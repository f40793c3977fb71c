"""What a request to a model can't have, found before it is sent: names, options, headers.

``model_problem`` is the one rule for a name, wherever a model is chosen: it goes into records,
events, prices and the address of a request. Whether there is such a model only its provider knows.

``options_problem`` is the one check of options: of clients where they are given, of the provider
where a request is made, since a plugin or an older session may bring them too.

What a request carries in its headers is checked, too. A key with the line break of its file, or
with a sign that no header takes, ends in a failure of the connection that says nothing of it.
``header_problem`` says where it lies, and never shows it.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

from cmdc_runtime.plain import is_a, own, problem_of, short, text_problem

# --- names of models ------------------------------------------------------------------------------

MODEL_CHARS_MAX: Final = 512
"""Of a model's name with its provider's; the longest in use, ARNs of Bedrock, have about 200."""
EXPECTED: Final = "expected 'provider:model_id'"
"""What every problem begins with."""
PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


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
    is_named = bool(name) and PROVIDER_NAME.fullmatch(provider) is not None
    return None if is_named and name[0] not in "/: " else ""


# --- headers --------------------------------------------------------------------------------------

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


# --- options --------------------------------------------------------------------------------------

_TIMES: Final = ("timeout", "request_timeout", "stream_timeout")
"""Options that are seconds."""
OURS: Final[Mapping[str, str]] = {
    "model": "give the model as model",
    "messages": "give a history as messages, or a prompt",
    "tools": "give tools beside provider_opts",
    "tool_choice": "the model chooses among the session's tools; say in system_prompt when to call",
    "functions": "give tools beside provider_opts",
    "function_call": "the model chooses among the session's tools; leave it out",
    "response_format": "give it beside provider_opts, as a JSON Schema or a type",
    "stream": "every answer comes as a stream; leave it out",
    "stream_options": "every stream reports its usage; leave it out",
    "num_retries": "give max_retries beside provider_opts",
    "max_retries": "give it beside provider_opts",
}
"""What the runtime alone sets of a request, and what to do in the place of these options.

Nothing of them is sent, so they harm no session that has them already.
"""
VIA: Final = "via"
"""The option that says by what a model is asked; without it that is decided for each request."""
LITELLM: Final = "litellm"
"""Its one value: by litellm's library, whatever the model."""
_OF_TESTS: Final = "mock_"
INTERNAL: Final = frozenset(
    (
        *("client", "shared_session", "azure_ad_token_provider", "logger_fn", "complete_response"),
        *("litellm_logging_obj", "model_list", "acompletion", "async_call", "kwargs", "self"),
        *(
            "text_completion",
            "atext_completion",
            "use_client",
            "litellm_params",
            "original_function",
        ),
    )
)
"""Arguments of litellm that are objects in its own process, or that it passes to itself."""


def options_problem(options: Mapping[str, object]) -> str | None:
    """Return what among a model's ``options`` can never work, by its place, or None."""
    return (
        header_problem(options)
        or _via_problem(options)
        or _name_problem(options)
        or _bytes_problem(options)
        or _time_problem(options)
        or _many_answers_problem(options)
    )


def _via_problem(options: Mapping[str, object]) -> str | None:
    via = options.get(VIA)
    if via is None or via == LITELLM:
        return None
    return f"[{VIA!r}]: expected {LITELLM!r}, the one way that can be chosen, got {short(via)}"


def _name_problem(options: Mapping[str, object]) -> str | None:
    for name, value in options.items():
        if value is None or not isinstance(name, str):
            continue
        if name in OURS:
            return f"[{name!r}]: it is set by the runtime; {OURS[name]}"
        if name.startswith(_OF_TESTS):
            advice = "it is for tests of litellm; use cmdc_runtime.testing.ScriptedModel"
            return f"[{short(name)}]: {advice}"
        if name in INTERNAL or name.startswith("_"):
            return f"[{short(name)}]: it is an argument that litellm keeps for itself; leave it out"
    return None


def _bytes_problem(options: Mapping[str, object]) -> str | None:
    problem = problem_of(options, blobs=())
    if problem is None or not problem.endswith("is no plain value"):
        return problem
    place, _, kind = problem.partition(": a ")
    kind = kind.partition(" ")[0]
    return f"{place}: {kind} have no form in JSON; give a str"


def _time_problem(options: Mapping[str, object]) -> str | None:
    for name in _TIMES:
        value = options.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and 0 < value < math.inf
        if not is_number or isinstance(value, bool):
            return f"[{name!r}]: expected seconds, a number above 0, got {_shown(value)}"
    return None


def _many_answers_problem(options: Mapping[str, object]) -> str | None:
    body = options.get("extra_body")
    places = {"['n']": options.get("n")}
    places["['extra_body']['n']"] = body.get("n") if isinstance(body, Mapping) else None
    for place, value in places.items():
        if value is not None and (isinstance(value, bool) or value != 1):
            advice = f"a request has one answer, so n is 1, not {_shown(value)}; leave it out"
            return f"{place}: {advice}, and use reasoning_strategy or sessions for more answers"
    return None


def _shown(value: object) -> str:
    """Return a number as it is, and of all else its type: it may be a key in the wrong place."""
    return short(value) if isinstance(value, int | float) else type(value).__name__
