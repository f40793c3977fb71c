"""What one decision adds to the tree of a run, looked at whole before any of it is published.

A part that cannot be added raises, and nothing of the decision is: whoever drives the run would
have to end branches, and show thoughts, that nobody has paid for. Parts may go on from those that
stand before them. A failure of a strategy says in which method it was, and where in its code.
"""

import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime import foreign
from cmdc_runtime.answer_schema import answer_schema
from cmdc_runtime.extensions.reasoning import (
    ERROR,
    OUTPUT,
    PARENTS,
    Branch,
    RunStatus,
    Thought,
)
from cmdc_runtime.foreign import ForeignError
from cmdc_runtime.plain import number_problem, short
from cmdc_runtime.provider_options import model_problem
from cmdc_runtime.reasoning.limits import NODE_ID, NODES_MAX, SCORE_MAX
from workers.reasoning.inputs import MisuseError, NotDeterministicError, check_text, plain_dict

# --- nodes ----------------------------------------------------------------------------------------

Phase: TypeAlias = Literal["waiting", "running", "ending", "ended"]
ACTIVE: Final = ("running", "ending")
CUT_OFF: Final = ("timeout", "budget_exceeded", "max_steps_exceeded", "failed")
"""How a run ends that is answered with the best thought so far, where there is one."""


@dataclass(slots=True)
class Node:
    """A branch, or a thought of the strategy's own."""

    id: str
    branch: Branch | None = None
    root: str = ""
    """The id without revisions."""
    base: str = ""
    """The prompt without feedback."""
    phase: Phase = "ended"
    thought: Thought | None = None
    """There when the node is ending or ended."""
    is_pruned: bool = False
    revision: int = 0
    """Which one of the run it belongs to; 0: to none."""


@dataclass(slots=True)
class End:
    """How the run ends."""

    status: RunStatus
    answer: Any = None  # Any: plain data of the strategy
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """About the answer."""


# --- drafts ---------------------------------------------------------------------------------------

_NODE_ID: Final = re.compile(NODE_ID)


class TreeDraft:
    """The nodes of one decision; ``fresh`` has those that are not in the tree yet, in their order.

    Each method raises ``MisuseError`` for what cannot be added.
    """

    def __init__(self, nodes: Mapping[str, Node], names: dict[str, int]) -> None:
        """Begin with the tree as it is; ``names`` counts those that are given, by their letter."""
        self._nodes = nodes
        self._names = names
        self.fresh: dict[str, Node] = {}

    def wanted(self, branch: object) -> Node:
        """Return the node of a branch that is asked for: a new one, or the one of its id."""
        if not isinstance(branch, Branch):
            raise MisuseError(f"a decision has branches, got {short(branch)}")
        if branch.id is not None:
            _check_id(branch.id)
        node = None if branch.id is None else self._found(branch.id)
        if node is not None:
            return _same(node, branch, is_fresh=node.id in self.fresh)
        node_id = self._name("b") if branch.id is None else branch.id
        return self._added(msgspec.structs.replace(branch, id=node_id))

    def again(self, node: Node, feedback: str, revision: int) -> Node:
        """Return the node of a branch that runs again with feedback, one for all of its revisions.

        Where a decision names several of them, it goes on from the first.
        """
        if node.branch is None:
            raise MisuseError(f"{node.id!r} is no branch, and cannot be revised")
        check_text(feedback, "the feedback of Revise")
        node_id = f"{node.root}.r{revision}"
        if node_id in self.fresh:
            return self.fresh[node_id]
        if node_id in self._nodes:
            raise MisuseError(
                f"there is a branch {node_id!r} already, and a revision would be named so"
            )
        again = msgspec.structs.replace(
            node.branch, id=node_id, prompt=f"{node.base}\n\n{feedback}", parent_id=node.id
        )
        added = self._added(again)
        added.root, added.base, added.revision = node.root, node.base, revision
        return added

    def put(self, given: object) -> Node:
        """Return the node of a thought of the strategy's own, with its score."""
        thought = self._own(given)
        _check_id(thought.id)
        if self._found(thought.id) is not None:
            raise MisuseError(f"there is a thought {thought.id!r} already")
        self._check_place(thought.parent_id)
        check_text(thought.content, f"thought {thought.id!r}")
        metadata = plain_dict(thought.metadata, f"the metadata of {thought.id!r}")
        self._check_parents(metadata, thought.id)
        _check_keys(metadata, f"the metadata of {thought.id!r}", ERROR)
        if thought.score is not None:
            score_of(thought)
        whole = msgspec.structs.replace(thought, metadata=metadata)
        return self._kept(Node(thought.id, thought=whole))

    def _own(self, given: object) -> Thought:
        if isinstance(given, str):
            return Thought(self._name("t"), given)
        if isinstance(given, dict):
            try:
                return msgspec.convert({"id": self._name("t"), **given}, Thought)
            except (msgspec.ValidationError, TypeError) as error:
                raise MisuseError(f"Continue_: {error}") from error
        if not isinstance(given, Thought):
            raise MisuseError(f"Continue_ takes a text or a Thought, got {short(given)}")
        return given

    def _added(self, branch: Branch) -> Node:
        node_id = str(branch.id)
        self._check_place(branch.parent_id)
        check_text(branch.prompt, f"the prompt of branch {node_id!r}")
        if not branch.prompt.strip():
            raise MisuseError(f"the prompt of branch {node_id!r} is empty")
        metadata = plain_dict(branch.metadata, f"the metadata of branch {node_id!r}")
        self._check_parents(metadata, node_id)
        _check_keys(metadata, f"the metadata of branch {node_id!r}", ERROR, OUTPUT)
        if not isinstance(branch.fork, bool):
            raise MisuseError(
                f"fork of branch {node_id!r}: expected a bool, got {short(branch.fork)}"
            )
        if branch.model is not None and (problem := model_problem(branch.model)) is not None:
            raise MisuseError(f"the model of branch {node_id!r}: {problem}")
        if branch.result is not None:
            try:
                answer_schema(branch.result)
            except TypeError as error:
                raise MisuseError(f"the result of branch {node_id!r}: {error}") from error
        branch = msgspec.structs.replace(branch, metadata=metadata)
        return self._kept(Node(node_id, branch, node_id, branch.prompt, phase="waiting"))

    def _kept(self, node: Node) -> Node:
        self.fresh[node.id] = node
        return node

    def _found(self, node_id: str) -> Node | None:
        return self.fresh.get(node_id) or self._nodes.get(node_id)

    def _check_place(self, parent_id: object) -> None:
        if parent_id is not None and (
            not isinstance(parent_id, str) or self._found(parent_id) is None
        ):
            raise unknown(parent_id)
        if len(self._nodes) + len(self.fresh) >= NODES_MAX:
            raise MisuseError(
                f"a run has at most {NODES_MAX:,} thoughts and branches: {len(self._nodes):,} are"
                " there, and this decision adds more than are left; ask for fewer, or end with Done"
            )

    def _check_parents(self, metadata: Mapping[str, Any], node_id: str) -> None:
        """Refuse further parents that are not there, as ``parent_id``; a node is none of its own.

        Any: plain data.
        """
        given = metadata.get(PARENTS, [])
        if not isinstance(given, list):
            raise MisuseError(f"parents of {node_id!r}: expected a list of ids, got {short(given)}")
        for one in given:
            if not isinstance(one, str) or one == node_id or self._found(one) is None:
                raise MisuseError(f"parents of {node_id!r}: {unknown(one)}")

    def _name(self, letter: str) -> str:
        while True:
            self._names[letter] += 1
            name = f"{letter}{self._names[letter]}"
            if self._found(name) is None:
                return name


def _same(node: Node, branch: Branch, *, is_fresh: bool) -> Node:
    """Return a node that a branch is asked for by the id of: it asks for the same."""
    if node.branch is not None and node.branch.prompt == branch.prompt:
        return node
    if is_fresh:
        raise MisuseError(f"a decision asks for two branches {node.id!r}, whose prompts differ")
    raise NotDeterministicError(f"branch {node.id!r} has another prompt now")


def _check_id(node_id: object) -> None:
    if not isinstance(node_id, str) or _NODE_ID.fullmatch(node_id) is None:
        raise MisuseError(f"{short(node_id)} cannot name a thought or a branch: {NODE_ID}")


def _check_keys(metadata: Mapping[str, Any], what: str, *own: str) -> None:  # Any: plain data
    """Refuse keys that the run adds itself: who reads them would take it for the run's word."""
    for key in own:
        if key in metadata:
            raise MisuseError(f"{what}: the key {key!r} is the run's own: take another one")


def unknown(node_id: object) -> MisuseError:
    """Return the error of a strategy that names a node which is not there."""
    return MisuseError(f"there is no thought or branch {short(node_id)}")


def score_of(scored: Thought) -> tuple[float, dict[str, Any]]:  # Any: plain data of whoever scored
    """Return the score of a thought that has one, and what was said beside it.

    Raises:
        MisuseError: it is no number that can be kept, or what is said beside it is no plain data.
    """
    problem = number_problem(scored.score, -SCORE_MAX, SCORE_MAX)
    if scored.score is None or problem is not None:
        raise MisuseError(f"the score of {scored.id!r}: {problem}")
    detail = plain_dict(scored.score_detail, f"the score_detail of {scored.id!r}")
    return float(scored.score), detail


# --- failures -------------------------------------------------------------------------------------

PLACE_CHARS_MAX: Final = 200
"""Of the name of a file, a function, a strategy."""
_PROGRAM: Final = ("cmdc_runtime", "workers")
_FOLDERS: Final = tuple(
    Path(path) for path in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)


def failure_of(strategy: str, method: str, error: Exception, *within: str) -> str:
    """Return why a run has failed: strategy and method, the error, and the line that raised it.

    ``within`` are files whose frames are not the strategy's.
    """
    name = strategy[:PLACE_CHARS_MAX]
    place = place_of(error, *within) if isinstance(error, ForeignError) else ""
    return f"{name}.{method}: {error}" + (f" ({place})" if place else "")


def place_of(failed: ForeignError, *within: str) -> str:
    """Return file, line and function of the innermost code that is the user's own.

    Code of libraries is passed over, unless there is nothing else; "" where nothing is known.
    """
    frames = [
        (frame, line)
        for frame, line in _frames(failed.error)
        if frame.f_code.co_filename not in {foreign.__file__, *within}
    ]
    theirs = (one for one in frames if not _is_library(one[0].f_code.co_filename))
    own = [one for one in theirs if not _is_ours(one[0])]
    for frame, line in reversed(own or frames):
        function = frame.f_code.co_name[:PLACE_CHARS_MAX]
        return foreign.hidden(f"{_file_of(frame)[:PLACE_CHARS_MAX]}:{line}, in {function}")
    return ""


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _file_of(frame: FrameType) -> str:
    """Return the name of a frame's file; of code that has come by value, that of its module."""
    file = Path(frame.f_code.co_filename).name
    module = frame.f_globals.get("__name__")
    return module if file.startswith("<") and type(module) is str else file


def _is_ours(frame: FrameType) -> bool:
    """Say whether a frame is of this program, as of a method that a dataclass has made."""
    module = frame.f_globals.get("__name__")
    return type(module) is str and module.partition(".")[0] in _PROGRAM


def _is_library(name: str) -> bool:
    return name in sys.builtin_module_names or any(
        Path(name).is_relative_to(folder) for folder in _FOLDERS
    )
