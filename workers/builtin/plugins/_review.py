"""What reviewers are asked, and whether what they say is an approval."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

from cmdc_runtime import plugins
from cmdc_runtime.extensions.plugin_context import PluginContext
from workers.builtin.plugins._conversation import latest_request

Mode: TypeAlias = Literal["self", "model", "subagent"]
"""Who reviews."""
REVIEWED_CHARS_MAX: Final = 100_000
"""Of a request and of an answer that somebody else reviews; the rest is left out, and said so."""
VERDICT_CHARS_MAX: Final = 20_000
"""Of a reviewer's reply, from its beginning; what comes later is neither searched nor told."""

RESTATE: Final = (
    "The review is passed. Now give your final answer once more, complete and unchanged, as the"
    " only thing that the user will read: no word about the review."
)
_ELSE: Final[Mapping[Mode, str]] = {
    "self": (
        "Otherwise correct the answer: do the work that is missing, with tools where they help, and"
        " give the corrected answer in full, as the user will read it."
    ),
    "model": "Otherwise say only what is wrong, and what has to change.",
    "subagent": "Otherwise say only what is wrong, and what has to change.",
}
"""What a reviewer does who does not approve."""
_DECORATION: Final = " \t*_#>`~\"'.,:;!()[]-–—"  # noqa: RUF001 - dashes that models write


def mode_of(config: plugins.Reflection) -> Mode:
    """Return who reviews."""
    if config.reviewer_subagent:
        return "subagent"
    return "self" if config.reviewer_model is None else "model"


def instructions(config: plugins.Reflection) -> str:
    """Return what the reviewer is asked: to look, at what, how to approve, and what to do else."""
    mode = mode_of(config)
    parts = [config.reviewer_prompt]
    if config.criteria:
        parts.append(
            "It must meet these criteria:\n" + "\n".join(f"- {one}" for one in config.criteria)
        )
    if config.pass_pattern is None:
        parts.append(
            f"If the answer is good as it is, reply with {config.pass_signal} and nothing else."
            f" {_ELSE[mode]} Do not write {config.pass_signal} in that case."
        )
    else:
        parts.append(
            f"Unless the answer is good as it is: {_ELSE[mode].removeprefix('Otherwise ')}"
        )
    return "\n\n".join(parts)


def reviewed(context: PluginContext) -> str:
    """Return the request and the answer, for somebody who has not seen the conversation."""
    place = latest_request(context.messages)
    request = "" if place is None else context.messages[place].content
    answer = context.last_assistant_reply or ""
    return f"<request>\n{_cut(request)}\n</request>\n\n<answer>\n{_cut(answer)}\n</answer>"


def corrections(feedback: str) -> str:
    """Return what the model is told when somebody else has not approved its answer."""
    return (
        f"A reviewer has read your answer, and wants it changed:\n\n{feedback}\n\n"
        "Correct the answer: do the work that is missing, with tools where they help, and give the"
        " corrected answer in full, as the user will read it, with no word about the review."
    )


def approves(config: plugins.Reflection, reply: str) -> bool:
    """Say whether a reviewer's reply is an approval."""
    text = reply[:VERDICT_CHARS_MAX]
    if (pattern := config.pass_pattern) is not None:
        return _compiled(pattern).search(text) is not None
    signal = _bare(config.pass_signal.casefold()) or config.pass_signal.casefold().strip()
    folded = text.casefold()
    if any(signal in {line.strip(), _bare(line)} for line in folded.splitlines()):
        return True
    return re.match(rf"{re.escape(signal)}(?!\w)", folded.lstrip(_DECORATION + "\r\n")) is not None


def _bare(line: str) -> str:
    return line.strip(_DECORATION)


def _cut(text: str) -> str:
    if len(text) <= REVIEWED_CHARS_MAX:
        return text
    return f"{text[:REVIEWED_CHARS_MAX]}\n[cut here: {len(text)} characters in all]"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
