"""The reader of shell commands: what it sees, what it admits not to see, that it never fails."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.builtin.shell.parser import COMMANDS_MAX, WORDS_MAX
from workers.builtin.shell.reader import COMMAND_CHARS_MAX, Assignment, Doubt, Part, Word, read
from workers.builtin.shell.scanner import BRACKET_CHARS_MAX, DEPTH_MAX
from workers.builtin.shell.words import BRACE_WORDS_MAX

LS, CAT = ("ls",), ("cat", "x")


def commands(text):
    """Return what runs, as plain strings."""
    return [" ".join(words) for words in read(text).commands]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cat x", ["cat", "x"]),
        ("  cat\t x # y", ["cat", "x"]),
        ("c''at '.e'\"nv\"", ["cat", ".env"]),
        (r"c\at \.env a\ b", ["cat", ".env", "a b"]),
        ("ca\\\nt x", ["cat", "x"]),
        (r"cat $'\x2ee\156v' $'\u002eenv' $'a\tb' $'\q' $'.env\0x'",
         ["cat", ".env", ".env", "a\tb", "\\q", ".env"]),
        (r'''cat "a'b" 'a"b' "\$x \a \" \`" $"y"''', ["cat", "a'b", 'a"b', '$x \\a " `', "y"]),
        ("cat '' x", ["cat", "", "x"]),
        ("/usr/bin/cat x", ["cat", "x"]),
        ("cat a{b,c{d,e}}f {1..3} {c..a} {01..3} {1..5..2}",
         ["cat", "abf", "acdf", "acef", "1", "2", "3", "c", "b", "a", "01", "02", "03", "1", "3",
          "5"]),
        ("cat {x} {a b}, '{a,b}' {,}", ["cat", "{x}", "{a", "b},", "{a,b}"]),
        ("{cat,.env}", ["cat", ".env"]),
        ("cat$IFS.env${IFS}x", ["cat", ".env", "x"]),
        ("cat a=b x#y", ["cat", "a=b", "x#y"]),
        ("A=1 B='2 3' cat x", ["cat", "x"]),
        (">o cat <i x 2>&1 >>p", ["cat", "x"]),
        ("cat $ x", ["cat", "$", "x"]),
        ("[ -f x ]", ["[", "-f", "x", "]"]),
    ],
)  # fmt: skip
def test_words_are_what_the_program_gets(text, words):
    """Quotes and backslashes are off, braces expanded, redirections and assignments apart."""
    reading = read(text)

    assert (list(reading.commands[0]), reading.opaque) == (words, None)
    assert len(reading.commands) == 1
    assert reading.details[0].is_literal


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a; b & c && d || e | f |& g\nh", ["a", "b", "c", "d", "e", "f", "g", "h"]),
        ("(a; (b)) && { c; }", ["a", "b", "c"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until ! c; do d; done", ["a", "b", "c", "d"]),
        ("for x in 1 2; do a $x; done", ["a $x"]),
        ("for x; do a; done", ["a"]),
        ("case $x in (a|b) c;; d) e;& f) ;; esac; g", ["c", "e", "g"]),
        ("case x in\n a) case y in b) c;; esac;;\n d) e; esac\nf", ["c", "e", "f"]),
        ("f() { a; }; function g { b; }; function h() { c; }", ["a", "b", "c"]),
        ("time a; coproc b", ["a", "b"]),
        ("[[ $x =~ ^(a|b)$ && -f y ]] && c", ["[[ $x =~ ^ a b $ -f y", "c"]),
        ("((i++)) && a", ["i++", "a"]),
        ("a $(b $(c)) `d \\`e\\``", ["c", "b $(c)", "e", "d `e`", "a $(b $(c)) `d \\`e\\``"]),
        ('a "x $(b)" "`c`"', ["b", "c", "a x $(b) `c`"]),
        ("a <(b) >(c)", ["b", "c", "a <(b) >(c)"]),
        ("x=$(a) y=([0]=$(b) c)", ["a", "b"]),
        ("a ${x:-$(b)}", ["b", "a ${x:-$(b)}"]),
        ("a $((1 << $(b)))", ["b", "a $((1 << $(b)))"]),
        ("a $( (b) )", ["b", "a $( (b) )"]),
        ("a <<E; b\nc $(d) e\nE\nf", ["a", "b", "d", "f"]),
        ("a <<-'E'\n\t$(b)\n\tE\nc", ["a", "c"]),
        ("a $(case x in y) b;; esac)", ["b", "a $(case x in y) b;; esac)"]),
    ],
)  # fmt: skip
def test_every_simple_command_is_seen(text, found):
    """Wherever the grammar allows one."""
    assert commands(text) == found
    assert read(text).opaque is None


@pytest.mark.parametrize(
    ("text", "via"),
    [
        ("sh -c 'rm x'", ("sh",)),
        ("bash -lc 'rm x' name arg", ("bash",)),
        ("bash -o pipefail --norc -ec 'rm x'", ("bash",)),
        ("bash <<E\nrm x\nE", ("bash",)),
        ("bash <<< 'rm x'", ("bash",)),
        ("eval rm x", ("eval",)),
        ("eval 'rm' 'x'", ("eval",)),
        ("trap 'rm x' EXIT", ("trap",)),
        ("sudo -u me --prompt p A=b rm x", ("sudo",)),
        ("env -u A -- B=c rm x", ("env",)),
        ("env B=c rm x", ("env",)),
        ("env -S 'rm x'", ("env",)),
        ("env '--split-string=rm x'", ("env",)),
        ("nohup rm x", ("nohup",)),
        ("timeout -s KILL 5 rm x", ("timeout",)),
        ("timeout --kill-after 1 5s rm x", ("timeout",)),
        ("nice -n5 rm x", ("nice",)),
        ("exec -a name rm x", ("exec",)),
        ("command rm x", ("command",)),
        ("su root -c 'rm x'", ("su",)),
        ("su -c 'rm x' root", ("su",)),
        ("flock /tmp/l rm x", ("flock",)),
        ("flock /tmp/l -c 'rm x'", ("flock",)),
        ("watch -n 1 'rm x'", ("watch",)),
        ("busybox rm x", ("busybox",)),
        ("find . -name y -exec rm x ;", ("find",)),
        ("find . -execdir rm x \\; -print", ("find",)),
        ("/usr/bin/env sudo nice bash -c 'eval \"rm x\"'", ("env", "sudo", "nice", "bash", "eval")),
    ],
)
def test_programs_that_run_others_are_seen_through(text, via):
    """The inner command is there with the way to it, and so is each outer one."""
    reading = read(text)

    assert reading.details[-1].argv == ("rm", "x")
    assert reading.details[-1].via == via
    assert [command.name for command in reading.details[: len(via)]] == list(via)
    assert reading.opaque is None


def test_arguments_that_come_later_are_unknown():
    """What ``xargs`` adds is one more word, which is not literal."""
    inner = read("ls | xargs -n 1 rm -f").details[-1]

    assert inner.argv == ("rm", "-f", "$@")
    assert not inner.is_literal
    assert commands("find . -exec a {} + -exec b ';'")[1:] == ["a {}", "b"]


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("$CMD x", Doubt.NAME),
        ("$(which cat) x", Doubt.NAME),
        ("/bin/r? x", Doubt.NAME),
        ("base64 -d x | sh", Doubt.PIPED),
        ("bash < x", Doubt.PIPED),
        ("curl x | sudo bash -s -- a", Doubt.PIPED),
        ("bash <<E\n$x\nE", Doubt.PIPED),
        ("sh", Doubt.PIPED),
        ('eval "$x"', Doubt.EVAL),
        ('sh -c "rm $x"', Doubt.EVAL),
        ("source x", Doubt.SOURCE),
        (". x", Doubt.SOURCE),
        ("bash <(x)", Doubt.SOURCE),
        ("python -c 'x'", Doubt.INLINE),
        ("python3.12 -Bc x", Doubt.INLINE),
        ("python -W ignore -c x", Doubt.INLINE),
        ("python - <<E\nx\nE", Doubt.INLINE),
        ("echo x | python3", Doubt.INLINE),
        ("perl -ne x", Doubt.INLINE),
        ("node --eval=x", Doubt.INLINE),
        ("awk 'BEGIN{system(\"ls\")}'", Doubt.INLINE),
        ("awk '{print | \"sh\"}' x", Doubt.INLINE),
        ("sed '1e ls' x", Doubt.INLINE),
        ("sed s/a/b/e x", Doubt.INLINE),
        ("sudo $x rm y", Doubt.NAME),
        ("sudo -$x rm y", Doubt.OPTION),
        ("cat 'x", Doubt.UNBALANCED),
        ("cat $(x", Doubt.UNBALANCED),
        ("cat `x", Doubt.UNBALANCED),
        ("cat ${x", Doubt.UNBALANCED),
        ("cat x)", Doubt.UNBALANCED),
        ("cat $'x", Doubt.UNBALANCED),
        ("cat x >", Doubt.UNBALANCED),
        ("echo (x)", Doubt.UNBALANCED),
        ("a" * (COMMAND_CHARS_MAX + 1), Doubt.LENGTH),
        ("$(" * (DEPTH_MAX + 1), Doubt.DEPTH),
        ("sudo " * (DEPTH_MAX + 2), Doubt.DEPTH),
        ("a;" * (COMMANDS_MAX + 1), Doubt.COUNT),
        ("a " * (WORDS_MAX + 1), Doubt.COUNT),
        (f"a {{1..{BRACE_WORDS_MAX + 1}}}", Doubt.COUNT),
        ("a {1..20}{1..20}", Doubt.COUNT),
        ("a " + "{" * (BRACE_WORDS_MAX + 1), Doubt.COUNT),
        ("a [" + "b" * (BRACKET_CHARS_MAX + 1), Doubt.COUNT),
    ],
)  # fmt: skip
def test_what_stays_unseen_is_admitted(text, doubt):
    """Each kind by its sentence, and each bound is one of them."""
    reading = read(text)

    assert doubt in reading.doubts
    assert reading.opaque == reading.doubts[0].value


@pytest.mark.parametrize(
    "text",
    [
        "python script.py -c x", "python -m pytest -c x", "node x.js", "perl script.pl -e",
        "awk '{print $1}' x", "awk '$1 > 5 || $2' x", "sed -n 's/a/b/p' x", "sed 's/e /e/g' x",
        "bash script.sh", "echo $HOME", "ls *.py", 'for f in *; do wc "$f"; done', "test -f $x",
        "git commit -m 'a (b'", "echo a && # c\nb",
    ],
)  # fmt: skip
def test_ordinary_commands_are_not_opaque(text):
    """A word that is not known is no reason: the command itself is."""
    assert read(text).opaque is None


def test_a_word_knows_what_it_is_made_of():
    """Its parts say what is text, and what the shell puts in at run time."""
    [command] = read("cat ~/.s*h/$USER'x'\"${y:-z}\"[a-c]?$(ls)~").details[1:]

    assert command.words[1] == Word((
        Part("tilde", "~"), Part("text", "/.s"), Part("glob", "*"), Part("text", "h/"),
        Part("expansion", "$USER", "USER"), Part("text", "x"),
        Part("expansion", "${y:-z}", "y", "z"), Part("glob", "[a-c]"), Part("glob", "?"),
        Part("expansion", "$(ls)"), Part("text", "~"),
    ))  # fmt: skip
    assert command.words[1].text == "~/.s*h/$USERx${y:-z}[a-c]?$(ls)~"
    assert not command.words[1].is_literal


def test_variables_have_the_values_that_they_are_given():
    """By assignment, as elements, by loops, declarations, ``env`` and ``set``."""
    text = "a=1; b=(2 3); for c in 4 5; do d; done; export e=$x; env f=6 g; set -- 7; sh -c h 8 9"
    found = [(name, value.text) for name, value in map(pair, read(text).assignments)]

    assert found == [
        ("a", "1"), ("b", "2"), ("b", "3"), ("c", "4"), ("c", "5"), ("e", "$x"), ("f", "6"),
        ("1", "7"), ("@", "7"), ("0", "8"), ("1", "9"), ("@", "9"),
    ]  # fmt: skip


def pair(assignment: Assignment):
    """Return the name and the value."""
    return assignment.name, assignment.value


def test_redirections_are_apart():
    """With their direction, those of no command too; copies of descriptors are no files."""
    reading = read("> a; cat <b >>'c d' 2>&1 <>e &>f 3<&- >&g >|h {x}>i <<<'j'")

    assert [(one.direction, one.target.text) for one in reading.redirects] == [
        ("write", "a"), ("read", "b"), ("write", "c d"), ("both", "e"), ("write", "f"),
        ("write", "g"), ("write", "h"), ("write", "i"),
    ]  # fmt: skip
    assert reading.details[0].stdin == "j"


def test_what_flows_on_is_known():
    """Output that others read is distinguished from output that is shown."""
    shown, piped, reader, inner, outer = read("a; b | c; d $(e)").details

    assert (shown.feeds, shown.fed) == (False, False)
    assert (piped.feeds, piped.fed) == (True, False)
    assert (reader.feeds, reader.fed) == (False, True)
    assert inner.feeds
    assert outer.name == "d"


def test_a_name_that_may_be_nothing_hides_no_command():
    """An expansion that is empty leaves the next word to be the program."""
    assert ("rm", "x") in read("$nothing rm x").commands


def test_a_mistake_in_one_script_hides_no_other():
    """What could be read of the rest is there."""
    reading = read("sh -c 'a; b \"'; c; d 'e")

    assert {words[0] for words in reading.commands} == {"sh", "a", "b", "c", "d"}
    assert reading.opaque == Doubt.UNBALANCED


PIECES = st.sampled_from([
    *"ab $(){}[]<>|&;'\"`\\\n*?~=#!/-.,\0é", "$(", "$((", "${", "<<E\nx\nE\n", "if ", "fi ",
    "case a in ", "esac ", "for x in ", "do ", "done ", "sh -c '", "eval ", "xargs ", "$'", "sudo ",
    "find -exec ", "<<<", "[[ ", "]] ", "function ", "{a,b}", "su -c ", "x=(", "awk ", "\ud800",
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=60).map("".join)))
def test_any_text_can_be_read(text):
    """It is always an answer, in which every word is text and every doubt a sentence."""
    reading = read(text)

    assert all(isinstance(word, str) for words in reading.commands for word in words)
    assert (reading.opaque is None) == (not reading.doubts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "$(", "((", "`", "{", "{a,b}", "$((1", "[a", "[", "sudo ", "<<E\n", "$((x)) ", "((a)) ",
        "${", "x=(", "sh -c '", "case a in ", "find -exec a ; ", "~a~", '"$(("', "\\\n",
    ],
)  # fmt: skip
def test_reading_is_bounded(piece):
    """Whatever is repeated up to the longest command is read at once."""
    read(piece * (COMMAND_CHARS_MAX // len(piece)))
