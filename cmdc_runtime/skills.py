"""Skills: folders with a ``SKILL.md`` that says what it is good for, and how it is done.

The format is that of agentskills.io: YAML front matter between two lines of ``---`` with ``name``
and ``description``, and perhaps ``license``, ``compatibility``, ``metadata`` and ``allowed-tools``
(``allowed_tools`` too), and a body in Markdown. ``parse`` is pure. A ``Catalogue`` is the skills of
several folders; those of a later folder take the place of namesakes in an earlier one. Whatever is
wrong with one file is a ``Problem`` of it, and the other skills are there.

A skill is reread when its file has changed, which is found out by the times that the file system
keeps, without opening it.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from cmdc_runtime.beneath import file_in, named_path
from cmdc_runtime.checked_struct import Checked

NAME_CHARS_MAX: Final = 64
DESCRIPTION_CHARS_MAX: Final = 1024
COMPATIBILITY_CHARS_MAX: Final = 500
FILE_BYTES_MAX: Final = 64 * 1024
"""Of a ``SKILL.md``."""
TOOLS_MAX: Final = 512
"""Tools that one skill may name."""
SKILLS_MAX: Final = 1000
"""Skills of one catalogue, and entries of one folder that are looked at; the rest is a problem."""
SNIPPET_TOKENS: Final = 4000
"""What the list of skills takes of a system prompt at the most."""
CHARS_PER_TOKEN: Final = 4
FILE_NAMES: Final = ("SKILL.md", "skill.md")
ID_FILE: Final = ".skill_id"
ID_CHARS_MAX: Final = 128
SOURCES: Final = ("base", "user", "project", "team")
"""What a folder may be called; it says where a skill is from and changes nothing else."""
STANDARD_DIRS: Final = (("user", "~/.cmdc/skills"), ("project", ".cmdc/skills"))
"""Where people keep skills: ``skills_dirs=cmdc.skills.STANDARD_DIRS``."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{ID_CHARS_MAX}}}")
_FENCE: Final = "---"
_FIELDS: Final = (
    "name", "description", "license", "compatibility", "metadata", "allowed-tools", "allowed_tools",
)  # fmt: skip
_DIGEST_CHARS: Final = 32

SkillsDir: TypeAlias = str | os.PathLike[str] | tuple[str, str | os.PathLike[str]]
"""A folder of skills, and perhaps before it what it is called, a word of ``SOURCES``."""


class Skill(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """One skill; ``body`` is there when it was loaded."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    """Tools that it needs, as its author wrote them; None: it does not say."""
    metadata: dict[str, str] = {}
    body: str = ""
    id: str = ""
    """What names it in all places, from ``.skill_id`` beside it."""
    folder: str = ""
    source: str = ""
    digest: str = ""
    """Of its ``SKILL.md``: another text has another one."""
    is_of_project: bool = False
    """Its folder lies in the working folder: whoever wrote the project wrote it."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, metaclass=Checked):
    """Why a folder gives no skill, or what of it is not understood."""

    path: str
    text: str


class Parsed(NamedTuple):
    """A skill, None where something is wrong, and everything that is."""

    skill: Skill | None
    problems: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    """Fields that the format does not know; a skill with some can be used all the same."""


# --- one file -------------------------------------------------------------------------------------


def parse(text: str, folder_name: str | None = None) -> Parsed:
    """Return the skill that a ``SKILL.md`` describes, or all that is wrong with it.

    Its name has to be ``folder_name``, unless that is None.
    """
    matter, body = _split(text)
    if matter is None:
        return Parsed(None, (body,))
    try:
        fields = _front_matter(matter)
    except ValueError as error:
        return Parsed(None, (f"its front matter is no YAML that can be used: {_line(error)}",))
    problems = [*_name_problems(fields, folder_name), *_text_problems(fields)]
    tools, wrong = _allowed_tools(fields)
    problems += wrong
    unknown = tuple(sorted(set(fields) - set(_FIELDS)))
    if problems:
        return Parsed(None, tuple(problems), unknown)
    skill = Skill(
        name=_text(fields["name"]),
        description=_text(fields["description"]),
        license=_maybe(fields.get("license")),
        compatibility=_maybe(fields.get("compatibility")),
        allowed_tools=tools,
        metadata={key: one.text for key, one in _mapping(fields.get("metadata")).items()},
        body=body.strip("\n"),
        digest=hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS],
    )
    return Parsed(skill, (), unknown)


class _Scalar(NamedTuple):
    """A word of the front matter, as it is written, and whether it reads as a text."""

    text: str
    is_text: bool


_Value: TypeAlias = _Scalar | list["_Value"] | dict[str, "_Value"]
_DEPTH_MAX: Final = 3
"""A mapping of lists or mappings, and nothing deeper."""


def _split(text: str) -> tuple[str | None, str]:
    """Return front matter and body; None and the problem where there is no front matter."""
    lines = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != _FENCE:
        return None, f"it has no front matter: its first line has to be {_FENCE}"
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == _FENCE:
            return "".join(lines[1:at]), "".join(lines[at + 1 :])
    return None, f"its front matter is not closed by a line of {_FENCE}"


def _front_matter(matter: str) -> dict[str, _Value]:
    """Return the fields as they are written.

    Only events are read: nothing is built that the text does not hold, whatever it refers to.
    """
    import yaml  # noqa: PLC0415 - who reads no skill does without it

    stack: list[tuple[_Value, str | None]] = []
    root: _Value | None = None
    try:
        for event in yaml.parse(matter, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                stack.pop()
            value = _value_of(event)
            if value is None:
                continue
            root = value if root is None else root
            if value is not root:
                _put(stack, value)
            if not isinstance(value, _Scalar):
                stack.append((value, None))
            if len(stack) > _DEPTH_MAX:
                raise ValueError("it is nested too deep")
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(root, dict):
        raise ValueError("it has to be a mapping of fields")  # noqa: TRY004 - of a file's text
    return root


@cache
def _resolver() -> Any:  # Any: of a library without types
    """Return what knows of a word without quotes whether it is a text."""
    import yaml  # noqa: PLC0415 - as above

    return yaml.resolver.Resolver()


def _value_of(event: object) -> _Value | None:
    """Return the value that begins with an event of the parser, None where none does."""
    import yaml  # noqa: PLC0415 - as above

    match event:
        case yaml.AliasEvent():
            raise ValueError("it has an alias (*name), write the value out")
        case yaml.ScalarEvent():
            tag = _resolver().resolve(yaml.ScalarNode, event.value, event.implicit)
            return _Scalar(event.value, tag == "tag:yaml.org,2002:str")
        case yaml.MappingStartEvent():
            return {}
        case yaml.SequenceStartEvent():
            return []
        case _:
            return None


def _put(stack: list[tuple[_Value, str | None]], value: _Value) -> None:
    """Add a value to the innermost mapping or list."""
    if not stack:
        raise ValueError("it has to be one document")
    holder, key = stack[-1]
    if isinstance(holder, list):
        holder.append(value)
    elif isinstance(holder, dict) and key is None:
        if not isinstance(value, _Scalar):
            raise ValueError("the name of a field has to be a word")  # noqa: TRY004 - as above
        if value.text in holder:
            raise ValueError(f"it has {value.text[:NAME_CHARS_MAX]!r} twice")
        stack[-1] = (holder, value.text)
    elif isinstance(holder, dict) and key is not None:
        holder[key] = value
        stack[-1] = (holder, None)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _name_problems(fields: Mapping[str, _Value], folder_name: str | None) -> Iterator[str]:
    name = _maybe(fields.get("name"))
    if name is None:
        yield "name: required, a text"
        return
    if len(name) > NAME_CHARS_MAX:
        yield f"name: {len(name)} characters, at most {NAME_CHARS_MAX} are allowed"
    elif _NAME.fullmatch(name) is None:
        yield (
            f"name: {name!r} has to be of a-z, 0-9 and single hyphens, none at its start or end;"
            " upper case and other letters are not allowed"
        )
    if folder_name is not None and name != folder_name:
        yield f"name: {name[:NAME_CHARS_MAX]!r} has to be that of its folder, {folder_name!r}"


def _text_problems(fields: Mapping[str, _Value]) -> Iterator[str]:
    description = _maybe(fields.get("description"))
    if description is None:
        yield "description: required, a text"
    elif len(description) > DESCRIPTION_CHARS_MAX:
        many = len(description)
        yield f"description: {many} characters, at most {DESCRIPTION_CHARS_MAX} are allowed"
    for field in ("license", "compatibility"):
        if field in fields and _maybe(fields[field]) is None:
            yield f"{field}: expected a text"
    compatibility = _maybe(fields.get("compatibility")) or ""
    if len(compatibility) > COMPATIBILITY_CHARS_MAX:
        many = len(compatibility)
        yield f"compatibility: {many} characters, at most {COMPATIBILITY_CHARS_MAX} are allowed"
    metadata = fields.get("metadata", {})
    if not isinstance(metadata, dict) or len(_mapping(metadata)) != len(metadata):
        yield "metadata: expected a mapping of words"


def _allowed_tools(fields: Mapping[str, _Value]) -> tuple[tuple[str, ...] | None, list[str]]:
    """Return the tools that a skill names, None where it names none, and what is wrong."""
    spellings = [name for name in ("allowed-tools", "allowed_tools") if name in fields]
    if not spellings:
        return None, []
    if len(spellings) > 1:
        return None, ["allowed-tools and allowed_tools are one field: give one of them"]
    value, label = fields[spellings[0]], spellings[0]
    if isinstance(value, _Scalar) and (value.is_text or not value.text):
        tools = value.text.split()
    elif isinstance(value, list) and all(isinstance(one, _Scalar) and one.is_text for one in value):
        tools = [one.text for one in value if isinstance(one, _Scalar)]
    else:
        return None, [f"{label}: expected tools with blanks between, or a list of texts"]
    if len(tools) > TOOLS_MAX:
        return None, [f"{label}: {len(tools)} tools, at most {TOOLS_MAX} are allowed"]
    return tuple(tools), []


def _maybe(value: _Value | None) -> str | None:
    """Return the text of a field, None where it is empty or no text."""
    return (value.text.strip() or None) if isinstance(value, _Scalar) else None


def _text(value: _Value) -> str:
    text = _maybe(value)
    assert text is not None  # noqa: S101 - it was looked at before
    return text


def _mapping(value: _Value | None) -> dict[str, _Scalar]:
    fields = value if isinstance(value, dict) else {}
    return {key: one for key, one in fields.items() if isinstance(one, _Scalar)}


# --- folders --------------------------------------------------------------------------------------


def validate(folder: str | os.PathLike[str]) -> list[str]:
    """Return everything that is wrong with the skill in ``folder``, fields of no meaning too."""
    path = Path(folder)
    try:
        if not path.is_dir():
            return [f"{path} is no folder" if path.exists() else f"{path} is not there"]
        file = _skill_file(path)
        if file is None:
            return [f"{path} has no {FILE_NAMES[0]}"]
        parsed = parse(_read(file), path.name)
    except (OSError, ValueError) as error:
        return [_reason(error)]
    return [*parsed.problems, *(f"{field}: there is no such field" for field in parsed.unknown)]


def discover(dirs: Iterable[SkillsDir], working_dir: str | os.PathLike[str] = ".") -> "Catalogue":
    """Return the skills of these folders, of which a later one outranks an earlier one.

    A folder is one of skills, or a skill. Relative ones lie in ``working_dir``, "~" is the home of
    the user. A skill without a ``.skill_id`` gets one where its folder can be written to.
    """
    catalogue = Catalogue(dirs, working_dir)
    catalogue.refresh()
    return catalogue


def load(skill: Skill) -> Skill:
    """Return a skill as its file is now, with its body.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no skill any more; the text says why.
    """
    folder = Path(skill.folder)
    file = _skill_file(folder)
    if file is None:
        raise ValueError(f"{folder} has no {FILE_NAMES[0]} any more")
    parsed = parse(_read(file, *((folder,) if skill.is_of_project else ())), folder.name)
    if parsed.skill is None:
        raise ValueError("; ".join(parsed.problems))
    kept = ("id", "folder", "source", "is_of_project")
    return msgspec.structs.replace(parsed.skill, **{one: getattr(skill, one) for one in kept})


class _Entry(NamedTuple):
    """A skill's file, and what shows whether it has changed."""

    file: Path
    source: str
    stamp: tuple[int, ...]


class Catalogue:
    """The skills of several folders, as they were when ``refresh`` was called last."""

    def __init__(
        self, dirs: Iterable[SkillsDir], working_dir: str | os.PathLike[str] = "."
    ) -> None:
        """Have none before the first ``refresh``."""
        self.skills: tuple[Skill, ...] = ()
        """Sorted by name, without bodies."""
        self.problems: tuple[Problem, ...] = ()
        self._working_dir = Path(working_dir)
        self._dirs = [_named(one) for one in dirs]
        self._known: dict[Path, tuple[tuple[int, ...], Skill | None, tuple[Problem, ...]]] = {}
        self._seen: object = None

    def refresh(self) -> bool:
        """Look at the folders, and say whether anything has changed since the last look."""
        problems: list[Problem] = []
        entries = [one for named in self._dirs for one in self._entries(*named, problems)]
        seen = ([(one.file, one.stamp) for one in entries], problems)
        if seen == self._seen:
            return False
        self._seen = seen
        known = {one.file: self._read(one) for one in entries}
        self._known = known
        by_name: dict[str, Skill] = {}
        for _, skill, wrong in known.values():
            problems = [*problems, *wrong]
            if skill is not None:
                by_name[skill.name] = skill
        names = sorted(by_name)
        if len(names) > SKILLS_MAX:
            text = f"{len(names)} skills, at most {SKILLS_MAX} are taken: these are left out"
            left = ", ".join(names[SKILLS_MAX : SKILLS_MAX + 10])
            problems.append(Problem(path=str(self._working_dir), text=f"{text}: {left} …"))
        self.skills = tuple(by_name[name] for name in names[:SKILLS_MAX])
        self.problems = tuple(problems)
        return True

    def find(self, name: str) -> Skill | None:
        """Return the skill of this name or id, None where there is none."""
        found = (one for one in self.skills if name in (one.name, one.id))
        return next(found, None)

    def _entries(self, source: str | None, path: str, problems: list[Problem]) -> Iterator[_Entry]:
        folder = self._working_dir / Path(os.path.expanduser(path))  # noqa: PTH111 - no home: as is
        word = source or ("project" if self._is_inside(folder) else "user")
        try:
            if (own := _entry(folder, word)) is not None:
                yield own
                return
            names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            problems.append(Problem(path=str(folder), text=_reason(error)))
            return
        if len(names) > SKILLS_MAX:
            text = f"{len(names)} entries, of which the first {SKILLS_MAX} are looked at"
            problems.append(Problem(path=str(folder), text=text))
        for name in names[:SKILLS_MAX]:
            try:
                entry = _entry(folder / name, word)
            except (OSError, ValueError) as error:
                problems.append(Problem(path=str(folder / name), text=_reason(error)))
                continue
            if entry is not None:
                yield entry

    def _read(self, entry: _Entry) -> tuple[tuple[int, ...], Skill | None, tuple[Problem, ...]]:
        known = self._known.get(entry.file)
        if known is not None and known[0] == entry.stamp:
            return known
        folder = entry.file.parent
        is_inside = self._is_inside(folder)
        try:
            within = (folder, self._working_dir) if is_inside else ()
            parsed = parse(_read(entry.file, *within), folder.name)
        except (OSError, ValueError) as error:
            parsed = Parsed(None, (_reason(error),))
        texts = [*parsed.problems, *(f"{one}: there is no such field" for one in parsed.unknown)]
        problems = tuple(Problem(path=str(folder), text=text) for text in texts)
        if parsed.skill is None:
            return entry.stamp, None, problems
        skill = msgspec.structs.replace(
            parsed.skill,
            body="",
            id=_id_of(folder, parsed.skill.name, self._working_dir),
            folder=str(folder),
            source=entry.source,
            is_of_project=is_inside,
        )
        return entry.stamp, skill, problems

    def _is_inside(self, folder: Path) -> bool:
        """Say whether a folder lies in the working folder, as it is named or as it is linked."""
        home = os.path.realpath(self._working_dir)
        named, linked = os.path.abspath(folder), os.path.realpath(folder)  # noqa: PTH100 - as named
        own = os.path.abspath(self._working_dir)  # noqa: PTH100 - as above
        return Path(linked).is_relative_to(home) or Path(named).is_relative_to(own)


def _named(one: SkillsDir) -> tuple[str | None, str]:
    if isinstance(one, tuple | list):  # a list where it has travelled
        return one[0] or None, os.fspath(one[1])
    return None, os.fspath(one)


def _entry(folder: Path, source: str) -> _Entry | None:
    """Return the skill of a folder; None where it has none, or is no folder."""
    file = _skill_file(folder)
    if file is None:
        return None
    status = file.stat()
    stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _Entry(file, source, stamp)


def _skill_file(folder: Path) -> Path | None:
    for name in FILE_NAMES:
        try:
            status = (folder / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{name} is no file")
        return folder / name
    return None


def _read(file: Path, *within: Path) -> str:
    """Return the text of a file; only of one that lies in these folders, behind every link."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        # Asked of what is open: what a path leads to may be exchanged at any time.
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        for folder in within:
            if not real.is_relative_to(os.path.realpath(folder)):
                why = "leads out of it by a link; to use it all the same, name the folder there"
                raise ValueError(f"{file.name} is none of {folder}: it {why}")
        content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{file.name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} is no UTF-8: {error.reason} at byte {error.start}") from None


def _id_of(folder: Path, name: str, working_dir: Path) -> str:
    """Return the id that a skill has, or gets; one that cannot be kept is made of its place."""
    with suppress(OSError, ValueError):
        with named_path(str(folder / ID_FILE), str(working_dir)).folder() as (above, file):
            found = _kept_id(above, file, f"{name}__imp_{secrets.token_hex(4)}")
        if _ID.fullmatch(found):
            return found
    return f"{name}__imp_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"


def _kept_id(folder: int, file: str, made: str) -> str:
    try:
        with os.fdopen(file_in(folder, file, os.O_RDONLY), "rb") as known:
            return known.read(ID_CHARS_MAX + 2).decode("ascii", "replace").strip()
    except FileNotFoundError:
        fresh = file_in(folder, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(fresh, "w", encoding="ascii") as opened:
        opened.write(f"{made}\n")
    return made


def _reason(error: OSError | ValueError) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or str(error)


# --- what a model reads ---------------------------------------------------------------------------


def to_prompt_snippet(skills: Sequence[Skill], tokens: int = SNIPPET_TOKENS) -> str:
    """Return a line for each skill, name and description, in no more than ``tokens``.

    What does not fit is shortened: first all descriptions to one length, then away with them, then
    the last skills. The text says what is missing.
    """
    return snippet([(one.name, one.description) for one in skills], tokens)


def snippet(named: Sequence[tuple[str, str]], tokens: int) -> str:
    """Return what ``to_prompt_snippet`` does, of names and descriptions."""
    room = tokens * CHARS_PER_TOKEN
    lines = [(name, " ".join(text.split())) for name, text in named]
    whole = _lines(lines, DESCRIPTION_CHARS_MAX)
    if len(whole) <= room:
        return whole
    note = "[descriptions are cut short: load_skill shows a skill whole]"
    low, high = 0, DESCRIPTION_CHARS_MAX
    while low < high:
        width = (low + high + 1) // 2
        fits = len(_lines(lines, width)) + len(note) + 1 <= room
        low, high = (width, high) if fits else (low, width - 1)
    if low:
        return f"{_lines(lines, low)}\n{note}"
    return _names_only(lines, room)


def _lines(lines: Sequence[tuple[str, str]], width: int) -> str:
    cut = ((name, text if len(text) <= width else f"{text[: width - 1]}…") for name, text in lines)
    return "\n".join(f"- {name}: {text}" for name, text in cut)


def _names_only(lines: Sequence[tuple[str, str]], room: int) -> str:
    shown, used = [], 0
    note = "[{} skills are left out, and all descriptions: load_skill without a name lists them]"
    reserved = len(note) + 8
    for name, _ in lines:
        used += len(name) + 3
        if used > room - reserved:
            break
        shown.append(f"- {name}")
    return "\n".join([*shown, note.format(len(lines) - len(shown))])


__all__ = [
    "SKILLS_MAX",
    "SNIPPET_TOKENS",
    "SOURCES",
    "STANDARD_DIRS",
    "Catalogue",
    "Parsed",
    "Problem",
    "Skill",
    "SkillsDir",
    "discover",
    "load",
    "parse",
    "snippet",
    "to_prompt_snippet",
    "validate",
]
