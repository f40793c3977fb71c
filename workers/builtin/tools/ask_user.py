"""``ask_user``: a question to the people behind the session; the answer is the result.

After a crash the call runs again and asks under the same reference, so that nobody answers twice.
"""

import textwrap
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cmdc_runtime.extensions import Context, Tool, tool
from cmdc_runtime.tools import ASK_USER_TIMEOUT_S
from workers.builtin.tools._session import META_CHARS_MAX, TIMEOUT_MARGIN_S, session_of, within

QUESTION_CHARS_MAX: Final = 4000
OPTIONS_MAX: Final = 20
OPTION_CHARS_MAX: Final = 500

QuestionText = Annotated[str, Meta(pattern=r"\S", max_length=QUESTION_CHARS_MAX)]
Option = Annotated[str, Meta(pattern=r"\S", max_length=OPTION_CHARS_MAX)]
OptionList = Annotated[list[Option], Meta(max_length=OPTIONS_MAX)]


def create(timeout: float = ASK_USER_TIMEOUT_S) -> Tool:
    """Return the tool; nobody is waited for longer than ``timeout`` seconds."""

    async def ask_user(  # noqa: D417 - the context is not the model's
        question: QuestionText,
        options: OptionList = [],  # noqa: B006 - a new list is made for each call
        *,
        context: Context,
    ) -> str:
        """Ask the user a question and wait for the answer, when you can't go on without it.

        Args:
            question: The question, with all that is needed to answer it.
            options: The answers to choose from; leave it empty for an answer in free text.
        """
        session = session_of(context, "ask_user")
        complaint = f"The user has not answered within {timeout:g} s. Go on without the answer."
        return _text(await within(timeout, session.ask_user(question, options), complaint))

    made = tool(effects="idempotent", meta=_meta, timeout=timeout + TIMEOUT_MARGIN_S)
    return made(ask_user)


def _meta(args: dict[str, Any]) -> str:
    return textwrap.shorten(f"Ask: {args.get('question')}", META_CHARS_MAX, placeholder="…")


def _text(answer: object) -> str:
    if isinstance(answer, str):
        return answer
    try:
        return msgspec.json.encode(answer).decode()
    except (TypeError, ValueError):  # MessagePack has keys that JSON has not
        return repr(answer)
