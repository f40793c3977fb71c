"""Actions: the table is total, and an answer is checked and cut off from its plugin."""

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import product
from typing import get_args

import msgspec
import pytest

from cmdc_runtime.extensions import actions, hooks
from cmdc_runtime.extensions.actions import (
    ACTION_BYTES_MAX,
    ACTIONS_MAX,
    COMPOSITION,
    KERNEL_EMITS,
    MATRIX,
    NAME_CHARS_MAX,
    ORDERS_AT,
    Abort,
    Action,
    Actions,
    BadActionError,
    BlockTool,
    Composition,
    Continue,
    Emit,
    Intervene,
    ReplaceMessages,
    ReplaceToolArgs,
    Skip,
    SwitchModel,
    checked_actions,
    may_stop,
    stops_something,
)
from cmdc_runtime.extensions.hooks import HOOKS, AnyHook, Ruling
from cmdc_runtime.messages import Message


class Audited(msgspec.Struct):
    """An event of a plugin's own."""

    length: int


@dataclass
class Rule:
    """A reason that is no data."""

    name: str


class Broken(msgspec.Struct):
    """A reason of a plugin's own."""

    rule: str
    hits: list[int]


def deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


def hook_of(answer):
    """Return a hook that takes the answer's action, if any does."""
    return next(
        (kind for kind in HOOKS if MATRIX.get((kind, type(answer))) is Ruling.TAKEN),
        "before_prompt",
    )


def missing(table, pairs, module=actions):
    """Say which pairs a table lacks, or has too many, and where to put them."""
    return f"{module.__file__}: {sorted(map(str, set(table) ^ set(pairs)))}"


def test_matrix_is_total():
    """The table says for every hook and every action what becomes of it, and nothing else."""
    pairs = set(product(HOOKS, Action.__subclasses__()))

    assert set(MATRIX) == pairs, missing(MATRIX, pairs, hooks)
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
    assert checked_actions(answer, "before_prompt") == actions


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
    [sealed] = checked_actions(emit, "before_prompt")

    assert list(sealed.events()) == events


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (7, "int is no action"),
        ([[]], "list is no action"),
        (Action(), "Action is no action"),
        (Intervene(7), "intervene: Expected `str`, got `int`"),
        (SwitchModel("x:m", []), "switch_model: Expected `object | null`"),
        (SwitchModel("x:m", {"tools": []}), "provider_opts['tools']: it is set by the runtime; "),
        (ReplaceToolArgs({"x": object()}), "replace_tool_args can't be published"),
        (ReplaceMessages(["hi"]), "replace_messages: Expected `object`, got `str`"),
        (Intervene("\ud800"), "intervene can't be published"),
        (Intervene("x" * ACTION_BYTES_MAX), f"more than {ACTION_BYTES_MAX}"),
        (Emit("a", "x" * ACTION_BYTES_MAX), f"more than {ACTION_BYTES_MAX}"),
        (Emit("a", object()), "emit 'a' can't be published"),
        (Emit(""), "emit takes a name of 1 to"),
        (Emit("x" * (NAME_CHARS_MAX + 1)), "emit takes a name of 1 to"),
        (Emit([("a", 1, 2)]), "emit takes a name of 1 to"),
        (Emit(["a"] * (ACTIONS_MAX + 1)), f"more than {ACTIONS_MAX}"),
        ([Continue()] * (ACTIONS_MAX + 1), f"more than {ACTIONS_MAX}"),
    ],
    ids=[
        "number", "list in list", "base", "text", "opts", "tools", "args", "messages", "surrogate",
        "large", "large payload", "payload", "no name", "long name", "triple", "many events",
        "many actions",
    ],
)  # fmt: skip
def test_unfit_answers_are_reported(answer, problem):
    """What the kernel could not carry out is refused, and the error says what is wrong."""
    with pytest.raises(BadActionError) as caught:
        checked_actions(answer, hook_of(answer))

    assert problem in str(caught.value)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("action", [Abort("x"), BlockTool("x"), Skip(), Intervene("x")], ids=repr)
def test_an_action_of_another_hook_is_no_answer(hook, action):
    """What the table refuses is a failure of the plugin, as an answer of the wrong type is."""
    if MATRIX[hook, type(action)] is Ruling.REFUSED:
        with pytest.raises(BadActionError, match=f"{hook} does not take {type(action).__name__}"):
            checked_actions(action, hook)
    else:
        assert checked_actions(action, hook) == (action,)


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("over budget", "over budget"),
        (None, None),
        (2.5, 2.5),
        (2**64 - 1, 2**64 - 1),
        (("a", 1), ["a", 1]),
        ({"rule": "r-1", "hits": [1, (2,)]}, {"rule": "r-1", "hits": [1, [2]]}),
        (Broken(rule="r-1", hits=[1]), {"rule": "r-1", "hits": [1]}),
        ([Broken(rule="r-1", hits=[])], [{"rule": "r-1", "hits": []}]),
        (deep(64), deep(64)),
    ],
    ids=["text", "none", "number", "large", "tuple", "dict", "struct", "structs", "deep"],
)
def test_a_reason_is_any_plain_data(reason, data):
    """It is kept as what is read back."""
    assert checked_actions(Abort(reason), "before_prompt") == (Abort(data),)


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        (float("nan"), "abort: reason: nan is not a finite number"),
        ({"a": {1: "x"}}, "abort: reason: ['a']: a key is of type int, and only str can be kept"),
        (2**64, "abort: reason: it is an integer beyond 64 bits"),
        ("\ud800", "half a surrogate pair"),
        (object(), "abort: reason: a object is no plain value"),
        (deep(65), "abort: reason: it nests more than 64 levels deep"),
        (deep(3000), "abort: reason: it nests more than 64 levels deep"),
        (Broken(rule="r", hits=[object()]), "abort: reason: ['hits'][0]: a object is no plain"),
        ({"seen": {1, 2}}, "abort: reason: ['seen']: a set is no plain value"),
        ([frozenset("a")], "abort: reason: [0]: a frozenset is no plain value"),
        (Broken(rule="r", hits=[{1}]), "abort: reason: ['hits'][0]: a set is no plain value"),
        (date(2026, 1, 1), "abort: reason: a date is no plain value"),
        ([Decimal(1)], "abort: reason: [0]: a Decimal is no plain value"),
        (Rule("r"), "abort: reason: a Rule is no plain value"),
        ("x" * ACTION_BYTES_MAX, "more than 1,048,576"),
    ],
    ids=[
        *("nan", "key", "integer", "surrogate", "object", "deep", "deeper", "struct", "set"),
        *("frozenset", "set in a struct", "date", "decimal", "dataclass", "large"),
    ],
)
def test_a_reason_that_cannot_be_kept_is_no_answer(reason, problem):
    """The error says what of it."""
    with pytest.raises(BadActionError) as caught:
        checked_actions(Abort(reason), "before_prompt")

    assert problem in str(caught.value)


def returning(annotation):
    def method(self, event, context):
        return None

    if annotation is not None:
        method.__annotations__["return"] = annotation
    return method


@pytest.mark.parametrize(
    ("annotation", "kinds", "is_guard"),
    [
        (None, ["before_prompt"], True),
        (None, ["after_turn", "session_end", "before_compact"], False),
        ("Emit | None", ["before_tool"], False),
        (Emit | None, ["before_tool"], False),
        (list[BlockTool | Emit], ["before_tool"], True),
        (list[BlockTool | Emit], ["before_prompt"], False),
        (Awaitable[Abort | None], ["before_prompt"], True),
        (tuple[Emit, ...], ["before_prompt"], False),
        (type(None), ["before_prompt"], False),
        (Action | None, ["before_prompt"], True),
        (Actions, ["before_prompt"], True),
        (list, ["before_prompt"], True),
        (object, ["before_prompt"], True),
        ("NotImported", ["before_prompt"], True),
    ],
    ids=str,
)
def test_a_guard_is_known_by_what_it_may_answer(annotation, kinds, is_guard):
    """By its annotation, and by the table; without a word that can be read it may say anything."""
    assert may_stop(kinds, returning(annotation)) is is_guard


def test_plugin_cannot_change_what_it_said():
    """What was answered is a copy: the plugin may go on with its own objects."""
    args, payload = {"x": [1]}, {"y": [1]}
    replaced, emitted = checked_actions([ReplaceToolArgs(args), Emit("a", payload)], "before_tool")
    args["x"].append(2)
    payload["y"].append(2)

    assert replaced.args == {"x": [1]}
    assert list(emitted.events()) == [("a", {"y": [1]})]


def test_messages_of_a_request_may_be_large():
    """A whole conversation may be replaced: it is neither journaled nor published."""
    message = Message.user("x" * ACTION_BYTES_MAX)
    [sealed] = checked_actions(ReplaceMessages((message,)), "before_request")

    assert list(sealed.messages) == [message]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("order", KERNEL_EMITS)
def test_an_order_at_a_hook_where_it_means_nothing_is_no_answer(hook, order):
    """An approval is asked for before a call; in each form of an emit, alone or among others."""
    payload = {"require_approval": {"hint": "sure?"}}.get(order)
    if payload is None:
        assert order not in ORDERS_AT
        return
    for emit in (Emit(order, payload), Emit([("x", 1), (order, payload)])):
        if hook == "before_tool":
            assert checked_actions(emit, hook) == (emit.sealed(),)
            continue
        with pytest.raises(BadActionError, match=f"{hook} does not take {order}: .*before_tool"):
            checked_actions([emit], hook)


def of_its_own(kind):
    """Return a subclass of a plain type, all of whose methods fail."""

    def refuse(*_args):
        raise AssertionError("a method of the plugin's own class ran")

    names = ("__iter__", "__len__", "__getitem__", "__contains__", "items", "keys", "__repr__")
    return type("Own", (kind,), {**dict.fromkeys(names, refuse), "__class__": property(refuse)})


def test_an_answer_of_classes_of_its_own_is_read_as_what_it_holds():
    """No method of theirs runs, and nothing of them is left."""
    several, mapping, text, pair = (of_its_own(kind) for kind in (list, dict, str, tuple))
    events = several([pair((text("a"), mapping(x=several([1])))), Audited(2)])

    answer = several([Emit(events), Abort(mapping(rule=text("no")))])
    emit, abort = checked_actions(answer, "before_prompt")

    assert (emit, abort) == (
        Emit([("a", {"x": [1]}), ("audited", {"length": 2})]),
        Abort({"rule": "no"}),
    )
    assert {type(emit.name), *map(type, emit.name), type(abort.reason)} == {list, tuple, dict}
    assert stops_something(answer)


def test_what_is_no_action_is_named_without_running_it():
    """Its class is named, whatever it says of itself."""
    with pytest.raises(BadActionError, match="Own is no action"):
        checked_actions(of_its_own(object)(), "before_prompt")
