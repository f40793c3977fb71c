"""The model behind every session of a soak: chance decides what it says, and how it fails.

One mind speaks through several servers. It draws by the seed, the session that asks and how often
that one has asked before, and it looks at each request first as a strict provider would: what that
finds is in ``problems``. To add an answer: a function and its row in ``_ANSWERS``; a tool has its
arguments in ``_ARGUMENTS``.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Final

from cmdc_runtime.testing import (
    Answer,
    Delay,
    Disconnect,
    Error,
    Request,
    Stall,
    Text,
    Thinking,
    ToolCalls,
    ToolUse,
    Truncate,
)
from scripts.soak.chance import dice
from scripts.soak.history import entries_of, problems_of

NAME: Final = re.compile(r"You are (soak-\d+)\.")
"""Stands in the system prompt of each session, so that the mind knows who asks."""
NOBODY: Final = "nobody"
"""Who asks where the system prompt is not a session's own: a summary is wanted."""
UNKNOWN_TOOL: Final = "no_such_tool"
CALLS_MAX: Final = 3
ODD_ONE_IN: Final = 25
"""So many calls have each of the mistakes once that models make."""
PROBLEMS_MAX: Final = 100
REPEATED_SHARE: Final = 0.8
"""Of approved calls, which the model is asked to make once more."""
_APPROVED: Final = re.compile(r"The call of `([\w-]+)` with (\{.*\}) was approved", re.DOTALL)


class Mind:
    """Answers requests of all sessions; usable as a step of a ``ScriptedModel``."""

    def __init__(self, seed: int, careless: Collection[str]) -> None:
        """Use the ids of calls again in the sessions of ``careless``, as some models do."""
        self.problems: list[tuple[str, str]] = []
        """Session, and what was wrong with a request of it."""
        self.requests: Counter[str] = Counter()
        self._seed = seed
        self._careless = careless

    def __call__(self, request: Request) -> Answer:
        """Look at a request and answer it."""
        who = _who(request["messages"])
        number = self.requests[who]
        self.requests[who] += 1
        self._inspect(who, number, request)
        draw = dice(self._seed, who, "answer", number)
        ids = None if who in self._careless else f"{who}-{number}"
        asking = _Asking(request, draw, f"{who}-{number}", ids)
        answer = asking.granted() or asking.chosen()
        # The server keeps its requests; thousands of whole conversations would be too many.
        request["messages"] = request["messages"][-1:]
        request.pop("tools", None)
        return answer

    def _inspect(self, who: str, number: int, request: Request) -> None:
        found = problems_of(entries_of(request["messages"]), is_request=True)
        names = [tool["function"]["name"] for tool in request.get("tools") or ()]
        found += [f"tool {name} twice" for name, count in Counter(names).items() if count > 1]
        self.problems += [(who, f"request {number}: {problem}") for problem in found]
        del self.problems[PROBLEMS_MAX:]


def _who(messages: list[dict[str, Any]]) -> str:  # Any: JSON
    system = messages[0].get("content") if messages[0]["role"] == "system" else None
    found = NAME.search(str(system))
    return found[1] if found else NOBODY


class _Asking:
    """One request, and what there is to choose from."""

    def __init__(self, request: Request, draw: Random, serial: str, ids: str | None) -> None:
        self.draw = draw
        self.serial = serial
        self.tools = [tool["function"]["name"] for tool in request.get("tools") or ()]
        last = request["messages"][-1]
        self.text = last.get("content") or ""
        self.is_told_results = last["role"] == "tool"
        self._ids = ids

    def granted(self) -> Answer | None:
        """Make the call that was approved, most of the time."""
        found = _APPROVED.search(self.text)
        if found is None or found[1] not in self.tools or self.draw.random() > REPEATED_SHARE:
            return None
        return ToolCalls(ToolUse(found[1], json.loads(found[2]), id=self._id(0)))

    def chosen(self) -> Answer:
        """Draw an answer."""
        column = 1 if self.is_told_results else 0
        rows = list(_ANSWERS.items())
        weights = [row[1][column] for row in rows]
        maker = self.draw.choices([row[0] for row in rows], weights)[0]
        return maker(self)

    def words(self) -> str:
        """Return a sentence or two."""
        count = self.draw.randint(2, 30)
        return f"Answer {self.serial}: " + " ".join(f"word{n}" for n in range(count))

    def call(self, place: int) -> ToolUse:
        """Return one call of a tool that there is, now and then of none."""
        known = [name for name in self.tools if name in _ARGUMENTS or name.startswith("extra_")]
        name = self.draw.choice(known) if known else UNKNOWN_TOOL
        made = _ARGUMENTS.get(name, _look_up)(self.draw, f"{self.serial}-{place}")
        odd = {
            0: ToolUse(UNKNOWN_TOOL, {"key": "x"}, id=self._id(place)),
            1: ToolUse(name, '{"torn": [1, 2', id=self._id(place)),
            2: ToolUse(name, {"not": "this"}, id=self._id(place)),
            3: ToolUse(name, made, id=self._id(0)),  # one id for two calls of an answer
        }
        usual = ToolUse(name, made, id=self._id(place))
        return odd.get(self.draw.randrange(ODD_ONE_IN), usual)

    def _id(self, place: int) -> str:
        return f"call_{place}" if self._ids is None else f"call_{self._ids}_{place}"


# --- answers --------------------------------------------------------------------------------------


def _plain(asking: _Asking) -> Answer:
    return asking.words()


def _thoughtful(asking: _Asking) -> Answer:
    return Thinking("Let me see."), Text(asking.words())


def _tagged(asking: _Asking) -> Answer:
    return f"<title>Number {asking.serial}</title>{asking.words()}<status>done</status>"


def _slow(asking: _Asking) -> Answer:
    return Text(asking.words(), chunk_chars=4, delay=asking.draw.uniform(0.005, 0.03))


def _late(asking: _Asking) -> Answer:
    return Delay(asking.draw.uniform(0.05, 0.6)), Text(asking.words())


def _mute(_asking: _Asking) -> Answer:
    return Thinking("There is nothing to say.")


def _number(asking: _Asking) -> Answer:
    return str(asking.draw.randrange(100))


def _calls(asking: _Asking) -> Answer:
    if not asking.tools:
        return asking.words()
    calls = [asking.call(place) for place in range(asking.draw.randint(1, CALLS_MAX))]
    text = asking.words() if asking.draw.random() < 0.3 else ""  # noqa: PLR2004 - a share
    return ToolCalls(*calls, text=text)


def _busy(_asking: _Asking) -> Answer:
    return Error(429, "slow down", retry_after=0.05)


def _broken(_asking: _Asking) -> Answer:
    return Error(500, "something broke")


def _refused(_asking: _Asking) -> Answer:
    return Error(401, "this key is not known")


def _too_long(_asking: _Asking) -> Answer:
    return Error(400, "please reduce the length", code="context_length_exceeded")


def _truncated(asking: _Asking) -> Answer:
    return Truncate(after_chars=asking.draw.randrange(60))


def _torn(asking: _Asking) -> Answer:
    return Text(asking.words()), Disconnect()


def _torn_calls(asking: _Asking) -> Answer:
    return ToolCalls(asking.call(0)), Disconnect()


def _stalled(_asking: _Asking) -> Answer:
    return Stall(after_chars=20)


_ANSWERS: Final[Mapping[Callable[[_Asking], Answer], tuple[float, float]]] = {
    #            after words  after results
    _plain:      (14,         24),
    _thoughtful: (4,          6),
    _tagged:     (4,          4),
    _slow:       (12,         12),
    _late:       (8,          8),
    _number:     (3,          3),
    _calls:      (44,         28),
    _mute:       (1,          1),
    _busy:       (3,          3),
    _broken:     (4,          4),
    _refused:    (1,          1),
    _too_long:   (0.5,        0.5),
    _truncated:  (2,          2),
    _torn:       (1.5,        1.5),
    _torn_calls: (1,          1),
    _stalled:    (0.3,        0.3),
}  # fmt: skip
"""How often each answer is given, in parts; calls are fewer after results, so that cycles end."""


# --- arguments ------------------------------------------------------------------------------------


Arguments = dict[str, Any]  # Any: JSON


def _look_up(draw: Random, _serial: str) -> Arguments:
    return {"key": draw.choice("abcdefgh")}


def _wait(draw: Random, _serial: str) -> Arguments:
    return {"seconds": round(draw.uniform(0.01, 0.8), 3)}


def _serially(_draw: Random, serial: str) -> Arguments:
    return {"serial": serial}


_ARGUMENTS: Final[Mapping[str, Callable[[Random, str], Arguments]]] = {
    "look_up": _look_up,
    "linger": _wait,
    "overrun": lambda _draw, _serial: {"seconds": 5.0},
    "reckon": lambda draw, _serial: {"number": draw.randrange(200_000)},
    "dawdle": _wait,
    "doze": _wait,
    "perish": lambda _draw, _serial: {},
    "stumble": lambda draw, _serial: {"how": draw.choice(["told", "untold"])},
    "note_down": _serially,
    "file_away": lambda draw, serial: {**_serially(draw, serial), **_wait(draw, serial)},
    "launch": _serially,
    "pay": lambda draw, serial: {"serial": serial, "amount": draw.randrange(100)},
    "tell": lambda _draw, serial: {"word": serial},
    "write_todos": lambda draw, serial: {
        "todos": [
            {"id": str(n), "content": f"{serial}, {n}", "status": "pending"}
            for n in range(draw.randrange(4))
        ]
    },
    "write_file": lambda draw, serial: {"path": f"{draw.randrange(3)}.txt", "content": serial},
    "read_file": lambda draw, _serial: {"path": f"{draw.randrange(3)}.txt"},
    "ask_user": lambda _draw, serial: {"question": f"What about {serial}?"},
    "shell": lambda draw, _serial: {"command": f"sleep {draw.uniform(0, 0.4):.2f}; echo done"},
    "compact_conversation": lambda _draw, serial: {"reason": serial},
    "task": lambda _draw, serial: {
        "description": f"Do {serial}.",
        "subagent_type": "general-purpose",
    },
}
