"""What several plugins say together; the tables here are written apart from those in the code.

The last tests change each cell and each word of the code's tables in turn, and find that the tests
above them notice. A change of the code's tables is therefore a change of those here, or it fails.
"""

import itertools

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.extensions import admission
from cmdc_runtime.extensions.actions import (
    COMPOSITION,
    MATRIX,
    Abort,
    BlockTool,
    Composition,
    Continue,
    Emit,
    Intervene,
    ReplaceMessages,
    ReplaceToolArgs,
    ReplaceToolResult,
    RequireApproval,
    Skip,
    SwitchModel,
)
from cmdc_runtime.extensions.hooks import Ruling
from cmdc_runtime.extensions.plugin import Plugin
from cmdc_runtime.messages import Message
from workers.core import verdict as module
from workers.core.verdict import Aborted, Reaction, Verdict, fold, merges_of, stops, with_user_data

HI = Message.user("hi")
BYE = Message.user("bye")
# Every hook takes continue and emit. What else: say, abort, skip, block, args, result, model,
# messages; a dot is an action that is ignored, n is one that is ignored and may be announced.
TAKES = """
    session_start     .  a  .  .  .  .  .  .
    session_end       .  .  .  .  .  .  .  .
    after_turn        .  .  .  .  .  .  .  .
    before_prompt     s  a  k  .  .  .  .  .
    before_request    s  a  k  .  .  .  w  m
    after_response    s  a  k  .  .  .  w  .
    before_tool       .  a  .  b  p  .  w  .
    on_tool_error     .  a  k  .  .  .  n  .
    after_tool        s  a  .  .  .  r  w  .
    after_tool_batch  s  a  .  .  .  .  w  .
    before_finish     s  a  .  .  .  .  .  .
    before_compact    .  .  k  .  .  .  .  .
    before_steering   s  a  .  .  .  .  .  .
"""
# fmt: off
ACTIONS = {
    # what a plugin says             kind                   what it comes to                 stops
    "s": (Intervene("x"),            "intervene",           {"interventions": ("x",)},       False),
    "a": (Abort("x"),                "abort",               {"abort": Aborted("one", "x")},  True),
    "k": (Skip(),                    "skip",                {"skipped": "one"},              True),
    "b": (BlockTool("x"),            "block_tool",          {"blocked": "x"},                True),
    "p": (ReplaceToolArgs({"x": 1}), "replace_tool_args",   {"args": {"x": 1}},              False),
    "r": (ReplaceToolResult("x"),    "replace_tool_result", {"result": ("x", None)},      False),
    "w": (SwitchModel("x", {}),      "switch_model",        {"model": ("x", {})},            False),
    "m": (ReplaceMessages((HI,)),    "replace_messages",    {"messages": (HI,)},             False),
}
# fmt: on
ROWS = [line.split() for line in TAKES.strip().splitlines()]
HOOKS = [row[0] for row in ROWS]
CELLS = [
    (hook, letter, cell)
    for hook, *cells in ROWS
    for letter, cell in zip("sakbprwm", cells, strict=True)
]


def reactions(*answers):
    """Return what plugins one, two … said, each with several actions."""
    names = ("one", "two", "three")
    return [Reaction(name, answer) for name, answer in zip(names, answers, strict=False)]


@pytest.mark.parametrize(("hook", "letter", "cell"), CELLS)
def test_hook_takes_what_the_table_says(hook, letter, cell):
    """An action that its hook takes comes to one thing, and one that it does not is ignored."""
    action, kind, comes_to, is_stop = ACTIONS[letter]
    is_taken = cell == letter
    ignored = Verdict(ignored=(("one", kind),))
    [reaction] = reactions((action,))

    assert fold(hook, [reaction]) == (Verdict(**comes_to) if is_taken else ignored)
    assert stops(hook, reaction) == (is_taken and is_stop)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_takes_continue_and_emit(hook):
    """Going on and notifying observers are possible everywhere."""
    [reaction] = reactions((Continue(), Emit("x", {"y": 1})))

    assert fold(hook, [reaction]) == Verdict(emitted=(("x", {"y": 1}),))
    assert not stops(hook, reaction)
    assert is_admitted(hook, Continue)
    assert is_admitted(hook, Emit)


@pytest.mark.parametrize(("hook", "letter", "cell"), CELLS)
def test_annotation_names_what_the_hook_takes(hook, letter, cell):
    """A plugin that announces another action is refused before its session starts."""
    assert is_admitted(hook, type(ACTIONS[letter][0])) == (cell != ".")


def is_admitted(hook, action):
    """Say whether a plugin may announce this action in the annotation of its method."""

    def method(self, event, context):
        """Answer nothing."""

    method.__annotations__["return"] = action
    refusal = f"plugin 'announcing': {hook} does not take {action.__name__}"
    try:
        admission.as_plugin(type("Announcing", (Plugin,), {hook: method}))
    except InvalidOptions as error:
        return error.problems != (refusal,)
    return True


@pytest.mark.parametrize(
    ("hook", "first", "second", "verdict"),
    [
        ("before_prompt", Intervene("a"), Intervene("b"), Verdict(interventions=("a", "b"))),
        ("before_finish", Emit("a"), Emit(["b", "c"]), Verdict(
            emitted=(("a", None), ("b", None), ("c", None)))),
        ("before_tool", ReplaceToolArgs({"x": 1}), ReplaceToolArgs({}), Verdict(args={})),
        ("after_tool", ReplaceToolResult("a"), ReplaceToolResult(""), Verdict(result=("", None))),
        ("after_tool", SwitchModel("a", {}), SwitchModel("b"), Verdict(model=("b", None))),
        ("before_request", ReplaceMessages((HI,)), ReplaceMessages((BYE,)),
         Verdict(messages=(BYE,))),
        ("before_tool", ReplaceToolArgs({"x": 1}), BlockTool("b"),
         Verdict(args={"x": 1}, blocked="b")),
        ("before_prompt", Skip(), Intervene("b"), Verdict(skipped="one")),
        ("before_prompt", Abort("a"), Intervene("b"), Verdict(abort=Aborted("one", "a"))),
        ("before_tool", BlockTool("a"), BlockTool("b"), Verdict(blocked="a")),
        ("before_tool", Skip(), BlockTool("b"), Verdict(ignored=(("one", "skip"),), blocked="b")),
    ],
    ids=[
        "texts", "events", "args", "results", "models", "messages", "block at last", "skip",
        "abort", "block", "skip that is ignored",
    ],
)  # fmt: skip
def test_two_plugins_together(hook, first, second, verdict):
    """Texts and events collect, of others the last counts, and a stop leaves out who follows."""
    assert fold(hook, reactions((first,), (second,))) == verdict


def test_all_actions_of_one_answer_count():
    """A plugin that aborts may notify observers too, in whatever order it says so."""
    verdict = fold("before_tool", reactions((Abort("a"), Emit("b"), BlockTool("c"))))

    assert verdict == Verdict(abort=Aborted("one", "a"), emitted=(("b", None),), blocked="c")


def test_interventions_are_one_text():
    """What several plugins want to say is joined by a blank line, and nothing is no text."""
    assert fold("before_prompt", reactions((Intervene("a"),), (Intervene("b"),))).text == "a\n\nb"
    assert Verdict().text == ""


@pytest.mark.parametrize(
    ("hook", "fail", "abort"),
    [
        ("before_tool", "open", None),
        ("before_tool", "disable", None),
        (
            "before_tool",
            "closed",
            Aborted("one", "plugin one failed at before_tool: ValueError: no"),
        ),
        ("after_turn", "closed", None),
    ],
)
def test_failure_means_what_its_plugin_says(hook, fail, abort):
    """It is reported, and aborts where the plugin fails closed and the hook takes an abort."""
    failed = Reaction("one", error="ValueError: no", fail=fail)
    verdict = fold(hook, [failed, Reaction("two", (Emit("seen"),))])

    assert verdict.crashed == (("one", hook, "ValueError: no"),)
    assert verdict.abort == abort
    assert verdict.emitted == (() if abort else (("seen", None),))
    assert stops(hook, failed) == (abort is not None)


@pytest.mark.parametrize(
    ("event", "user_data", "emitted"),
    [
        (("a", {"x": 1}), {"id": 7}, ("a", {"x": 1, "user_data": {"id": 7}})),
        (("a", {"x": 1}), {}, ("a", {"x": 1})),
        (("a", {"x": 1, "_no_user_data": True}), {"id": 7}, ("a", {"x": 1})),
        (("a", [1]), {"id": 7}, ("a", [1])),
        (("a", 5), {"id": 7}, ("a", 5)),
        (("memory_contents", {"a.md": ""}), {"id": 7}, ("memory_contents", {"a.md": ""})),
    ],
    ids=["dict", "no user data", "declined", "no dict", "a number", "for the kernel"],
)
def test_user_data_goes_into_payloads(event, user_data, emitted):
    """Observers read whose session it was, unless the payload declines or the kernel reads it."""
    assert with_user_data([event], user_data) == (emitted,)


@pytest.mark.parametrize(
    ("action", "merges"),
    [
        (Abort("x"), 0),
        (Emit("a", {"x": 1}), 1),
        (Emit("a", {"x": 1, "_no_user_data": True}), 0),
        (Emit("a", 5), 0),
        (Emit("memory_contents", {"contents": {}}), 0),
    ],
    ids=["no event", "dict", "declined", "no dict", "for the kernel"],
)
def test_what_user_data_adds_can_be_counted_before(action, merges):
    """By the same rule: the bound on an action has to know."""
    assert merges_of(action) == merges


ASKED = RequireApproval(hint="sure?")
ASKS = Emit([("seen", 1), ASKED, ("more", 2)]).sealed()
ASKS_TOO = Emit(RequireApproval(hint="really?")).sealed()


def test_a_call_needs_the_approval_that_the_first_plugin_asks_for():
    """Observers hear what else stands in the same emit, and not the order to the kernel."""
    verdict = fold("before_tool", reactions((ASKS,), (ASKS_TOO,)))

    assert verdict == Verdict(approval=ASKED, emitted=(("seen", 1), ("more", 2)))


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook != "before_tool"])
def test_an_approval_is_for_a_call_that_is_about_to_run(hook):
    """Asked for anywhere else it is ignored, and the verdict names its plugin."""
    verdict = fold(hook, reactions((ASKS,)))

    assert verdict.approval is None
    assert verdict.ignored == (("one", "require_approval"),)
    assert verdict.emitted == (("seen", 1), ("more", 2))


# --- the tests above notice every change of the tables --------------------------------------------


def failing(test, keep):
    """Yield the arguments with which a test fails, of those that are to be kept."""
    [mark] = test.pytestmark
    names, rows = mark.args
    for row in rows:
        arguments = (row,) if isinstance(names, str) else row
        if not keep(arguments):
            continue
        try:
            test(*arguments)
        except Exception:  # noqa: BLE001 - whatever the changed table leads to
            yield arguments


def test_tables_are_total():
    """Each of the thirteen hooks has a word about each of the ten actions."""
    actions = {Continue, Emit, *(type(row[0]) for row in ACTIONS.values())}

    assert set(MATRIX) == set(itertools.product(HOOKS, actions))
    assert (len(HOOKS), len(actions), len(MATRIX)) == (13, 10, 130)
    assert set(COMPOSITION) == actions


@pytest.mark.parametrize("hook", HOOKS)
def test_every_change_of_a_cell_is_noticed(hook, monkeypatch):
    """Each cell of a row is given each word that it does not have: some test fails."""
    tests = [
        test_hook_takes_what_the_table_says,
        test_annotation_names_what_the_hook_takes,
        test_every_hook_takes_continue_and_emit,
    ]
    survivors = []
    for cell, word in itertools.product((cell for cell in MATRIX if cell[0] == hook), Ruling):
        changed = {**MATRIX, cell: word}
        monkeypatch.setattr(module, "MATRIX", changed)
        monkeypatch.setattr(admission, "MATRIX", changed)
        found = (failing(test, lambda arguments: arguments[0] == hook) for test in tests)
        is_noticed = next(itertools.chain(*found), None) is not None
        if is_noticed == (word is MATRIX[cell]):
            survivors.append((cell[0], cell[1].__name__, str(word)))

    assert survivors == []


@pytest.mark.parametrize("action", COMPOSITION, ids=lambda action: action.__name__)
def test_every_change_of_a_composition_is_noticed(action, monkeypatch):
    """Each action is given each word that it does not have: some test fails."""
    tests = [
        test_two_plugins_together,
        test_every_hook_takes_continue_and_emit,
        test_hook_takes_what_the_table_says,
    ]
    survivors = []
    for word in Composition:
        monkeypatch.setattr(module, "COMPOSITION", {**COMPOSITION, action: word})
        found = (failing(test, lambda _: True) for test in tests)
        is_noticed = next(itertools.chain(*found), None) is not None
        if is_noticed == (word is COMPOSITION[action]):
            survivors.append((action.__name__, str(word)))

    assert survivors == []
