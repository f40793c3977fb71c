"""The table of socket options, held against real sockets."""

import pytest
import zmq

from cmdc_runtime.wire.frames import TOPIC_BYTES_MAX
from cmdc_runtime.wire.sockets import OPTIONS, SUBSCRIPTIONS_AHEAD_MAX, TYPES, Role, open_socket


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


WRITE_ONLY = {zmq.ROUTER_MANDATORY, zmq.ROUTER_HANDOVER, zmq.XPUB_VERBOSE}


def read(socket, option):
    """Return the value of an option, None where ZeroMQ does not show it."""
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


@pytest.mark.parametrize(
    ("role", "out", "inward"),
    [
        (Role.CONTROL, 1_000, 1_000),
        (Role.WORKERS, 10_000, 10_000),
        (Role.WORKER, 10_000, 10_000),
        (Role.EVENTS, 2_000, SUBSCRIPTIONS_AHEAD_MAX),
        (Role.CLIENT, 1_000, 10_000),
        (Role.SUBSCRIBER, 0, 50_000),
    ],
)
def test_a_pipe_holds_a_burst_and_no_flood(context, role, out, inward):
    """Messages; only what a subscriber asks for has no bound, it would be lost without a word."""
    with open_socket(context, role) as socket:
        assert (socket.sndhwm, socket.rcvhwm) == (out, inward)


def test_who_subscribes_says_no_more_than_a_topic():
    """What it could say besides would be kept, unread, by the daemon."""
    assert TOPIC_BYTES_MAX < OPTIONS[Role.EVENTS][zmq.MAXMSGSIZE] < TOPIC_BYTES_MAX + 1_024


@pytest.mark.parametrize("role", [Role.CLIENT, Role.SUBSCRIBER, Role.WORKER])
def test_a_connection_that_was_lost_is_soon_made_again(role):
    """At once for one of them, and within a second where a crowd tries."""
    assert 0 < OPTIONS[role][zmq.RECONNECT_IVL] <= 50
    assert 0 < OPTIONS[role][zmq.RECONNECT_IVL_MAX] <= 1_000


@pytest.mark.parametrize("role", [Role.CONTROL, Role.EVENTS, Role.CLIENT, Role.SUBSCRIBER])
def test_a_peer_that_is_silent_is_let_go(role):
    """Within a minute, with all that was kept for it."""
    assert 0 < OPTIONS[role][zmq.HEARTBEAT_IVL] < OPTIONS[role][zmq.HEARTBEAT_TIMEOUT] < 60_000


@pytest.mark.parametrize("role", [Role.CONTROL, Role.WORKERS, Role.ADMISSION])
def test_a_router_never_drops_silently(role):
    """A full or unknown peer is an error that the pump sees."""
    assert OPTIONS[role][zmq.ROUTER_MANDATORY] == 1


@pytest.mark.parametrize("role", [Role.WORKER, Role.WORKERS])
def test_a_stopped_worker_keeps_its_connection(role):
    """No heartbeat: the pidfd shows a death, and SIGCONT must find everything as it was."""
    assert zmq.HEARTBEAT_IVL not in OPTIONS[role]


def test_an_identity_is_set_before_connecting(context):
    """The daemon knows its workers by it."""
    with open_socket(context, Role.WORKER, identity=b"w-1") as socket:
        assert socket.getsockopt(zmq.ROUTING_ID) == b"w-1"
