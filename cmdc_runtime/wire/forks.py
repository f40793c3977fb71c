"""What a daemon and its zygote say to each other: orders to fork, and what became of them.

One message on a socket of kind SEQPACKET is one frame; a descriptor comes beside it (SCM_RIGHTS).
Rules: the daemon says ``Begin`` first, ``Fork`` and ``Learn`` afterwards; the zygote answers each
order in its turn (``Forked`` or ``ForkRefused``, ``Learned``), and says of each child once that it
has ended. Where one of
them is gone, the other finds the end of the socket.
"""

from typing import Final, TypeAlias

import msgspec

from cmdc_runtime.reasons import snake

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Far more than the paths of a boot take, and less than a socket holds."""
FAILURE_CHARS_MAX: Final = 16 * 1024
"""Of a traceback: what comes last says what was wrong."""

Value: TypeAlias = str | int | float


class PreloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a preload."""

    origin: str
    """Folder of the ``workers`` package that was imported."""
    modules: int = 0
    import_ms: float = 0.0
    warm_ms: float = 0.0
    """0 when the warm-up call failed."""
    huge_bytes: int = 0
    """Of its memory, in huge pages; 0 where the kernel makes none."""
    problems: tuple[str, ...] = ()
    """One line for everything that is missing or left over."""


class ToZygote(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Daemon to zygote."""


class Begin(ToZygote, frozen=True, kw_only=True, array_like=True):
    """Import what is needed: call ``preload(needs)`` of the module of that name."""

    preload: str
    path: tuple[str, ...]
    """Where modules are looked for, as in the daemon."""
    needs: tuple[str, ...]
    """Modules that have to be loaded then, beside what every worker needs."""


class Fork(ToZygote, frozen=True, kw_only=True, array_like=True):
    """Fork a child that calls ``main(boot)`` of ``module``.

    ``fd_name`` is where in the boot it finds the number of the descriptor that comes beside this;
    "" where there is none.
    """

    number: int
    module: str
    boot: dict[str, Value]
    fd_name: str = ""


class Learn(ToZygote, frozen=True, kw_only=True, array_like=True):
    """Import one more module: the children after that have it."""

    name: str


class FromZygote(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=snake):
    """Zygote to daemon."""


class Preloaded(FromZygote, frozen=True, kw_only=True, array_like=True):
    """It is ready to fork, or will never be: ``report`` is None where ``failure`` says why."""

    report: PreloadReport | None
    failure: str = ""
    threads: int = 1
    versions: dict[str, str] = {}
    """Of those needed modules that are loaded; "" where a module has none."""


class Learned(FromZygote, frozen=True, kw_only=True, array_like=True):
    """The module of ``Learn`` is there if there is no ``problem``; a thread of its own is one."""

    problem: str = ""


class Forked(FromZygote, frozen=True, kw_only=True, array_like=True):
    """The child of the order with this ``number``; its pidfd comes beside this."""

    number: int
    pid: int


class ForkRefused(FromZygote, frozen=True, kw_only=True, array_like=True):
    """The kernel forked no child for the order with this ``number``, and its errno says why."""

    number: int
    errno: int


class Unsafe(FromZygote, frozen=True, kw_only=True, array_like=True):
    """It has got more threads than one, whose locks a fork would copy; it forks no more."""

    threads: int


class ChildEnded(FromZygote, frozen=True, kw_only=True, array_like=True):
    """A child was reaped: its exit code, or minus the number of the signal."""

    pid: int
    status: int


ZygoteAnswer: TypeAlias = Preloaded | Learned | Forked | ForkRefused | Unsafe | ChildEnded

_to_zygote: Final = msgspec.msgpack.Decoder(Begin | Fork | Learn)
_from_zygote: Final = msgspec.msgpack.Decoder(ZygoteAnswer)
encode: Final = msgspec.msgpack.Encoder().encode


def order_of(data: bytes) -> Begin | Fork | Learn:
    """Return what the daemon says; raises msgspec.DecodeError."""
    order: Begin | Fork | Learn = _to_zygote.decode(data)
    return order


def answer_of(data: bytes) -> ZygoteAnswer:
    """Return what the zygote says; raises msgspec.DecodeError."""
    answer: ZygoteAnswer = _from_zygote.decode(data)
    return answer
