"""``load_skill``: the instructions of a skill, or a file of its folder, when they are needed.

A file lies in the skill's folder, also behind every link. Of a skill in the session's working
folder nothing is opened that lies outside of it, whatever is put in its place meanwhile. What a
skill says about other places is read with the tools for files. The first line of an answer names
the text that it is of, so that who has to agree to it knows which one was read: ``HEAD``.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from cmdc_runtime.beneath import Reach
from cmdc_runtime.extensions import Context, Tool, ToolError, tool
from cmdc_runtime.option_checks import SkillsDirs
from cmdc_runtime.skills import FILE_BYTES_MAX, SNIPPET_TOKENS, Skill, discover, load, snippet
from workers.builtin.tools._files import READING, reason_of, shown, text_file

FILES_MAX: Final = 100
"""Files of a skill's folder that are named."""
SEEN_MAX: Final = 10_000
"""Files after which nobody looks for more."""
DEPTH_MAX: Final = 3
LIST_TOKENS: Final = 3 * SNIPPET_TOKENS
HEAD: Final = re.compile(r'<skill name="([a-z0-9-]+)" digest="([0-9a-f]+)">\n')
"""The beginning of every answer about one skill."""

SkillName = Annotated[str, Meta(max_length=128)]
FilePath = Annotated[str, Meta(max_length=1024)]


def create(dirs: SkillsDirs | None = None) -> Tool:
    """Return the tool for the skills in these folders."""

    def load_skill(  # noqa: D417 - the context is not the model's
        name: SkillName = "", file: FilePath = "", *, context: Context
    ) -> str:
        """Read a skill before you do what it is for; without a name: list all skills.

        Args:
            name: The name or id of the skill.
            file: A file of its folder, by its path there; empty for the skill itself.
        """
        catalogue = discover(dirs or (), context.working_dir)
        skill = catalogue.find(name)
        if skill is not None:
            home = os.path.realpath(context.working_dir)
            return _file(skill, file, home) if file else _whole(skill, home)
        names = [(one.name, one.description) for one in catalogue.skills if not one.is_of_project]
        names += [(one.name, "of the project") for one in catalogue.skills if one.is_of_project]
        listed = snippet(sorted(names), LIST_TOKENS) or "(there are none)"
        if name:
            raise ToolError(f"There is no skill {name!r}, only these:\n{listed}")
        return f"Skills:\n{listed}"

    return tool(isolation="thread", effects="read", meta=_meta)(load_skill)


def _meta(args: dict[str, Any]) -> str:
    return " ".join(filter(None, ["Skill", args.get("name"), args.get("file")]))


def _whole(skill: Skill, home: str) -> str:
    try:
        loaded = load(skill)
        files = _files(loaded, home)
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot read the skill {skill.name}: {reason_of(error)}") from error
    facts = {
        "Description": loaded.description,
        "Needs": loaded.compatibility,
        "Tools": None if loaded.allowed_tools is None else ", ".join(loaded.allowed_tools),
        "Folder": loaded.folder,
        "Files": files,
    }
    lines = [f"{label}: {text}" for label, text in facts.items() if text]
    return _headed(loaded, "\n".join([*lines, "", loaded.body]))


def _file(skill: Skill, file: str, home: str) -> str:
    folder = Path(skill.folder)
    try:
        descriptor = _reach(skill, home).open(str(_inside(folder, file)), READING)
        with text_file(descriptor) as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        loaded = load(skill)
    except (OSError, ValueError) as error:
        raise ToolError(f"Cannot read {file} of {skill.name}: {reason_of(error)}") from error
    text = content[:FILE_BYTES_MAX].decode(errors="replace")
    if len(content) > FILE_BYTES_MAX:
        text += f"\n[the file is longer; its first {FILE_BYTES_MAX} bytes are shown]"
    return _headed(loaded, text)


def _inside(folder: Path, file: str) -> Path:
    """Return where a file of a folder is.

    Raises:
        ValueError: it is elsewhere.
    """
    path = Path(os.path.realpath(folder / file))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise ValueError(f"it is not in the folder of the skill, {folder}")
    return path


def _reach(skill: Skill, home: str) -> Reach:
    """Return what reaches a skill's folder and nothing outside of where it may lie."""
    return Reach(home if skill.is_of_project else os.path.realpath(skill.folder))


def _headed(skill: Skill, text: str) -> str:
    return f'<skill name="{skill.name}" digest="{skill.digest}">\n{text.rstrip()}\n</skill>'


def _files(skill: Skill, home: str) -> str:
    folder = os.path.realpath(skill.folder)
    top = _reach(skill, home).open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _listed(top)
    finally:
        os.close(top)


def _listed(top: int) -> str:
    found: list[str] = []
    for place, folders, files, _ in os.fwalk(".", dir_fd=top):
        below = os.path.normpath(place)
        folders[:] = sorted(folders) if below.count("/") < DEPTH_MAX - 1 else []
        found += (os.path.normpath(f"{below}/{name}") for name in sorted(files))
        if len(found) > SEEN_MAX:
            break
    others = [one for one in found if Path(one).name not in {"SKILL.md", "skill.md", ".skill_id"}]
    more = f" and {len(others) - FILES_MAX} more" if len(others) > FILES_MAX else ""
    return ", ".join(map(shown, others[:FILES_MAX])) + more
