"""What a cleaner of temporary files, or a person, removes under a running daemon comes back."""

import os
import shutil
import signal

import pytest

from cmdc_runtime.runtime_dir import LOCK_FILE, REGISTRY, SOCKETS, TOKEN_FILE, running_daemon
from tests.fault.cases.test_daemon import run_to_end

pytestmark = [pytest.mark.fault, pytest.mark.process, pytest.mark.slow]

TURN_S = 30.0
SOON_S = 10.0
"""For what is gone to be there again; a look is taken every second."""
SPARES = ("Traceback",)
"""Said by a spare that is forked while its sockets are gone; the next one lives."""
PUT = (*SOCKETS, LOCK_FILE)


def numbers(place, names):
    """Return what is at these paths."""
    found = {name: (place.address / name).lstat() for name in names}
    return {name: (one.st_ino, one.st_mtime_ns) for name, one in found.items()}


def is_back(place, before):
    """Say whether there is something else at each path."""
    try:
        now = numbers(place, before)
    except FileNotFoundError:
        return False
    return all(now[name] != before[name] for name in before)


def works(place, scripted):
    """Check that a client that knows nothing of it all gets in, and a new session runs."""
    with (
        place.client() as fresh,
        fresh.create_agent(model=scripted(default="fine")) as session,
    ):
        stream = session.subscribe()
        assert session.run("Are you there?", timeout=TURN_S).text == "fine"
        assert stream.get(TURN_S).index == 1


@pytest.mark.fault_case("F76")
@pytest.mark.parametrize("names", [*((name,) for name in PUT), PUT], ids="+".join)
def test_a_file_that_is_removed_comes_back(place, audit, agent, scripted, names):
    """It is reported and healed; who is connected notices nothing, and who is new gets in."""
    audit.log_says = SPARES
    session = agent(scripted(default="fine"))
    before, start = numbers(place, names), len(place.log.read_text())
    for name in names:
        (place.address / name).unlink()
    assert session.run("Do you notice?", timeout=TURN_S).text == "fine"
    assert place.poll(lambda: is_back(place, before), SOON_S)
    works(place, scripted)
    said = place.log.read_text()[start:]

    assert all(f"{place.address / name}" in said for name in names)
    assert "lost" in said
    assert "restored" in said
    assert running_daemon(place.address).holder.pid == place.process.pid


@pytest.mark.fault_case("F76")
def test_a_second_daemon_clears_nothing_of_a_living_one(place, agent, scripted):
    """Also when the lock file is gone: the directory itself is locked."""
    session = agent(scripted(default="fine"))
    kept = [name for name in PUT if name != LOCK_FILE]
    before = numbers(place, kept)
    (place.address / LOCK_FILE).unlink()
    second = run_to_end(place)

    assert second.returncode == 3
    assert "choose another runtime directory" in second.stderr
    assert numbers(place, kept) == before
    assert session.run("Still there?", timeout=TURN_S).text == "fine"
    assert place.poll((place.address / LOCK_FILE).exists, SOON_S)


@pytest.mark.fault_case("F76")
def test_a_directory_that_is_removed_comes_back(place, audit, agent, scripted):
    """With all that belongs there, for this user alone; who was connected goes on."""
    audit.log_says = SPARES
    session = agent(scripted(default="fine"))
    shutil.rmtree(place.address)
    assert session.run("Do you notice?", timeout=TURN_S).text == "fine"
    there = [place.address / name for name in PUT]
    assert place.poll(lambda: all(os.path.lexists(path) for path in there), SOON_S)
    works(place, scripted)

    assert place.address.stat().st_mode & 0o777 == 0o700
    assert run_to_end(place).returncode == 3


@pytest.mark.fault_case("F76")
@pytest.mark.parametrize("mode", [0o777, 0o755, 0o701, 0o660], ids=oct)
def test_what_is_opened_to_other_users_is_closed_again(place, audit, scripted, mode):
    """It is reported with both modes, nobody notices it, and the next daemon starts there."""
    audit.daemon_died = True
    (place.address / REGISTRY).mkdir(
        0o700, exist_ok=True
    )  # as where agents may outlive their daemon
    paths = [place.address, *(place.address / name for name in (*PUT, TOKEN_FILE, REGISTRY))]
    before = {path: path.stat().st_mode & 0o777 for path in paths}
    start = len(place.log.read_text())
    for path in reversed(paths):
        path.chmod(mode)

    def is_closed():
        return all(not path.stat().st_mode & 0o077 for path in paths)

    assert place.poll(is_closed, SOON_S)
    works(place, scripted)
    said = [one for one in place.log.read_text()[start:].splitlines() if "mode_changed" in one]
    assert not any(mode & 0o077 for mode in before.values())
    for path in paths:
        (line,) = [one for one in said if f"path={path} " in one]
        now = path.stat().st_mode & 0o777
        assert f"mode={oct(mode)} " in line
        assert f"restored={oct(now)}" in line
        assert now == (0o600 if path.is_file() else 0o700)
    place.process.send_signal(signal.SIGTERM)
    place.process.wait(SOON_S)
    place.start()


@pytest.mark.fault_case("F76")
@pytest.mark.parametrize("what", ["entries", "roll", "directory"])
def test_agents_are_found_by_the_next_daemon_though_the_registry_was_removed(
    own_daemon, scripted, what
):
    """They are on it again, so it goes on with their processes, and starts no second ones."""
    own_daemon.grace = 60.0
    own_daemon.start()
    roll = own_daemon.address / REGISTRY
    with own_daemon.client() as client:
        model = scripted(default="fine")
        sessions = [client.create_agent(model=model) for _ in range(3)]
        before = [one.agent_pid() for one in sessions]
        signed = sorted(path.name for path in roll.iterdir())
        if what == "entries":
            for path in roll.iterdir():
                path.unlink()
        else:
            shutil.rmtree(roll if what == "roll" else own_daemon.address)

        def is_back():
            return roll.is_dir() and sorted(path.name for path in roll.iterdir()) == signed

        assert own_daemon.poll(is_back, SOON_S)
        own_daemon.kill()
        own_daemon.start()
        answers = [one.run("Still there?", timeout=TURN_S).text for one in sessions]
        after = [(one.agent_pid(), one.status().incarnation) for one in sessions]
        for one in sessions:
            one.stop()

    assert answers == ["fine"] * 3
    assert after == [(pid, 1) for pid in before]
    assert list(roll.iterdir()) == []


@pytest.mark.fault_case("F87")
def test_a_zygote_that_dies_after_its_directory_was_removed_is_replaced(
    place, client, audit, agent, scripted
):
    """Its own folder for sockets lay in there, and the next one makes another."""
    audit.log_says = SPARES
    session = agent(scripted(default="fine"))
    shutil.rmtree(place.address)
    there = [place.address / name for name in PUT]
    assert place.poll(lambda: all(os.path.lexists(path) for path in there), SOON_S)
    assert place.poll(lambda: zygote_of(client).pid is not None, TURN_S)
    old = zygote_of(client).pid
    os.kill(old, signal.SIGKILL)

    def is_replaced():
        found = zygote_of(client)
        return found.state == "ready" and found.pid != old

    assert place.poll(is_replaced, TURN_S)
    works(place, scripted)
    assert session.run("Do you notice?", timeout=TURN_S).text == "fine"


def zygote_of(client):
    """Return what the tree says of the zygote."""
    return next(node for node in client.tree().children if node.id == "nursery")


@pytest.mark.fault_case("F76")
@pytest.mark.parametrize("how", ["moved away", "removed", "replaced"])
def test_a_log_that_is_rotated_goes_on_under_its_name(place, audit, how):
    """The daemon opens it again, and says so there."""
    audit._before["log"] = 0  # it begins anew
    if how == "removed":
        place.log.unlink()
    else:
        place.log.rename(place.log.with_suffix(".1"))
    if how == "replaced":
        place.log.touch()
    assert place.poll(
        lambda: place.log.exists() and "file.restored" in place.log.read_text(), SOON_S
    )
