"""How prompts of branches are put together, and options filled into them."""

from collections.abc import Sequence


def prompt(question: str, *parts: str) -> str:
    """Return the question with what belongs to it below, each part apart."""
    return "\n\n".join(part for part in (question, *parts) if part)


def filled(template: str, **values: object) -> str:
    """Return a template with ``{name}`` replaced; other braces stay as they are."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def listed(title: str, texts: Sequence[str]) -> str:
    """Return texts under a title with their numbers, "" where there are none."""
    if not texts:
        return ""
    return "\n\n".join(f"{title} {number}:\n{text}" for number, text in enumerate(texts, 1))
