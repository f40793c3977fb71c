"""The public names."""

import ast
import inspect
import pickle
from pathlib import Path

import cloudpickle
import dill
import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import aio
from cmdc_runtime.client.session import AsyncClient, AsyncSession
from cmdc_runtime.client.sync.session import Client, Session
from cmdc_runtime.errors import ERRORS_BY_CODE

NOT_OF_A_SESSION = {
    "broadcast",
    "close",
    "create_agent",
    "list_sessions",
    "subscribe_all",
    "subscribe_group",
    "tree",
}
NOT_A_FUNCTION = {"close"}
OF_SEVERAL_CALLS = {"Parallel", "Runner"}
"""What is made of a client's calls, and has both faces too."""
SUBJECTS = {"session", "session_id"}
"""What the argument is called that a call of a session object leaves out."""


def methods(kind):
    """Return the names of a class's public methods."""
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


def named_in_type_checking():
    """Return what the package imports for type checkers."""
    tree = ast.parse(Path(cmdc.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {alias.asname for node in tree.body for alias in getattr(node, "names", ())}


def test_every_name_is_there():
    """What ``__all__`` names can be had, and type checkers see the same names."""
    found = {name: getattr(cmdc, name) for name in cmdc.__all__}

    assert None not in found.values()
    assert set(dir(cmdc)) == set(cmdc.__all__)
    assert named_in_type_checking() | {"__version__"} == set(cmdc.__all__)


def test_every_error_is_public():
    """Whatever can be raised can be caught by its name."""
    missing = {error.__name__ for error in ERRORS_BY_CODE.values()} - set(cmdc.__all__)

    assert missing == set()


def test_call_named_like_a_module_is_the_call():
    """``cmdc.messages`` is the call, although a module has this name."""
    assert cmdc.messages.__name__ == "messages"
    assert callable(cmdc.messages)


def test_every_kind_of_client_has_every_call():
    """Both clients, both modules and both sessions offer the same calls with the same arguments."""
    calls = methods(Client)

    assert methods(AsyncClient) == calls
    assert calls - NOT_A_FUNCTION <= set(cmdc.__all__)
    assert calls | OF_SEVERAL_CALLS == set(aio.__all__)
    assert methods(Session) == methods(AsyncSession) == calls - NOT_OF_A_SESSION
    for name in calls:
        assert parameters(Client, name) == parameters(AsyncClient, name)
    for name in calls - NOT_OF_A_SESSION:
        assert parameters(Session, name) == parameters(AsyncSession, name)
        if name != "unsubscribe":
            own = [one for one in parameters(Client, name) if one[0] not in SUBJECTS]
            assert parameters(Session, name) == own


@pytest.mark.parametrize(("name", "call"), [("Runner", "run"), ("Parallel", "map")])
def test_what_is_made_of_calls_has_both_faces(name, call):
    """With the same arguments."""
    mine, theirs = getattr(getattr(cmdc, name), call), getattr(getattr(aio, name), call)
    names = [list(inspect.signature(one).parameters) for one in (mine, theirs)]

    assert names[0] == names[1]
    assert inspect.iscoroutinefunction(theirs)


def test_a_runner_shows_its_keywords():
    """With the types of the contract and the defaults of the limits."""
    shown = inspect.signature(cmdc.Runner.run).parameters
    limits = {one.name: one.default for one in msgspec.structs.fields(cmdc.reasoning.RunLimits)}

    assert {name: shown[name].default for name in limits} == limits
    assert shown["timeout"].annotation == float | None
    assert {"session", "options", "model", "score", "on_event"} <= shown.keys()
    assert inspect.Parameter.VAR_KEYWORD not in {one.kind for one in shown.values()}


def parameters(kind, name):
    """Return a method's arguments with their kinds and defaults."""
    signature = inspect.signature(getattr(kind, name))
    return [(one.name, one.kind, one.default) for one in signature.parameters.values()]


def test_the_package_travels_by_its_name():
    """As a global of a function that does, by whatever pickles it."""
    assert pickle.loads(pickle.dumps(cmdc)) is cmdc
    assert cloudpickle.loads(cloudpickle.dumps(cmdc)) is cmdc
    assert dill.loads(dill.dumps(cmdc)) is cmdc
