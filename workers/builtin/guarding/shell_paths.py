"""The paths that the words of a shell command may be: what stands there, whole and in pieces.

A word is a path wherever it stands, unless its place says that it is none: what ``echo`` only
shows, what ``grep`` looks for, what an option leaves out. A piece of a word is one too: behind
``=``, ``:``, ``,`` or ``@``, and what hangs on an option's letter.

Some commands read a folder as a whole, and may leave something of it out. To teach it such a
program, add a row to ``_READERS``.
"""

import fnmatch
import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from workers.builtin.guarding.blocked_paths import (
    DEEP,
    FolderSearch,
    Name,
    Token,
    WrittenName,
    letters,
    one_of,
)
from workers.builtin.guarding.decoded_text import printed
from workers.builtin.shell.reader import Command, Doubt, Part, Reading, Word

# --- whole folders --------------------------------------------------------------------------------

_UNHIDING: Final = re.compile(r"--hidden|--no-ignore|--unrestricted|-[a-z]*[u.][a-z]*")


@dataclass(frozen=True, slots=True)
class _Reader:
    """How a program is made to read a folder."""

    when: str
    """What its options are to match; "" is always."""
    patterns: int = 0
    """How many of its operands are no paths."""
    is_here: bool = False
    """It reads the working folder if it is given none."""
    with_hidden: bool = True


# fmt: off
_RECURSIVE: Final = r"-[A-Za-z]*[rR].*|--(?:dereference-)?recursive"
_COPIES: Final = r"-[A-Za-z]*[rRa].*|--recursive|--archive"
_READERS: Final[dict[str, _Reader]] = {
    "grep":  _Reader(_RECURSIVE, 1, is_here=True),
    "egrep": _Reader(_RECURSIVE, 1, is_here=True),
    "fgrep": _Reader(_RECURSIVE, 1, is_here=True),
    "rgrep": _Reader("", 1, is_here=True),
    "rg":    _Reader("", 1, is_here=True, with_hidden=False),
    "ag":    _Reader("", 1, is_here=True, with_hidden=False),
    "ack":   _Reader("", 1, is_here=True),
    "cp":    _Reader(_COPIES),
    "scp":   _Reader(_COPIES),
    "rsync": _Reader(_COPIES),
    "zip":   _Reader(_RECURSIVE),
    "tar":   _Reader(r"-?[a-zA-Z]*[cru][a-zA-Z]*|--create|--append|--update"),
}
# fmt: on


def searches_of(program: str, texts: Sequence[str]) -> Iterator[FolderSearch]:
    """Yield the folders that a program with these arguments reads, among what is none."""
    reader = _READERS.get(program)
    if reader is None or not (not reader.when or any(re.fullmatch(reader.when, t) for t in texts)):
        return
    operands = [text for text in texts if not text.startswith("-")]
    has_pattern = any(re.fullmatch(r"-[A-Za-z]*[ef].*|--(?:regexp|file).*", text) for text in texts)
    operands = operands[0 if has_pattern else reader.patterns :]
    if not operands and reader.is_here:
        operands = ["."]
    with_hidden = reader.with_hidden or any(map(_UNHIDING.fullmatch, texts))
    for folder in operands:
        yield FolderSearch(folder, with_hidden, _choice(texts))


def _choice(options: Sequence[str]) -> Callable[[str], bool]:
    """Return which files the options of a search leave in."""
    chosen: list[str] = []
    left_out: list[str] = []
    for option, following in itertools.pairwise([*options, ""]):
        name, _, attached = option.partition("=")
        value = attached or following
        if name in ("--include", "-g", "--glob", "--iglob"):
            (left_out if value.startswith("!") else chosen).append(value.lstrip("!"))
        elif name in ("--exclude", "--exclude-dir", "--ignore", "--ignore-dir", "-x"):
            left_out.append(value)
    return functools.partial(is_read, chosen, left_out)


def is_read(chosen: Sequence[str], left_out: Sequence[str], path: str) -> bool:
    """Say whether a file's path fits one of ``chosen``, if there are any, and no ``left_out``."""
    names = path.split("/")
    if any(_fits(name, pattern) for pattern in left_out for name in [path, *names]):
        return False
    return not chosen or any(_fits(one, pattern) for pattern in chosen for one in (path, names[-1]))


def _fits(name: str, pattern: str) -> bool:
    plain = posixpath.normpath(pattern.removeprefix("**/")) if pattern else ""
    return fnmatch.fnmatchcase(name, plain)


# --- words ----------------------------------------------------------------------------------------

MEANINGS_MAX: Final = 32
"""Of one word, by the values of its variables; more values are not tried."""
TAILS_MAX: Final = 16
"""Of a word with more separators only the pieces between them are paths."""
VALUES_DEPTH_MAX: Final = 3
"""Of variables whose values are other variables."""

_SEARCHES: Final = frozenset({
    "grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed",
})  # fmt: skip
"""Programs whose first operand is no path, unless an option gives what it would."""
_FILTERS: Final = frozenset({"jq", "yq", "gojq"})
"""The same, and the option is another one."""
_PATTERN_OPTIONS: Final = re.compile(r"-[A-Za-z]*[ef].*|--(?:reg|exp|file).*")
_FILTER_OPTIONS: Final = re.compile(r"-[A-Za-z]*f.*|--from-file.*")
_SHOWS: Final = frozenset({"echo", "printf"})
_LEAVES_OUT: Final = re.compile(r"--(?:exclude|ignore|skip)[a-z-]*=.*|:\(exclude\).*|:[!^].*|!.*")
_LEAVES_OUT_NEXT: Final = frozenset({"--exclude", "--exclude-dir", "--ignore", "--ignore-file"})
_SED_FILES: Final = re.compile(r"(?:^|[;{}\s/0-9$])[rRwW]\s*([^\s;}]+)")
_STRINGS: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'|`([^`]*)`")
_CODE_WORDS: Final = re.compile(r"[\w./~*?%+@:-]+")
_EDITORS: Final = frozenset({"vim", "vi", "nvim", "ex", "ed", "gdb"})
_NAME_TESTS: Final = frozenset({
    "-name", "-iname", "-path", "-ipath", "-wholename", "--include", "-g", "--glob", "--iglob",
})  # fmt: skip
_NOT: Final = frozenset({"!", "-not"})
_EXPANDS_ITSELF: Final = frozenset({"git", "rsync", "tar", "locate", "plocate", "fd", "fdfind"})
_WILDCARDS: Final = re.compile(r"[*?]|\[[^]/]+\]")
_ROOT_OF_ANY: Final = ("proc", "root")
"""The first and the third name of the root folder, as a process sees it."""
_SEPARATORS: Final = "=:,@"
_INTERPRETED: Final = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|php|lua|awk|gawk|mawk|nawk|osascript|tclsh|bun|deno|"
    r"Rscript|expect|guile|emacs)[\d.]*"
)
_CHANGES_FOLDER: Final = frozenset({"cd", "pushd", "chdir"})
_FOLDER_OPTIONS: Final = frozenset({"-C", "--directory", "--chdir", "--cwd", "-D"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the shell that runs the command starts with."""

    home: str
    user: str
    working_dir: str


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the command's relative paths may begin."""

    bases: tuple[str, ...]
    is_sure: bool
    """False where the command changes to a folder that is not known."""


def folders_of(reading: Reading, around: Surroundings) -> Folders:
    """Return every folder that the command works in at some time."""
    bases, is_sure = [around.working_dir], True
    for command in reading.details:
        for target in _targets(command):
            known = next(meanings(target, {}, around))
            if known.is_literal:
                base = posixpath.normpath(posixpath.join(bases[-1], known.text))
                bases += [base] * (base not in bases)
            else:
                is_sure = False
    return Folders(tuple(bases), is_sure)


def _targets(command: Command) -> Iterator[Word]:
    if command.name in _CHANGES_FOLDER:
        operands = [word for word in command.words[1:] if not re.match(r"-[LPe@]", word.text)]
        yield operands[0] if operands else Word((Part("tilde", "~"),))
    for option, value in itertools.pairwise(command.words[1:]):
        if option.text in _FOLDER_OPTIONS and value.parts:
            yield value


def values_of(reading: Reading) -> dict[str, list[Word]]:
    """Return every value that each variable is given."""
    values: dict[str, list[Word]] = {}
    for assignment in reading.assignments:
        found = values.setdefault(assignment.name, [])
        before = found[-1].parts if assignment.is_appended and found else ()
        found.append(Word((*before, *assignment.value.parts)))
    return values


def path_words(reading: Reading) -> Iterator[Word]:
    """Yield every word that may be a path, and every piece of code that may."""
    for command in reading.details:
        yield from _of_command(command)
        yield from map(_exactly, _of_texts(command, reading))
        yield from map(_anywhere, _patterns(command))
    for redirect in reading.redirects:
        yield redirect.target
    for assignment in reading.assignments:
        yield assignment.value


def _of_command(command: Command) -> Iterator[Word]:
    if command.name in _SHOWS and not command.feeds and "-v" not in command.argv:
        return
    yield command.words[0]
    words = command.words[1:]
    options = _FILTER_OPTIONS if command.name in _FILTERS else _PATTERN_OPTIONS
    is_pattern = command.name in _SEARCHES | _FILTERS and not any(
        options.fullmatch(word.text) for word in words
    )
    is_left_out, before = False, ""
    for word in words:
        is_operand = not word.text.startswith("-")
        if is_operand and is_pattern:
            is_pattern = False
        elif not (is_left_out or _LEAVES_OUT.fullmatch(word.text)):
            yield word
        is_test_left_out = before in _NOT and word.text in _NAME_TESTS
        is_left_out = word.text in _LEAVES_OUT_NEXT or is_test_left_out
        before = word.text


def _of_texts(command: Command, reading: Reading) -> Iterator[str]:
    """Yield the pieces of code and data in a command that may be paths."""
    texts = [word.text for word in command.words[1:]]
    is_code = Doubt.INLINE in reading.doubts and _INTERPRETED.fullmatch(command.name)
    if is_code:
        for text in [*texts, command.stdin or ""]:
            yield from _of_code(text)
    elif command.name == "sqlite3":
        for text in texts:
            yield from _of_code(text)
            yield from (piece for piece in text.split() if piece.startswith("."))
    elif command.name in _EDITORS:
        yield from (piece for text in texts for piece in _CODE_WORDS.findall(text))
    elif command.name == "sed":
        yield from (found for text in texts for found in _SED_FILES.findall(text))
    elif command.feeds or command.name == "xargs":
        yield from printed(command).split()
        yield from (command.stdin or "").split()


def _of_code(text: str) -> Iterator[str]:
    """Yield what stands in quotes in code, and what has a slash: ``item.key`` is no file."""
    for strings in _STRINGS.findall(text):
        for string in strings:
            yield from _CODE_WORDS.findall(string)
    yield from (piece for piece in _CODE_WORDS.findall(text) if "/" in piece)


def _patterns(command: Command) -> Iterator[str]:
    """Yield the quoted wildcards that a program expands by itself."""
    texts = [word.text for word in command.words]
    for before, test, value in zip(texts, texts[1:], texts[2:], strict=False):
        if test in _NAME_TESTS and before not in _NOT:
            yield value
    yield from (
        text.partition("=")[2] for text in texts if text.startswith(("--include=", "--glob="))
    )
    if command.name in _EXPANDS_ITSELF:
        yield from (text for text in texts[1:] if not text.startswith((":", "-")))


def _anywhere(pattern: str) -> Word:
    """Return a word for all that a pattern may mean, in whichever folder."""
    parts = [Part("expansion", "**"), Part("text", "/")]
    if not _WILDCARDS.search(pattern):
        return _exactly(pattern)
    end = 0
    for found in _WILDCARDS.finditer(pattern):
        parts += [Part("text", pattern[end : found.start()]), _wildcard(found[0])]
        end = found.end()
    return Word((*parts, Part("text", pattern[end:])))


def _wildcard(text: str) -> Part:
    # Unlike the shell's, these take a leading dot.
    return Part("glob" if text[0] == "[" else "expansion", text)


def _exactly(text: str) -> Word:
    return Word((Part("text", text),))


def meanings(
    word: Word, values: Mapping[str, Sequence[Word]], around: Surroundings
) -> Iterator[Word]:
    """Yield what a word may be when its variables have the values that they are known to have.

    The word as it stands is one of them where there are too many.
    """
    rows = _rows(word, values, around, VALUES_DEPTH_MAX)
    yield from map(Word, rows)
    if len(rows) == MEANINGS_MAX:
        yield word


def _rows(
    word: Word, values: Mapping[str, Sequence[Word]], around: Surroundings, depth: int
) -> list[tuple[Part, ...]]:
    choices = [_choices(part, values, around, depth) for part in word.parts]
    chosen = itertools.islice(itertools.product(*choices), MEANINGS_MAX)
    return [tuple(itertools.chain(*row)) for row in chosen]


def _choices(
    part: Part, values: Mapping[str, Sequence[Word]], around: Surroundings, depth: int
) -> list[tuple[Part, ...]]:
    if part.kind == "tilde":
        return [(Part("text", _path_of_tilde(part.text, around)),)]
    if part.kind != "expansion" or depth == 0:
        return [(part,)]
    known = {"HOME": around.home, "USER": around.user, "LOGNAME": around.user}
    if part.name in known and part.name not in values:
        return [(Part("text", known[part.name]),)]
    if part.name == "PWD":
        return [(Part("text", around.working_dir),)]
    found = [
        row
        for value in values.get(part.name, ())[-MEANINGS_MAX:]
        for row in _rows(value, values, around, depth - 1)
    ]
    if part.default is not None:
        found.append((Part("text", part.default),))
    return found or [(part,)]


def _path_of_tilde(tilde: str, around: Surroundings) -> str:
    if tilde == "~":
        return around.home
    return around.working_dir if tilde == "~+" else posixpath.expanduser(tilde)


def pieces(word: Word) -> Iterator[Word]:
    """Yield the word, and each piece of it that a program may take for a path."""
    yield word
    atoms = [atom for part in word.parts for atom in _atoms(part)]
    begins = [0]
    begins += [at + 1 for at, atom in enumerate(atoms) if _is_one_of(atom, _SEPARATORS)]
    for begin, end in zip(begins, [*begins[1:], len(atoms) + 1], strict=True):
        if len(begins) > 1:
            yield Word(tuple(atoms[begin : end - 1]))
        if 1 < len(begins) <= TAILS_MAX:
            yield Word(tuple(atoms[begin:]))
    if len(atoms) > len("-f") and _is_one_of(atoms[0], "-") and not _is_one_of(atoms[1], "-"):
        yield Word(tuple(atoms[2:]))


def _atoms(part: Part) -> Iterable[Part]:
    return [Part("text", char) for char in part.text] if part.kind == "text" else [part]


def _is_one_of(atom: Part, chars: str) -> bool:
    return atom.kind == "text" and atom.text in chars


def names_of(word: Word, base: str) -> list[WrittenName]:
    """Return the names of the path that a word which is not literal may be, from the root on."""
    rows: list[list[Part]] = [[]]
    for atom in (atom for part in word.parts for atom in _atoms(part)):
        if _is_one_of(atom, "/"):
            rows.append([])
        else:
            rows[-1].append(atom)
    is_absolute = len(rows) > 1 and not rows[0]
    names = [] if is_absolute else [(name, letters(name)) for name in base.split("/") if name]
    if not is_absolute and rows[0] and rows[0][0].kind == "expansion":
        names = [("", DEEP)]  # the value may be a path, from the root too
    for row in rows:
        text = "".join(atom.text for atom in row)
        if text == "..":
            names = names[:-1]
        elif text not in ("", "."):
            is_any = all(atom.kind == "expansion" for atom in row)
            names.append((text, DEEP if is_any else _name(row)))
    is_root = len(names) > len(_ROOT_OF_ANY) and (names[0][0], names[2][0]) == _ROOT_OF_ANY
    return names[3:] if is_root else names


def _name(row: Sequence[Part]) -> Name:
    tokens: list[Token] = []
    for atom in row:
        if atom.kind == "text":
            tokens += letters(atom.text)
        elif atom.kind == "expansion":
            tokens.append(Token("unknown"))
        else:
            wild = {"*": Token("many"), "?": Token("one")}
            tokens.append(wild.get(atom.text) or one_of(atom.text))
    return tuple(tokens)
