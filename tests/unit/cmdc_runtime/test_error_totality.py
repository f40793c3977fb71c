"""Every error that a caller, or an author of an extension, can meet is a ``CmdcError``."""

import importlib
import pickle
import pkgutil

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import ERRORS_BY_CODE, TEXT_CHARS_MAX, CmdcError
from cmdc_runtime.extensions.actions import BadActionError
from cmdc_runtime.extensions.backend import InvalidPathError
from cmdc_runtime.extensions.provider import FailureKind, ProviderError
from cmdc_runtime.extensions.tool import OtherBranchError

INTERNAL = {
    "beneath.OutsideError": "whoever opens a path for somebody says that it leads out",
    "bounded_check.CheckTooLongError": "whoever bounds a check says what took too long",
    "cli.terminal.OutputLost": "the command line ends with its text",
    "confinement.layer.LayerMissing": "who wants the layer says so, or goes without it",
    "foreign_types.UnheededError": "the tool is refused by the name of its parameter",
    "extensions.schema._KeysAlikeError": "the model reads the result's str() in place of its JSON",
    "faults.PlanError": "a plan of faults is read by tests alone, as the process starts",
    "foreign.ForeignError": "whoever called foreign code catches it, and says whose failure it is",
    "local_model.server.Declined": "the local model's server answers it with a status of HTTP",
    "local_model.weights.Unavailable": "the local model's own process ends with its text",
    "mcp_logins.LoginUnreadable": "who opens a login for a server says that it has a problem",
    "mcp_oauth.LoginFailed": "`cmdc mcp login` ends with its text",
    "mcp_oauth.LoginNeeded": "the session's server has it as its problem",
    "option_checks.Unfit": "the decoder of options makes a problem of InvalidOptions of it",
    "packing.byvalue.LateImportError": "the packer makes an InvalidTool or InvalidOptions of it",
    "packing.packer._CannotTravelError": "the pickler's own; the packer makes a problem of it",
    "answer_schema.UncheckableError": "whoever checks says to the model what is wrong with it",
    "testing.server.Refused": "the test server answers it with a status of HTTP",
    "testing.server.Torn": "the test server's order to close a connection",
    "user_values.UnreadableValueError": "the agent that reads user_data makes its end of it",
}
"""What never leaves the package, by its place, and who catches it."""
TEXT = f"{'x' * 2 * TEXT_CHARS_MAX} http://me:hunter2@host/?api_key=hunter2"
EXTENSIONS = [
    cmdc.ToolError,
    cmdc.PluginCallError,
    cmdc.MemoryStoreError,
    OtherBranchError,
]


def is_error(value):
    """Say whether a value is a class of errors; a warning is shown, and ends nothing."""
    return (
        isinstance(value, type)
        and issubclass(value, BaseException)
        and not issubclass(value, Warning)
    )


def exceptions():
    """Return each class of exception that a module of the package defines, by its place."""
    names = [one.name for one in pkgutil.walk_packages(cmdc.__path__, "cmdc_runtime.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        f"{module.__name__.partition('.')[2]}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if is_error(value) and value.__module__ == module.__name__
    }


def test_every_exception_is_a_cmdc_error_or_stays_inside():
    """In all modules; those that stay inside are named above, with who catches them."""
    found = exceptions()

    assert {"extensions.tool_error.ToolError", "errors.UsageError"} <= set(
        found
    )  # or nothing was found
    assert {name for name, one in found.items() if not issubclass(one, CmdcError)} == set(INTERNAL)


def test_every_public_exception_is_a_cmdc_error():
    """``except cmdc.CmdcError`` catches whatever a public module has a name for."""
    modules = [cmdc, *(getattr(cmdc, name) for name in (*cmdc.exports.MODULES, "testing"))]
    named = {
        value
        for module in modules
        for value in (getattr(module, name) for name in dir(module))
        if is_error(value)
    }

    assert cmdc.CmdcError in named
    assert [one for one in named if not issubclass(one, CmdcError)] == []


@pytest.mark.parametrize("name", INTERNAL)
def test_what_stays_inside_has_no_public_name(name):
    """Or somebody could meet it."""
    assert name.rpartition(".")[2] not in cmdc.__all__


def test_an_error_of_elsewhere_arrives_as_its_base():
    """It has that one's code, so that a client of any version knows it."""
    elsewhere = [one for one in exceptions().values() if one not in ERRORS_BY_CODE.values()]
    errors = [one for one in elsewhere if issubclass(one, CmdcError)]

    assert cmdc.ToolError in errors
    for error in errors:
        assert issubclass(error, ERRORS_BY_CODE[error.code])
        assert ERRORS_BY_CODE[error.code].fields == error.fields


@pytest.mark.parametrize("error", EXTENSIONS)
def test_the_text_of_an_extensions_error_stays_as_it_was_given(error):
    """The model reads it; and it can be sent to another process."""
    there = pickle.loads(pickle.dumps(error(TEXT)))

    assert (type(there), str(there)) == (error, TEXT)
    assert str(error()) == ""
    assert error("a", 1).args == ("a", 1)


def test_a_providers_error_has_its_reason_whole():
    """What shows it bounds it."""
    error = ProviderError(FailureKind.TRANSIENT, TEXT, status=503)

    assert (error.reason, str(error), error.details()) == (TEXT, TEXT, {})


@pytest.mark.parametrize("error", [InvalidPathError, cmdc.IllegalTransition])
def test_a_wrong_value_is_still_a_value_error(error):
    """Whoever caught it as Python's own still does."""
    assert issubclass(error, ValueError)
    assert issubclass(error, cmdc.UsageError)
    assert issubclass(BadActionError, cmdc.UsageError)
