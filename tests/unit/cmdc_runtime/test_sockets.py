"""The table of socket options, held against real sockets."""

import pytest
import zmq

from cmdc_runtime.sockets import OPTIONS, TYPES, Role, open_socket


@pytest.fixture
def context():
    with zmq.Context() as made:
        yield made


def test_every_role_has_its_rows():
    """A role without a type or options could not be opened."""
    assert set(TYPES) == set(OPTIONS) == set(Role)


@pytest.mark.parametrize("role", Role)
def test_a_socket_has_the_options_of_its_role(context, role):
    """The kernel of ZeroMQ took each value, or the option can only be written."""
    with open_socket(context, role) as socket:
        found = {option: read(socket, option) for option in OPTIONS[role]}

        assert socket.type == TYPES[role]
    assert {option: value for option, value in found.items() if value is not None} == {
        option: OPTIONS[role][option] for option, value in found.items() if value is not None
    }
    assert {option for option, value in found.items() if value is None} <= WRITE_ONLY


WRITE_ONLY = {zmq.ROUTER_MANDATORY, zmq.ROUTER_HANDOVER, zmq.XPUB_VERBOSE, zmq.XPUB_NODROP}


def read(socket, option):
    """Return the value of an option, None where ZeroMQ does not tell it."""
    try:
        return socket.getsockopt(option)
    except zmq.ZMQError:
        return None


@pytest.mark.parametrize("role", Role)
def test_no_socket_can_be_flooded_or_hold_up_an_exit(role):
    """Whatever its role: bounded frames, short handshakes, no lingering."""
    options = OPTIONS[role]

    assert options[zmq.LINGER] == 0
    assert 0 < options[zmq.MAXMSGSIZE] <= 64 * 2**20
    assert 0 < options[zmq.HANDSHAKE_IVL] <= 5_000


@pytest.mark.parametrize("role", [Role.CONTROL, Role.WORKERS])
def test_a_router_never_drops_silently(role):
    """A full or unknown peer is an error that the pump sees."""
    assert OPTIONS[role][zmq.ROUTER_MANDATORY] == 1


@pytest.mark.parametrize("role", [Role.WORKER, Role.WORKERS])
def test_a_stopped_worker_keeps_its_connection(role):
    """No heartbeat: the pidfd tells a death, and SIGCONT must find everything as it was."""
    assert zmq.HEARTBEAT_IVL not in OPTIONS[role]


def test_an_identity_is_set_before_connecting(context):
    """The daemon knows its workers by it."""
    with open_socket(context, Role.WORKER, identity=b"w-1") as socket:
        assert socket.getsockopt(zmq.ROUTING_ID) == b"w-1"
