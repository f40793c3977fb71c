"""What a tool's process gets of its agent's environment."""

import pytest

from cmdc_runtime.errors import InvalidOptions
from cmdc_runtime.options import parse
from cmdc_runtime.tool_environment import VARIABLES_MAX, chosen, passed_on

HARMLESS = ("PATH", "HOME", "LC_ALL", "TMPDIR", "PYTHONPATH", "SSL_CERT_FILE", "https_proxy")
SECRET = (
    *("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DB_PASSWORD"),
    *("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "PYTHON_TOKEN", "MY_PATH"),
    *("CMDC_RUNTIME_DIR", "CMDC_STATE_DIR", "CMDC_JOURNAL", "CMDC_ADDRESS", "LITELLM_MODE"),
)


def test_a_tool_gets_what_programs_need_and_nothing_else():
    """No key under whatever name, and no way to the daemon or to another service of the user."""
    environ = dict.fromkeys((*HARMLESS, *SECRET), "value")

    assert passed_on(environ) == dict.fromkeys(HARMLESS, "value")


def test_what_a_session_names_is_given_where_it_is_set():
    """And where it is not, nothing is."""
    assert chosen({"A": "1", "B": "2"}, ["B", "MISSING"]) == {"B": "2"}


@pytest.mark.parametrize(
    "name", ["", "1A", "A-B", "A=B", "A\n", "A\0", "a" * 129, "CMDC_RUNTIME_DIR", "é", "\ud800"]
)
def test_what_is_no_name_or_leads_to_the_daemon_is_refused(name):
    """A variable has a name that a shell takes, and none of the daemon's."""
    with pytest.raises(InvalidOptions, match="tool_env"):
        parse(None, {"model": "openai:m", "tool_env": [name]})


def test_names_are_bounded():
    """One session names so many at most."""
    names = [f"V{number}" for number in range(VARIABLES_MAX + 1)]

    assert parse(None, {"model": "openai:m", "tool_env": names[1:]}).tool_env == names[1:]
    with pytest.raises(InvalidOptions, match="tool_env"):
        parse(None, {"model": "openai:m", "tool_env": names})
