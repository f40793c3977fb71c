"""Actions: the table is total, and an answer is checked and cut off from its plugin."""

from itertools import product
from typing import get_args

import msgspec
import pytest

from cmdc_runtime.extensions import actions
from cmdc_runtime.extensions.actions import (
    ACTION_BYTES_MAX,
    ACTIONS_MAX,
    COMPOSITION,
    MATRIX,
    NAME_CHARS_MAX,
    Action,
    BadActionError,
    Composition,
    Continue,
    Emit,
    Intervene,
    ReplaceMessages,
    ReplaceToolArgs,
    Ruling,
    SwitchModel,
    settled,
)
from cmdc_runtime.extensions.hooks import HOOKS, AnyHook
from cmdc_runtime.messages import Message


class Audited(msgspec.Struct):
    """An event of a plugin's own."""

    length: int


def missing(table, pairs):
    """Tell which pairs a table lacks, or has too many, and where to put them."""
    return f"{actions.__file__}: {sorted(map(str, set(table) ^ set(pairs)))}"


def test_matrix_is_total():
    """The table says for every hook and every action what becomes of it, and nothing else."""
    pairs = set(product(HOOKS, Action.__subclasses__()))

    assert set(MATRIX) == pairs, missing(MATRIX, pairs)
    assert set(HOOKS.values()) == set(get_args(AnyHook))


def test_composition_is_total():
    """The table says for every action what several of them amount to."""
    assert set(COMPOSITION) == set(Action.__subclasses__()), missing(
        COMPOSITION, Action.__subclasses__()
    )
    assert {*COMPOSITION.values()} == {*Composition}
    assert {*MATRIX.values()} == {*Ruling}


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        (None, ()),
        ([], ()),
        (Continue(), (Continue(),)),
        ([Intervene("a"), None, Intervene("b")], (Intervene("a"), Intervene("b"))),
        ((Intervene("a"),), (Intervene("a"),)),
    ],
    ids=["none", "empty", "one", "list", "tuple"],
)
def test_answer_is_none_one_or_several(answer, actions):
    """None is no action, and a list is several."""
    assert settled(answer) == actions


@pytest.mark.parametrize(
    ("emit", "events"),
    [
        (Emit("a"), [("a", None)]),
        (Emit("a", {"x": 1}), [("a", {"x": 1})]),
        (Emit(("a", {"x": 1})), [("a", {"x": 1})]),
        (Emit(Audited(length=3)), [("audited", {"length": 3})]),
        (
            Emit(["a", ("b", 2), Audited(length=3)]),
            [("a", None), ("b", 2), ("audited", {"length": 3})],
        ),
    ],
    ids=["name", "name and payload", "pair", "struct", "list"],
)
def test_emit_has_five_forms(emit, events):
    """A name, a name with its payload, a pair, a Struct, and a list of these."""
    [sealed] = settled(emit)

    assert list(sealed.events()) == events


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (7, "int is no action"),
        ([[]], "list is no action"),
        (Action(), "Action is no action"),
        (Intervene(7), "intervene: Expected `str`, got `int`"),
        (SwitchModel("m", []), "switch_model: Expected `object | null`"),
        (ReplaceToolArgs({"x": object()}), "replace_tool_args can't be told"),
        (ReplaceMessages(["hi"]), "replace_messages: Expected `object`, got `str`"),
        (Intervene("\ud800"), "intervene can't be told"),
        (Intervene("x" * ACTION_BYTES_MAX), f"more than {ACTION_BYTES_MAX}"),
        (Emit("a", "x" * ACTION_BYTES_MAX), f"more than {ACTION_BYTES_MAX}"),
        (Emit("a", object()), "emit 'a' can't be told"),
        (Emit(""), "emit takes a name of 1 to"),
        (Emit("x" * (NAME_CHARS_MAX + 1)), "emit takes a name of 1 to"),
        (Emit([("a", 1, 2)]), "emit takes a name of 1 to"),
        (Emit(["a"] * (ACTIONS_MAX + 1)), f"more than {ACTIONS_MAX}"),
        ([Continue()] * (ACTIONS_MAX + 1), f"more than {ACTIONS_MAX}"),
    ],
    ids=[
        "number", "list in list", "base", "text", "opts", "args", "messages", "surrogate",
        "large", "large payload", "payload", "no name", "long name", "triple", "many events",
        "many actions",
    ],
)  # fmt: skip
def test_unfit_answers_are_told(answer, problem):
    """What the kernel could not carry out is refused, and the error says what is wrong."""
    with pytest.raises(BadActionError) as caught:
        settled(answer)

    assert problem in str(caught.value)


def test_plugin_cannot_change_what_it_said():
    """What was answered is a copy: the plugin may go on with its own objects."""
    args, payload = {"x": [1]}, {"y": [1]}
    replaced, emitted = settled([ReplaceToolArgs(args), Emit("a", payload)])
    args["x"].append(2)
    payload["y"].append(2)

    assert replaced.args == {"x": [1]}
    assert list(emitted.events()) == [("a", {"y": [1]})]


def test_messages_of_a_request_may_be_large():
    """A whole conversation may be replaced: it is neither journaled nor told."""
    message = Message.user("x" * ACTION_BYTES_MAX)
    [sealed] = settled(ReplaceMessages((message,)))

    assert list(sealed.messages) == [message]
