"""Where bash's own reading surprises: each text, and the commands that bash 5.2 runs of it."""

import pytest

from workers.builtin.shell.reader import COMMAND_CHARS_MAX, Doubt, read


def commands(text):
    """Return what runs, as plain strings."""
    return [" ".join(words) for words in read(text).commands]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # An operator or a blank that is not quoted ends a word, in brackets too.
        ("a [b;c;]", ["a [b", "c", "]"]),
        ("a [b&c]", ["a [b", "c]"]),
        ("a [b c]", ["a [b c]"]),
        ("a [';'b\\;]", ["a [;b;]"]),
        ("a <<<[b;c]", ["a", "c]"]),
        ("case a in [';'b]) c;; esac", ["c"]),
        ('a ["$(b)"]', ["b", "a [$(b)]"]),
        # A carriage return and its like are no blanks.
        ("a\r#; b", ["a\r#", "b"]),
        ("a \r#; b", ["a \r#", "b"]),
        ("a\v#; b", ["a\v#", "b"]),
        # A backslash at the end of a line joins the next one.
        ("a $\\\n(b)", ["b", "a $(b)"]),
        ("a $(\\\n(1+$(b)))", ["b", "a $((1+$(b)))"]),
        ("a $\\\n{x:-$(b)}", ["b", "a ${x:-$(b)}"]),
        ('a "$\\\n(b)"', ["b", "a $(b)"]),
        ("a &\\\n& b", ["a", "b"]),
        ("i\\\nf a; the\\\nn b; f\\\ni", ["a", "b"]),
        ("a <\\\n<\\\nE\nb\nE\nc", ["a", "c"]),
        ("a <<E\\\nF\nb\nEF\nc", ["a", "c"]),
        ("a <<E\nE\\\n\nb", ["a", "b"]),
        ("a <<E\nb\\\nE\nE\nc", ["a", "c"]),
        ("a <<'E'\nE\\\n\nE\nb", ["a", "b"]),
        ("a # b \\\nc", ["a", "c"]),
        ("a 'b\\\nc' $'b\\\nc' \"b\\\nc\"", ["a b\\\nc b\\\nc bc"]),
        # The last character of a text escapes nothing.
        ("a\\", ["a\\"]),
        ("a b\\", ["a b\\"]),
        # Arithmetic, of the old kind and with quotes.
        ("a $[1+$(b)]", ["b", "a $[1+$(b)]"]),
        ("a $[x[1]+`b`]; c", ["b", "a $[x[1]+`b`]", "c"]),
        ("a $((\"(\")); b; a $((')'))", ['a $(("("))', "b", "a $((')'))"]),
        ("a $((')'+$(b)))", ["b", "a $((')'+$(b)))"]),
        ("a $((b); (c))", ["b", "c", "a $((b); (c))"]),
        # What is in braces.
        ("a \"${x:-'$(b)'}\"", ["b", "a ${x:-'$(b)'}"]),
        ("a ${x:-'$(b)'}", ["a ${x:-'$(b)'}"]),
        ("a ${x-<(b)}", ["b", "a ${x-<(b)}"]),
        ("a ${ b; }", ["b", "a ${ b; }"]),
        ("a ${| b; }", ["b", "a ${| b; }"]),
        # Subscripts hide operators and comments, values do not end at their parenthesis.
        ("x[ # ]=1; a", ["a"]),
        ("x[$(a)]=1", ["a"]),
        ("x[;]=1; a", ["a"]),
        ("declare x[;a", ["declare x[", "a"]),
        ("x=(a)#b; c", ["c"]),
        ("x=([#]=$(a)); b", ["a", "b"]),
        # Words that are the grammar's own in their place only.
        ("time -p a; time -- b; c", ["a", "b", "c"]),
        ("a | time -f b c", ["a", "time -f b c", "c"]),
        ("coproc N { a; }; b", ["a", "b"]),
        ("coproc a b", ["a b"]),
        ("x= if; a", ["if", "a"]),
        (">&1 then; <<E else\nE\na", ["then", "else", "a"]),
        ("a 1&>b", ["a 1"]),
        ("1&>b", ["1"]),
        ("[[ a == ]]b || c ]] && d", ["[[ a == ]]b c", "d"]),
        ("[[ a ==\nb ]]; c", ["[[ a == b", "c"]),
        # Where here-documents stand.
        ("a <<E; case x in\nb)\nE\nx) c;; esac", ["a", "c"]),
        ("a <<E $(b\nc)\nd\nE\ne", ["b", "c", "a $(b\nc)", "e"]),
        ("a $(b <<E)\nc\nE\nd", ["b", "a $(b <<E)", "d"]),
        # Definitions of functions.
        ("function f (a); b", ["a", "b"]),
        ("f()\n{ a; }; b", ["a", "b"]),
        # A brace ends behind a comma or two dots only.
        ("a b{},c} {d},e} {{}},f} {},g}", ["a b} bc d} e {}} f {},g}"]),
        ("a {b..{,}c} {b..c..d} {b..}", ["a b..c b..c {b..c..d} {b..}"]),
        ("a {b}{c,d} {e},{f,g} {h} {1..2}", ["a {b}c {b}d {e},f {e},g {h} 1 2"]),
        # Wrappers.
        ("env - a", ["env - a", "a"]),
        ("env -i - a", ["env -i - a", "a"]),
    ],
)
def test_commands_are_those_that_bash_runs(text, found):
    """No more quoting, joining or commenting than bash sees, and no less."""
    assert commands(text) == found
    assert read(text).opaque is None


@pytest.mark.parametrize(
    "text",
    [
        "[[ a && # '\n b ]]; c #'",
        "[[ a == @(b #c) ]]; d",
        "shopt -s extglob\nx=@(a #b); c\n)",
        "x=(a;b)",
        "x=(<\nb",
        "x=(a",
        "x[a; b",
        "a $[1",
        "a $((1",
        "((<<E\nE\n) | a)\nb\nE",
        ">a (b)",
        "x=1 (b)",
    ],
)
def test_what_bash_may_read_otherwise_is_not_decided(text):
    """Patterns, comments and documents that only a running shell distinguishes."""
    assert Doubt.UNBALANCED in read(text).doubts


def test_operators_in_old_arithmetic_are_commands_of_other_shells():
    """Of bash they are a part of the sum."""
    assert commands("a $[1;b 2]") == ["1", "b 2", "a $[1;b 2]"]


def test_a_tilde_that_braces_bring_to_the_front_is_the_home():
    """One that is quoted or stays inside a word is not."""
    words = read("a {b,~}/c ~{/d,} {b~,'~'}").details[0].words[1:]

    assert [word.text for word in words] == ["b/c", "~/c", "~/d", "~", "b~", "~"]
    assert [word.is_literal for word in words] == [True, False, False, False, True, True]


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("f() { a; }", ("f",)),
        ("f ( ) (a)", ("f",)),
        ("function g { a; }; function h() { b; }", ("g", "h")),
        ("f\\\n() { a; }; f() { b; }", ("f",)),
        ("eval 'f() { a; }'", ("f",)),
        ("a $(f() { b; }; f)", ("f",)),
        ("a 'f()' {f,}; echo function f", ()),
        ("a $((f()+1) )", ("f",)),
    ],
)
def test_definitions_of_functions_are_reported(text, functions):
    """By name, wherever they stand."""
    assert read(text).functions == functions


@pytest.mark.parametrize(
    "text",
    [
        'f() { "$@"; }; f rm x',
        "function f { shift 2; $*; }; f 1 2 rm x",
        "f() { sudo $1 $2; }; $3 y; f rm x",
        'set -- rm x; "$@"',
        "set -- -v rm x; shift; $1 x",
        "sh -c '\"$@\"' name rm x",
        'f() { g "$@"; }; g() { "$@"; }; f rm x',
    ],
)
def test_arguments_that_a_body_runs_are_commands(text):
    """Such as functions that log what they run."""
    reading = read(text)

    assert ("rm", "x") in reading.commands
    assert Doubt.NAME in reading.doubts


def test_arguments_of_other_functions_are_values_only():
    """They are what ``$1`` and ``$@`` stand for."""
    reading = read('f() { echo "$1"; }; f rm x')

    assert reading.commands == (("echo", "$1"), ("f", "rm", "x"))
    assert [(one.name, one.value.text) for one in reading.assignments] == [
        ("1", "rm"), ("2", "x"), ("@", "rm"), ("@", "x"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        'f() { f "$@"; };', "set -- a b c d;$@;", "f(){ $@;};f f f f f;", "$(( a ) ", "(( a ) ;",
        "x[", "$[", "x[$(",
        "\\\n'a'", "a\\\n", "${x-<(", "[[ a ", "~{,", "{a..", "{a..{,}", "((<<E\n", "x=(a)#",
    ],
)  # fmt: skip
def test_reading_is_bounded(piece):
    """Whatever is repeated up to the longest command is read at once."""
    read(piece * (COMMAND_CHARS_MAX // len(piece)))
    read('f() { $@; f "$@"; }; ' + piece * 1000)
