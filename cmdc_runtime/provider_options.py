"""What no request to a model can have among its options, found before anything is sent.

``options_problem`` is the one check: of clients where options are given, of the provider where a
request is made, since a plugin or an older session may bring them too.
"""

from collections.abc import Mapping

from cmdc_runtime.header_values import header_problem
from cmdc_runtime.plain import short


def options_problem(options: Mapping[str, object]) -> str | None:
    """Return what among a model's ``options`` can never work, by its place, or None."""
    return header_problem(options) or _many_answers_problem(options)


def _many_answers_problem(options: Mapping[str, object]) -> str | None:
    body = options.get("extra_body")
    places = {"['n']": options.get("n")}
    places["['extra_body']['n']"] = body.get("n") if isinstance(body, Mapping) else None
    for place, value in places.items():
        if value is not None and (isinstance(value, bool) or value != 1):
            told = f"a request has one answer, so n is 1, not {short(value)}; leave it out"
            return f"{place}: {told}, and use reasoning_strategy or sessions for more answers"
    return None
