"""Says which skills there are, and asks a person before a text of the project becomes one.

The list stands in the system prompt as the session began with it, so that a provider's cache goes
on serving the prompt. The folders are looked at again before each request; what is new, other or
gone since is said at the end of the conversation, and with the next compaction, which ends a cached
prefix anyway, the list is made anew.

Whoever wrote the project wrote its skills, and may be a stranger. So of a skill in the working
folder the list has the name alone, and ``load_skill`` is held until a person has agreed to it: once
for each text, which its digest names, in all sessions of the daemon (``_consents``). An answer that
is of another text than the one agreed to is taken back.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from cmdc_runtime import plugins
from cmdc_runtime.commands import SkillStatus
from cmdc_runtime.extensions.actions import (
    APPROVAL_TIMEOUT_S,
    Action,
    Emit,
    Intervene,
    ReplaceToolResult,
    RequireApproval,
    SkillsFound,
)
from cmdc_runtime.extensions.context import PluginContext
from cmdc_runtime.extensions.hooks import (
    AfterTool,
    BeforeCompact,
    BeforeRequest,
    BeforeTool,
    SessionStart,
)
from cmdc_runtime.extensions.plugin import Plugin, hook
from cmdc_runtime.skills import Catalogue, Skill, snippet
from workers.builtin.plugins._consents import Consents
from workers.builtin.tools.load_skill import HEAD

log = structlog.get_logger()

TOOL: Final = "load_skill"
CONSENTS_MAX: Final = 1000
"""Texts that a person has agreed to; the oldest are asked for again."""
ASKED_MAX: Final = 1000
"""Calls that a person was asked about and that have not ended; one may never end."""
PROBLEMS_MAX: Final = 100
"""Of one status."""
_HINT_CHARS_MAX: Final = 300


class Skills(Plugin):
    """Keeps the model informed of its skills."""

    name = "skills"
    priority = 25
    fail = "closed"
    emits = ("skills_changed",)
    Config = plugins.Skills

    class State(msgspec.Struct):
        """What the model has read, and what a person agreed to."""

        known: dict[str, str] = msgspec.field(default_factory=dict, name="told")
        """Digests of the skills by their names, as the model knows them."""
        is_listed: bool = msgspec.field(default=False, name="is_told")
        agreed: list[str] = []
        """Digests, the latest last."""
        asked: dict[str, str] = {}
        """Digests that a person is asked about, by the ids of the calls."""

    def __init__(self, **config: Any) -> None:  # Any: options as they come
        """Know no skills yet."""
        super().__init__(**config)
        self._catalogue: Catalogue | None = None
        self._consents = Consents(None)

    def session_start(
        self,
        event: SessionStart,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> list[Emit]:
        """List the skills, where the session has no list yet."""
        catalogue = self._looked(context)
        if self.state.is_listed:
            return [Emit(SkillsFound(skills=self._statuses(catalogue)))]
        self.state.known, self.state.is_listed = _digests(catalogue), True
        return [self._listed(catalogue), *_news(catalogue, sorted(self.state.known), (), ())]

    def before_request(
        self,
        event: BeforeRequest,  # noqa: ARG002 - what matters is what the folders hold
        context: PluginContext,
    ) -> list[Action]:
        """Add to the conversation what has changed."""
        catalogue = self._looked(context)
        known, now = self.state.known, _digests(catalogue)
        actions: list[Action] = [Emit(SkillsFound(skills=self._statuses(catalogue)))]
        if now == known:
            return actions
        added = sorted(set(now) - set(known))
        gone = sorted(set(known) - set(now))
        changed = sorted(name for name in set(now) & set(known) if now[name] != known[name])
        self.state.known = now
        text = self._text_of(catalogue, {"New": added, "Changed": changed}, gone)
        return [*actions, Intervene(text), *_news(catalogue, added, changed, gone)]

    def before_compact(
        self,
        event: BeforeCompact,  # noqa: ARG002 - the contract of the hook
        context: PluginContext,
    ) -> Emit:
        """List the skills anew: what was said of changes may go with the old messages."""
        catalogue = self._looked(context)
        self.state.known = _digests(catalogue)
        return self._listed(catalogue)

    @hook(tools=(TOOL,))
    def before_tool(self, event: BeforeTool, context: PluginContext) -> Emit | None:
        """Hold a call that reads a skill of the project until a person has agreed to its text."""
        catalogue = self._looked(context)
        skill = catalogue.find(str(event.args.get("name", "")))
        if skill is None or not self._needs_approval(skill):
            return None
        family = f"{skill.name} {skill.digest}"
        if (TOOL, family) in context.always_approved:
            self._agree(skill.digest, skill)
            return None
        earlier = list(self.state.asked.items())[1 - ASKED_MAX :]
        self.state.asked = {**dict(earlier), str(event.call_id): skill.digest}
        hint = f"the project's skill in {skill.folder} becomes an instruction: {skill.description}"
        return Emit(
            RequireApproval(
                hint=ascii(hint[:_HINT_CHARS_MAX]),
                family=family,
                hold=True,
                timeout_s=APPROVAL_TIMEOUT_S,
            )
        )

    @hook(tools=(TOOL,))
    def after_tool(
        self,
        event: AfterTool,
        context: PluginContext,
    ) -> list[Action]:
        """Remember that a person has agreed; take back a text that is another one."""
        asked = dict(self.state.asked)
        agreed = asked.pop(str(event.call_id), None)
        self.state.asked = asked
        head = HEAD.match(event.result)
        if event.is_error or head is None:
            return []
        if agreed is not None and head[2] == agreed:
            self._agree(agreed, self._looked(context).find(head[1]))
            return [Emit(SkillsFound(skills=self._statuses(self._looked(context))))]
        skill = self._looked(context).find(head[1])
        is_known = skill is not None and not skill.is_of_project
        if is_known or self._is_agreed(head[2]):
            return []
        text = f"The skill {head[1]} has changed while it was read: load it again."
        return [ReplaceToolResult(text, is_error=True)]

    # --- what is known ------------------------------------------------------------------------

    def _looked(self, context: PluginContext) -> Catalogue:
        if self._catalogue is None:
            self._catalogue = Catalogue(self.config.dirs, context.working_dir)
            self._consents = Consents(context.state_dir)
        if self._catalogue.refresh():
            for problem in self._catalogue.problems:
                log.warning("skill.refused", path=problem.path, problem=problem.text)
        return self._catalogue

    def _needs_approval(self, skill: Skill) -> bool:
        return skill.is_of_project and not self._is_agreed(skill.digest)

    def _is_agreed(self, digest: str) -> bool:
        return digest in self.state.agreed or self._consents.has(digest)

    def _agree(self, digest: str, skill: Skill | None) -> None:
        others = [one for one in self.state.agreed if one != digest]
        self.state.agreed = [*others, digest][-CONSENTS_MAX:]
        if skill is not None:
            self._consents.keep(digest, name=skill.name, folder=skill.folder)

    # --- how it is said -----------------------------------------------------------------------

    def _listed(self, catalogue: Catalogue) -> Emit:
        listing = snippet(self._named(catalogue.skills), self.config.tokens)
        return Emit(SkillsFound(skills=self._statuses(catalogue), listing=listing))

    def _named(self, skills: Iterable[Skill]) -> list[tuple[str, str]]:
        return [
            (one.name, "of the project; the user is asked before it is loaded")
            if self._needs_approval(one)
            else (one.name, one.description)
            for one in skills
        ]

    def _statuses(self, catalogue: Catalogue) -> tuple[SkillStatus, ...]:
        found = [
            SkillStatus(
                name=one.name,
                id=one.id,
                source=one.source,
                path=one.folder,
                digest=one.digest,
                needs_consent=self._needs_approval(one),
            )
            for one in catalogue.skills
        ]
        found += [
            SkillStatus(name=one.path.rpartition("/")[2], path=one.path, problem=one.text)
            for one in catalogue.problems[:PROBLEMS_MAX]
        ]
        return tuple(found)

    def _text_of(
        self, catalogue: Catalogue, groups: Mapping[str, list[str]], gone: list[str]
    ) -> str:
        parts = ["Your skills have changed; this is newer than the list that you were given."]
        for label, names in groups.items():
            skills = [one for one in catalogue.skills if one.name in names]
            if skills:
                listed = snippet(self._named(skills), self.config.tokens // 2)
                parts.append(f"{label}:\n{listed}")
        if gone:
            listed = snippet([(name, "") for name in gone], self.config.tokens // 2)
            parts.append(f"There is no longer:\n{listed}")
        return "\n\n".join(parts)


def _digests(catalogue: Catalogue) -> dict[str, str]:
    return {one.name: one.digest for one in catalogue.skills}


def _news(
    catalogue: Catalogue, added: Iterable[str], changed: Iterable[str], gone: Iterable[str]
) -> list[Emit]:
    """Return what observers get, nothing where there is nothing to report."""
    problems = {one.path: one.text for one in catalogue.problems[:PROBLEMS_MAX]}
    known = {"added": [*added], "changed": [*changed], "gone": [*gone], "problems": problems}
    return [Emit("skills_changed", known)] if any(known.values()) else []


create = Skills
