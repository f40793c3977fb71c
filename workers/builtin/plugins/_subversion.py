"""A judgement without a model: phrases that subvert instructions, and names of competitors.

It knows the common phrases, in four languages, and looks past what ``filtering.folding.ALIKE``
does. It is made to let ordinary talk pass, so whoever rephrases passes too.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import regex

from cmdc_runtime.plugins.content_policy import Verdict
from workers.builtin.filtering.folding import ALIKE

SEARCH_S_MAX: Final = 2.0
"""Processor time for one pattern; none of ours takes a hundredth of it for the longest prompt."""

_DROP: Final = r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|override|bypass)"
_RULES: Final = r"(?:instructions?|rules?|prompts?|directions?|directives?|guidelines?|orders)"
_OWN: Final = r"(?:programming|restrictions?|safety|filters?|guardrails?|limitations?|training)"
_FREE: Final = r"(?:unrestricted|unfiltered|uncensored|jailbroken|amoral|unaligned)"

# Written for folded text: small letters, no accents, single blanks, no underscores.
_PHRASES: Final = (
    (
        rf"\b{_DROP}\b(?: \w+){{0,5}} (?:previous|prior|above|earlier|preceding|initial|original"
        rf"|system)(?: \w+){{0,2}} {_RULES}\b"
    ),
    rf"\b{_DROP}\b(?: \w+){{0,3}} your(?: \w+){{0,3}} (?:{_RULES}|{_OWN})\b",
    (
        rf"\b{_DROP}\b(?: \w+){{0,3}} (?:{_RULES}|everything|anything|all)(?: that)?"
        r" you(?: were|'ve been| have been)(?: \w+)? (?:told|given|taught|instructed)\b"
    ),
    rf"\b{_DROP}\b(?: all| everything)?(?: of)? the above and\b",
    rf"\byou are (?:now |from now on )*(?:dan\b|an? (?:\w+ )?{_FREE})",
    (
        rf"\b(?:act|behave|pretend|respond|answer|role-?play)(?: \w+){{0,3}} (?:as|be) (?:an? )?"
        rf"(?:\w+ )?{_FREE}\b"
    ),
    r"\bdo anything now\b|\b(?:dan|jailbreak|unrestricted) mode\b",
    r"\byou are (?:now )?(?:running )?in (?:developer|debug|god|admin|sudo|maintenance) mode\b",
    (
        r"\byou (?:have|follow|obey|are bound by) no(?: \w+){0,2}"
        r" (?:restrictions|rules|limits|limitations|filters|guidelines)\b"
    ),
    (
        r"\b(?:answer|respond|reply|speak|talk)(?: \w+){0,4} without(?: any| your)?(?: \w+)?"
        r" (?:restrictions|censorship|filter(?:s|ing)?|guardrails)\b"
    ),
    (
        r"\b(?:reveal|show|print|repeat|output|display|tell|give|leak|dump|recite|quote|share"
        r"|what (?:is|are))\b(?: \w+){0,2} your(?: \w+){0,2}"
        r" (?:system (?:prompt|message|instructions)"
        r"|(?:initial|hidden|secret|original) (?:prompt|instructions))\b"
    ),
    (
        r"\brepeat (?:everything|(?:all )?the (?:words|text)) above\b.{0,40}"
        r"\b(?:verbatim|word for word|starting with)\b"
    ),
    r"<\|(?:imstart|imend|system|endoftext|startheaderid)\|?>|\[/?inst\]|<</?sys>>",
    (
        r"\bignorier\w*(?: \w+){0,3} (?:vorherigen|bisherigen|obigen|vorigen)(?: \w+)?"
        r" (?:anweisungen|regeln|vorgaben)\b"
    ),
    (
        r"\bignore[rz]?(?: \w+){0,2} (?:instructions|consignes|regles)(?: \w+)?"
        r" (?:precedentes|anterieures|ci-dessus)\b"
    ),
    r"\bignor[ae]\w*(?: \w+){0,2} (?:instrucciones|reglas)(?: \w+)? (?:anteriores|previas)\b",
    (
        r"(?:忽略|无视|忘记|忘掉|不要理会|绕过).{0,8}(?:之前|以上|上面|先前|前面|此前|你的).{0,8}"
        r"(?:指令|指示|规则|提示词|设定|限制)"
    ),
    r"(?:你现在|从现在开始你|假装你).{0,12}(?:无限制|不受限制|不受任何限制|没有任何限制|越狱)|越狱模式",
    r"(?:输出|显示|告诉我|透露|泄露|重复|打印).{0,6}你的.{0,6}(?:系统提示|系统指令|初始指令|隐藏指令)",
)
_SUBVERSION: Final = tuple(regex.compile(phrase) for phrase in _PHRASES)
_LATIN: Final = r"[\p{Latin}\p{N}]"


class Heuristic:
    """What is looked for in each message."""

    def __init__(self, competitors: Iterable[str]) -> None:
        """Look for these names, too: as whole words, where their letters are Latin ones."""
        names = [name for name in map(_folded, competitors) if name]
        self._competitors = regex.compile("|".join(map(_word, names))) if names else None

    def judge(self, text: str) -> Verdict:
        """Return the verdict on a message.

        Raises:
            TimeoutError: the text takes too long to search.
        """
        triggered = dict(self._found(_folded(text)))
        if not triggered:
            return Verdict(compliance_status="compliant")
        return Verdict(
            compliance_status="non-compliant",
            evaluation_summary=f"The message {' and '.join(triggered.values())}.",
            triggered_policies=tuple(triggered),
        )

    def _found(self, folded: str) -> Iterator[tuple[str, str]]:
        if any(phrase.search(folded, timeout=SEARCH_S_MAX) for phrase in _SUBVERSION):
            yield "instruction_subversion", "has a phrase that is used to set instructions aside"
        names = self._competitors
        if names is not None and names.search(folded, timeout=SEARCH_S_MAX):
            yield "brand_competitor", "names a competitor"


def _folded(text: str) -> str:
    return " ".join(ALIKE(text).replace("’", "'").split())  # noqa: RUF001 - the apostrophe of books


def _word(name: str) -> str:
    """Return a pattern for a name; no boundary is asked for where its script knows none."""
    before = f"(?<!{_LATIN})" if regex.match(_LATIN, name) else ""
    after = f"(?!{_LATIN})" if regex.match(_LATIN, name[-1]) else ""
    return f"{before}{regex.escape(name)}{after}"
