"""Flags over variables over the file over defaults, and no mistake goes unnoticed."""

from pathlib import Path

import pytest

from cmdc_runtime.errors import InvalidOptions
from supervisor.config import (
    CLIENT_VARIABLES,
    RELOADABLE,
    DaemonConfig,
    changes,
    load_config,
)

HOME = Path("/home")


def load(flags=None, environ=None):
    """Merge what is given for an ordinary user."""
    return load_config(flags or {}, environ or {}, uid=1000, home=HOME)


def problems(flags=None, environ=None):
    """Return the lines of the refusal."""
    with pytest.raises(InvalidOptions) as refusal:
        load(flags, environ)
    return refusal.value.problems


@pytest.fixture
def config_file(tmp_path):
    """Return where to write TOML."""
    return tmp_path / "cmdc.toml"


def test_defaults_are_complete():
    """A daemon that is given nothing has everything that it needs."""
    right = DaemonConfig(runtime_dir=HOME / ".cache/cmdc/run", state_dir=HOME / ".local/state/cmdc")

    assert load() == right


def test_flags_win_over_variables_over_the_file(config_file):
    """Whoever speaks later and closer to the daemon is heard."""
    config_file.write_text('spares = 3\nlog_level = "debug"\nmax_sessions = 30\n')
    environ = {"CMDC_SPARES": "4", "CMDC_LOG_LEVEL": "error", "CMDC_CONFIG": str(config_file)}
    found = load({"spares": 5, "durability": None}, environ)

    assert (found.spares, found.log_level, found.max_sessions) == (5, "error", 30)


def test_the_flag_names_the_file(config_file, tmp_path):
    """``--config`` wins over ``CMDC_CONFIG``."""
    config_file.write_text("spares = 7")
    environ = {"CMDC_CONFIG": str(tmp_path / "missing.toml")}

    assert load({"config": config_file}, environ).spares == 7


def test_an_empty_variable_is_not_set():
    """A unit file or a shell script may pass on what it has not got."""
    assert load(environ={"CMDC_SPARES": "", "CMDC_CONFIG": ""}).spares == 2


def test_paths_come_out_absolute():
    """The daemon may change its directory without losing its files."""
    found = load({"runtime_dir": "run"}, {"CMDC_STATE_DIR": "/a/../b"})

    assert (found.runtime_dir, found.state_dir) == (Path.cwd() / "run", Path("/b"))


def test_what_the_starter_of_the_daemon_sets_has_flags():
    """An embedded daemon is given its owner and where to say that it is ready."""
    found = load({"embedded": True, "owner_pid": 12, "owned_dir": "/b", "ready_fd": 3})

    assert (found.embedded, found.owner_pid, found.ready_fd) == (True, 12, 3)
    assert found.owned_dir == Path("/b")


def test_all_problems_are_reported_at_once(config_file):
    """A person corrects everything in one go."""
    config_file.write_text("spare = 1\nspares = '1'")
    found = problems(
        {"config": config_file, "durabilty": "power"},
        {"CMDC_LOG_LEVEL": "inof", "CMDC_MAX_SESSIONS": "many"},
    )

    assert len(found) == 5


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"CMDC_SPARE": "1"}, "did you mean CMDC_SPARES?"),
        ({"CMDC_ADRESS": "/r"}, "did you mean CMDC_ADDRESS?"),
        ({"CMDC_OWNER_PID": "1"}, "CMDC_OWNER_PID is unknown"),
        ({"CMDC_XYZZY": "1"}, "there are CMDC_ADDRESS, "),
        ({"CMDC_DURABILITY": "powr"}, "did you mean power?"),
        ({"CMDC_SPARES": "-1"}, "CMDC_SPARES: expected a whole number from 0 to 64, got '-1'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_variable_says_what_would_be_right(environ, word):
    """The message names the variable and the way out."""
    found = problems(environ=environ)

    assert len(found) == 1
    assert word in found[0]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("spares", "-1", "a whole number from 0 to 64"),
        ("max_sessions", "1e300", "a whole number from 1 to 100000"),
        ("max_sessions", "many", "a whole number from 1 to 100000"),
        ("retain_days", "1.5", "a whole number from 0 to 36500"),
        ("agent_grace", "nan", "a number from 0 to 3600"),
        ("owner_pid", 0, "a whole number, 1 or more"),
        ("embedded", "perhaps", "true or false"),
        ("state_dir", "", "a path"),
        ("journal_schema", "A-b", "text like ^[a-z_][a-z0-9_]{0,62}$"),
        ("log_format", "xml", "one of console, json"),
    ],
)
def test_a_wrong_value_is_reported_once(name, value, expected):
    """The option as it was typed, what it takes, and what it was given: whatever its type."""
    flag = f"--{name.replace('_', '-')}"

    assert problems({name: value}) == (f"{flag}: expected {expected}, got {value!r}",)


def test_a_wrong_value_of_the_file_is_reported_once(config_file):
    """The file is named before the option."""
    config_file.write_text("spares = '1'")
    problem = f"{config_file}: spares: expected a whole number from 0 to 64, got '1'"

    assert problems({"config": config_file}) == (problem,)


def test_a_misspelt_flag_says_what_would_be_right():
    """Flags are named as people type them."""
    assert problems({"log_levl": "info"}) == ("--log-levl is unknown; did you mean --log-level?",)


def test_a_misspelt_key_of_the_file_says_what_would_be_right(config_file):
    """The file is named, since there may be several."""
    config_file.write_text("max_session = 1")
    found = problems({"config": config_file})

    assert found == (f"{config_file}: max_session is unknown; did you mean max_sessions?",)


@pytest.mark.parametrize("name", sorted(CLIENT_VARIABLES))
def test_the_clients_variables_are_left_alone(name):
    """What configures applications may be set where a daemon starts."""
    assert load(environ={name: "anything"}) == load()


@pytest.mark.parametrize("text", ["spares = ", "\x00"], ids=["cut off", "binary"])
def test_an_unreadable_file_is_a_problem(config_file, text):
    """A daemon does not start with half of its configuration."""
    config_file.write_text(text)
    found = problems({"config": config_file})

    assert found[0].startswith(f"config file {config_file}: ")


def test_a_missing_file_is_a_problem(config_file):
    """A file that was named has to be there."""
    assert "No such file" in problems({"config": config_file})[0]


def test_an_empty_path_is_a_problem():
    """An empty name would be the directory in which the daemon happens to start."""
    assert problems({"state_dir": ""}) == ("--state-dir: expected a path, got ''",)


@pytest.mark.parametrize("journal", ["memory", "postgresql://h/d", "postgres://u:p@h:1/d?a=b"])
def test_a_journal_may_be_elsewhere(journal):
    """In memory or in PostgreSQL; it is the file if nothing is said."""
    assert load(environ={"CMDC_JOURNAL": journal}).journal == journal
    assert load().journal == ""


@pytest.mark.parametrize("journal", ["mysql://u:hunter2@h/d", "postgresql:u:hunter2", "hunter2"])
def test_what_is_wrong_with_a_journal_is_reported_without_its_password(journal):
    """Errors are logged; the way out is in the message all the same."""
    (found,) = problems(environ={"CMDC_JOURNAL": journal})

    assert "hunter2" not in found
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in found


@pytest.mark.parametrize("journal", ["postgresql://u:p@h/d", "postgresql://h/d?password=p"])
def test_a_password_is_not_taken_as_an_argument(journal):
    """Everybody on the machine can read those of a process."""
    (found,) = problems({"journal": journal})

    assert found.startswith("--journal holds a password")
    assert "CMDC_JOURNAL" in found
    assert load({"journal": "postgresql://u@h/d"}).journal == "postgresql://u@h/d"


@pytest.mark.parametrize("schema", ["", "1st", "Upper", "a-b", 'a"b', "a" * 64])
def test_a_schema_has_a_plain_name(schema):
    """It stands in statements as it is."""
    (found,) = problems({"journal_schema": schema})

    expected = "--journal-schema: expected text like ^[a-z_][a-z0-9_]{0,62}$, got "
    assert found.startswith(expected)


def test_what_a_running_daemon_takes_over_is_applied():
    """The new values hold from now on; nothing else is touched."""
    given = {"spares": 5, "log_level": "debug", "max_sessions": 7, "retain_days": 1}
    fresh = load(given)
    found = changes(load(), fresh)

    assert found.applied == given
    assert (found.config, found.needs_restart) == (fresh, [])
    assert found.applied.keys() == RELOADABLE


def test_what_needs_a_restart_keeps_its_value_and_is_named_each_time():
    """The difference stays until the restart, so the next reload names it again."""
    running, fresh = load(), load({"durability": "power", "state_dir": "/new", "spares": 3})
    found = changes(running, fresh)
    again = changes(found.config, fresh)

    assert (found.applied, again.applied) == ({"spares": 3}, {})
    assert found.needs_restart == again.needs_restart == ["state_dir", "durability"]
    assert found.config == load({"spares": 3})
