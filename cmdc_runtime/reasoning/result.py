"""What a run of a strategy came to, made of its events alone: live, later, or of a part of them.

``ReasoningResult.of(events)`` folds the five kinds of events, wherever they come from: a run, a
subscription, a journal. Pictures are drawn of the same nodes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from cmdc_runtime.errors import UsageError
from cmdc_runtime.events import (
    Envelope,
    Event,
    PluginEvent,
    ReasoningBranch,
    ReasoningDone,
    ReasoningPrune,
    ReasoningScore,
    ReasoningThought,
)
from cmdc_runtime.extensions.reasoning import (
    ERROR,
    PARENTS,
    ReasoningStrategy,
    RunStatus,
    Thought,
)
from cmdc_runtime.messages import TokenUsage
from cmdc_runtime.plain import short

LABEL_CHARS_MAX: Final = 60
"""Of a node's text in a picture."""

ReasoningEvent: TypeAlias = (
    ReasoningBranch | ReasoningThought | ReasoningScore | ReasoningPrune | ReasoningDone
)
_EVENTS: Final[dict[str, type[ReasoningEvent]]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        ReasoningBranch,
        ReasoningThought,
        ReasoningScore,
        ReasoningPrune,
        ReasoningDone,
    )
}


class ReasoningNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the tree: a thought, with what it took, or a branch that still runs."""

    id: str
    parent_id: str | None = None
    prompt: str | None = None
    """None: the strategy's own thought."""
    content: str | None = None
    """None: the branch still runs."""
    error: str | None = None
    score: float | None = None
    score_detail: dict[str, Any] = {}  # Any: plain data of whoever scored
    pruned: bool = False
    revision: int = 0
    usage: TokenUsage = TokenUsage()
    metadata: dict[str, Any] = {}  # Any: plain data of the strategy


class ReasoningResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, and the tree of its thoughts.

    Texts are cut as in the events. A run whose session has ended for good has no event of its end:
    events alone say "running" of it for ever.
    """

    status: RunStatus | Literal["running"] = "running"
    answer: Any = None  # Any: plain data of the strategy
    """Of a run that was cut off, the best one so far; None where there is none."""
    reason: str | None = None
    """Why, where the status is not "done"."""
    notes: tuple[str, ...] = ()
    """What the answer lacks, whatever the status: how many branches the budget has left out, that
    it was cut and how long it was, and that the strategy's ``best`` has failed."""
    thoughts: tuple[Thought, ...] = ()
    """In the order in which they were asked for, those that failed or were pruned included."""
    best_score: float | None = None
    branches: int = 0
    """How many sessions were asked for."""
    revisions: int = 0
    pruned: int = 0
    usage: TokenUsage = TokenUsage()
    """Of all branches, with their cost."""
    elapsed_ms: int | None = None
    run_id: str = ""
    strategy: str = ""
    nodes: tuple[ReasoningNode, ...] = ()
    """In the order of ``thoughts``, and those that still run."""

    @staticmethod
    def of(events: Iterable[Event | Envelope], run_id: str | None = None) -> "ReasoningResult":
        """Return what the events say of a run, the first one that they have unless it is named.

        Other events are passed over, and what is there twice counts once.

        Raises:
            UsageError: ``events`` are none, or they failed.
        """
        if isinstance(events, str | bytes | Mapping) or not isinstance(events, Iterable):
            raise UsageError(f"events: expected the events of a run, got {short(events)}")
        if run_id is not None and not isinstance(run_id, str):
            raise UsageError(f"run_id: expected a str or None, got {short(run_id)}")
        fold = RunFold(run_id)
        for event in events:
            fold.take(reasoning_event(event))
        return fold.result()

    def to_json(self) -> str:
        """Return all of it as JSON, with usage and cost of each node."""
        return msgspec.json.encode(self).decode()

    def to_mermaid(self) -> str:
        """Return the tree as a Mermaid flowchart; what was pruned or failed is drawn dashed."""
        lines = ["flowchart TD"]
        names = {node.id: f"n{place}" for place, node in enumerate(self.nodes)}
        for node in self.nodes:
            label = "<br/>".join(map(_mermaid, label_of(node)))
            lines.append(f'    {names[node.id]}["{label}"]')
        lines += [
            f"    {names[parent]} {'-.->' if is_dashed else '-->'} {names[child]}"
            for parent, child, is_dashed in self._edges()
        ]
        dashed = [names[node.id] for node in self.nodes if is_lost(node)]
        if dashed:
            lines.append("    classDef lost stroke-dasharray: 4 4;")
            lines.append(f"    class {','.join(dashed)} lost;")
        return "\n".join(lines) + "\n"

    def to_dot(self) -> str:
        """Return the tree in Graphviz' DOT; what was pruned or failed is drawn dashed."""
        lines = ["digraph reasoning {", "    node [shape=box];"]
        names = {node.id: f"n{place}" for place, node in enumerate(self.nodes)}
        for node in self.nodes:
            style = ", style=dashed" if is_lost(node) else ""
            label = "\\n".join(map(_dot, label_of(node)))
            lines.append(f'    {names[node.id]} [label="{label}"{style}];')
        for parent, child, is_dashed in self._edges():
            style = " [style=dashed]" if is_dashed else ""
            lines.append(f"    {names[parent]} -> {names[child]}{style};")
        return "\n".join([*lines, "}"]) + "\n"

    def _edges(self) -> Iterator[tuple[str, str, bool]]:
        known = {node.id for node in self.nodes}
        for node in self.nodes:
            more = node.metadata.get(PARENTS)
            for parent in (node.parent_id, *(more if isinstance(more, list) else ())):
                if parent in known:
                    yield str(parent), node.id, is_lost(node)


def failed(result: ReasoningResult, reason: str) -> ReasoningResult:
    """Return what a run came to whose end nobody published: its best thought is its answer."""
    answer = ReasoningStrategy().best(result.thoughts, None)
    return msgspec.structs.replace(result, status="failed", answer=answer, reason=reason)


class RunFold:
    """One run as far as its events say, the first one that they have unless it is named."""

    def __init__(self, run_id: str | None = None) -> None:
        """Begin with nothing."""
        self.run_id = run_id
        self.strategy = ""
        self.nodes: dict[str, ReasoningNode] = {}
        self.done: ReasoningDone | None = None

    def take(self, event: ReasoningEvent | None) -> None:
        """Take the next event; None, and one of another run, is passed over."""
        if event is None or event.run_id != (self.run_id or event.run_id):
            return
        self.run_id, self.strategy = event.run_id, event.strategy
        match event:
            case ReasoningBranch():
                self._branch(event)
            case ReasoningThought():
                self._thought(event)
            case ReasoningScore():
                self._change(event.thought_id, score=event.score, score_detail=event.detail)
            case ReasoningPrune():
                for thought_id in event.thought_ids:
                    self._change(thought_id, pruned=True)
            case ReasoningDone():
                self.done = event

    def result(self) -> ReasoningResult:
        """Return what it has come to."""
        nodes, done = tuple(self.nodes.values()), self.done
        scores = [node.score for node in nodes if node.score is not None]
        return ReasoningResult(
            status="running" if done is None else done.status,
            answer=None if done is None else done.answer,
            reason=None if done is None else done.reason,
            notes=() if done is None else done.notes,
            thoughts=tuple(_thought(node) for node in nodes if node.content is not None),
            best_score=max(scores, default=None),
            branches=sum(node.prompt is not None for node in nodes),
            revisions=max((node.revision for node in nodes), default=0),
            pruned=sum(node.pruned for node in nodes),
            usage=sum((node.usage for node in nodes), TokenUsage()),
            elapsed_ms=None if done is None else done.elapsed_ms,
            run_id=self.run_id or "",
            strategy=self.strategy,
            nodes=nodes,
        )

    def _branch(self, event: ReasoningBranch) -> None:
        node = ReasoningNode(
            id=event.branch_id,
            parent_id=event.parent_id,
            prompt=event.prompt,
            revision=event.revision,
            metadata=event.metadata,
        )
        self.nodes.setdefault(event.branch_id, node)

    def _thought(self, event: ReasoningThought) -> None:
        own = ReasoningNode(id=event.thought_id, parent_id=event.parent_id, metadata=event.metadata)
        self.nodes.setdefault(event.thought_id, own)
        self._change(event.thought_id, content=event.content, error=event.error, usage=event.usage)

    def _change(self, node_id: str, **changes: Any) -> None:  # Any: fields of a node
        """Change a node; of one that no event began, as in a part of a stream, nothing is kept."""
        if (node := self.nodes.get(node_id)) is not None:
            self.nodes[node_id] = msgspec.structs.replace(node, **changes)


def reasoning_event(event: Event | Envelope) -> ReasoningEvent | None:
    """Return an event of a run as such; None where it is another one."""
    if isinstance(event, Envelope):
        event = event.event
    if isinstance(event, PluginEvent):
        kind = _EVENTS.get(event.name)
        try:
            return None if kind is None else msgspec.convert(event.payload, kind)
        except msgspec.ValidationError:  # a plugin of somebody's, with an event of the same name
            return None
    return event if isinstance(event, ReasoningEvent) else None


def _thought(node: ReasoningNode) -> Thought:
    metadata = node.metadata if node.error is None else {**node.metadata, ERROR: node.error}
    return Thought(
        id=node.id,
        content=node.content or "",
        parent_id=node.parent_id,
        score=node.score,
        score_detail=node.score_detail,
        metadata=metadata,
    )


def is_lost(node: ReasoningNode) -> bool:
    """Say whether nothing comes of a node: it was pruned, or has failed."""
    return node.pruned or node.error is not None


def label_of(node: ReasoningNode) -> Iterator[str]:
    """Yield the lines of a node in a picture: its id and score, its text, what it took."""
    yield node.id if node.score is None else f"{node.id} · {node.score:.3g}"
    text = " ".join((node.error or node.content or "…").split())
    yield text if len(text) <= LABEL_CHARS_MAX else text[: LABEL_CHARS_MAX - 1] + "…"
    if node.usage.total_tokens:
        cost = "" if node.usage.cost_usd is None else f" · ${node.usage.cost_usd:.4g}"
        yield f"{node.usage.total_tokens} tokens{cost}"


def _mermaid(text: str) -> str:
    """Return text for a quoted label of Mermaid, which has entities and no escapes."""
    return "".join(one if one.isalnum() or one in " .,:·…-+" else f"#{ord(one)};" for one in text)


def _dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
