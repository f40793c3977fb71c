"""The model behind every session: it does what the prompts ask for, and forgets everything.

A prompt carries its *script*: which calls to make, in which rounds. What the model says depends on
the conversation alone, so a request that a crash has it sent again is answered as before, and in
whatever order sessions ask. It looks at each request first as a strict provider would; what that
finds is in ``problems``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from cmdc_runtime.messages import Message
from cmdc_runtime.testing import Answer, Delay, Request, Text, ToolCalls, ToolUse
from scripts.soak.history import entries_of, problems_of

NAME: Final = re.compile(r"You are ([\w.-]+)!")
"""Stands in the system prompt of each session, so that the model knows who asks."""
NOBODY: Final = "nobody"
"""Who asks where the system prompt is not a session's own: a summary, a subagent."""
PROBLEMS_MAX: Final = 100
_SCRIPT: Final = "Do this: "
_DONE: Final = "That is all there is to say about"
_AGAIN: Final = "-again"
"""Ends the id of a call that is made once more, since it was approved."""
_APPROVED: Final = re.compile(r"The call of `([\w-]+)` with (\{.*\}) was approved", re.DOTALL)

Call = tuple[str, dict[str, Any]]  # Any: JSON
"""A tool, and its arguments."""


def prompt_text(
    serial: str,
    rounds: tuple[tuple[Call, ...], ...] = (),
    *,
    late_s: float = 0.0,
    pace_s: float = 0.0,
) -> str:
    """Return a prompt that has the model make these calls, then answer.

    ``late_s`` is how long each answer takes to begin, ``pace_s`` the pause between its pieces.
    """
    script = {"serial": serial, "rounds": rounds, "late_s": late_s, "pace_s": pace_s}
    return f"{_SCRIPT}{json.dumps(script)}"


def strays(messages: Iterable[Message]) -> list[str]:
    """Return the ids of the answers that belong to another prompt than the last one before them."""
    found: list[str] = []
    serial = ""
    for message in messages:
        script = _script({"role": message.role, "content": message.content})
        if script is not None:
            serial = script["serial"]
        elif message.role == "assistant" and not _belongs(message, serial):
            found.append(message.id)
    return found


def _belongs(answer: Message, serial: str) -> bool:
    is_done = answer.content.startswith(_DONE)
    if is_done and not f"{_DONE} {serial}.".startswith(answer.content):  # it may have been cut off
        return False
    ids = (call.call_id for call in answer.tool_calls if not call.call_id.endswith(_AGAIN))
    return all(one.startswith(f"call_{serial}_") for one in ids)


class Mind:
    """Answers requests of all sessions; usable as a step of a ``ScriptedModel``."""

    def __init__(self) -> None:
        """Begin with nothing asked."""
        self.problems: list[tuple[str, str]] = []
        """Session, and what was wrong with a request of it."""
        self.requests: Counter[str] = Counter()

    def __call__(self, request: Request) -> Answer:
        """Look at a request and answer it."""
        messages = request["messages"]
        who = _who(messages)
        self.requests[who] += 1
        self._inspect(who, request)
        answer = _answer(messages)
        # The server keeps its requests; thousands of whole conversations would be too many.
        request["messages"] = messages[-1:]
        request.pop("tools", None)
        return answer

    def _inspect(self, who: str, request: Request) -> None:
        found = problems_of(entries_of(request["messages"]), is_request=True)
        names = [tool["function"]["name"] for tool in request.get("tools") or ()]
        found += [f"tool {name} twice" for name, count in Counter(names).items() if count > 1]
        self.problems += [(who, problem) for problem in found]
        del self.problems[PROBLEMS_MAX:]


def _who(messages: list[dict[str, Any]]) -> str:  # Any: JSON
    system = messages[0].get("content") if messages[0]["role"] == "system" else None
    found = NAME.search(str(system))
    return found[1] if found else NOBODY


def _answer(messages: list[dict[str, Any]]) -> Answer:  # Any: JSON
    last = messages[-1]
    granted = _APPROVED.search(str(last["content"])) if last["role"] == "user" else None
    if granted is not None:
        arguments = json.loads(granted[2])
        serial = f"{arguments.get('serial')}{_AGAIN}"
        return ToolCalls(ToolUse(granted[1], arguments, id=f"call_{serial}"))
    place = next((at for at in reversed(range(len(messages))) if _script(messages[at])), None)
    if place is None:
        return "Very well."
    script = _script(messages[place])
    assert script is not None  # noqa: S101 - the place was found by it
    done = sum(1 for said in messages[place:] if _was_scripted(said, script["serial"]))
    delay = (Delay(script["late_s"]),) if script["late_s"] else ()
    if done < len(script["rounds"]):
        calls = [
            ToolUse(name, arguments, id=f"call_{script['serial']}_{done}_{number}")
            for number, (name, arguments) in enumerate(script["rounds"][done])
        ]
        return (*delay, ToolCalls(*calls))
    text = f"{_DONE} {script['serial']}."
    return (*delay, Text(text, chunk_chars=8 if script["pace_s"] else 64, delay=script["pace_s"]))


def _script(said: dict[str, Any]) -> dict[str, Any] | None:  # Any: JSON
    text = said.get("content")
    if said["role"] != "user" or not isinstance(text, str) or not text.startswith(_SCRIPT):
        return None
    script: dict[str, Any] = json.JSONDecoder().raw_decode(text, len(_SCRIPT))[0]
    return script


def _was_scripted(said: dict[str, Any], serial: str) -> bool:  # Any: JSON
    calls = said.get("tool_calls") or ()
    return any(call["id"].startswith(f"call_{serial}_") for call in calls)
