"""Whatever the public classes are made with: an error is one of the project's, and says what."""

import asyncio
import inspect
import pickle

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio, backends, plugins, reasoning, stores, tools
from cmdc_runtime.checked_struct import Checked, no_such
from cmdc_runtime.errors import CmdcError, InvalidOptions
from cmdc_runtime.events import Envelope
from cmdc_runtime.exports import MODULE_OF
from cmdc_runtime.messages import Message
from cmdc_runtime.packing import BuiltIn, BuiltInPlugin, BuiltInStrategy
from cmdc_runtime.plugins import thinking
from cmdc_runtime.reasoning import ReasoningResult
from tests.e2e.arguments.test_total_arguments import HOSTILE

BASES = (BuiltIn, BuiltInPlugin, BuiltInStrategy)
MODULES = (backends, thinking, plugins, reasoning, stores, tools)
PUBLIC = {name: getattr(cmdc, name) for name in MODULE_OF} | {
    f"{module.__name__}.{name}": kind
    for module in MODULES
    for name, kind in vars(module).items()
    if not name.startswith("_") and inspect.isclass(kind) and kind.__module__ != "typing"
}
STRUCTS = {
    name: kind
    for name, kind in PUBLIC.items()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in BASES
}


def is_reported(kind):
    """Say whether a struct only comes out of the project, and is made by no caller."""
    return kind.__module__.startswith(("cmdc_runtime.events", "cmdc_runtime.reasoning.result"))


MADE = {name: kind for name, kind in STRUCTS.items() if kind is Envelope or not is_reported(kind)}


def refused(make, *args, **given):
    """Return the error of the project that a call ends with, None where it is taken."""
    try:
        make(*args, **given)
    except CmdcError as error:
        str(error).encode()
        return str(error)
    return None


@pytest.mark.parametrize("kind", MADE.values(), ids=MADE)
def test_a_name_that_no_field_has_is_an_error_of_the_project(kind):
    """It names the class or what it stands for, and what there is."""
    assert "no_such_field" in refused(kind, no_such_field=1)
    for field in kind.__struct_fields__:
        if len(field) > 3:
            assert f"did you mean {field}?" in refused(kind, **{f"{field}x": 1})


@pytest.mark.parametrize("kind", MADE.values(), ids=MADE)
def test_whatever_a_class_is_made_with_an_error_is_the_projects(kind):
    """Each field in turn, by its name and by its place, and more than there are."""
    for value in HOSTILE.values():
        for field in kind.__struct_fields__:
            refused(kind, **{field: value})
        refused(kind, value)
    assert refused(kind, *range(50)) is not None
    required = [one.name for one in msgspec.structs.fields(kind) if one.required]

    assert all(name in str(refused(kind)) for name in required)


def test_only_events_are_made_by_no_caller():
    """So that no class escapes the walk."""
    assert {name for name in STRUCTS if STRUCTS[name] not in MADE.values()} == {
        name for name in STRUCTS if is_reported(STRUCTS[name]) and STRUCTS[name] is not Envelope
    }


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_the_calls_of_classes_take_what_is_meant(value):
    """Those that stand on no session: each argument in turn."""
    refused(ReasoningResult.of, value)
    refused(ReasoningResult.of, [], value)
    refused(ReasoningResult.of, [value])
    for kind in (cmdc.Parallel, aio.Parallel):

        def mapped(*args, kind=kind, **given):
            answer = kind.map(*args, **given)
            return asyncio.run(answer) if inspect.isawaitable(answer) else answer

        if value != []:
            assert refused(mapped, "q", value) is not None
        assert refused(mapped, value, [1, 2]) is not None or isinstance(value, str)
        refused(mapped, "q", [], max_parallel=value)
        refused(mapped, "q", [], client=value)
        refused(mapped, ["q"], [{7: value}])


def test_a_struct_is_made_replaced_read_and_sent_as_before():
    """The check is where a caller makes it, and nowhere else."""
    made = Message(role="user", content="x")

    assert msgspec.structs.replace(made, content="y").content == "y"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Message) == made
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"role": "nobody"}, Message)


def test_what_does_not_fit_together_is_reported_by_the_class():
    """As ``__post_init__`` says it."""
    with pytest.raises(InvalidOptions, match="Sqlite: path must be that of a file"):
        stores.Sqlite(path="x/")
    with pytest.raises(InvalidOptions, match=r"Sqlite: path: Expected `str`, got `int`, got 7"):
        stores.Sqlite(path=7)


class Unreadable(msgspec.Struct, metaclass=Checked):
    """Of somebody's own, with an annotation that nobody can read."""

    field: "Nothing"  # noqa: F821 - that it is nothing is what is tried


def test_a_class_that_cannot_be_read_has_the_error_of_its_making():
    """As msgspec says it."""
    with pytest.raises(InvalidOptions, match="Unreadable: Missing required argument 'field'"):
        Unreadable()


def test_a_problem_names_what_may_have_been_meant():
    """Where there is anything like it."""
    assert (
        no_such("modle", ["model"]) == "there is no field 'modle', only model; did you mean model?"
    )
    assert no_such(7, []) == "there is no field 7, only none at all"
