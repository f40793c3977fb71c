"""The fuzzer sees what it looks for: bugs are planted in a target, and have to be found."""

import contextlib
import mmap
import signal

import pytest

from cmdc_runtime.errors import ProtocolError
from cmdc_runtime.wire import codec
from cmdc_runtime.wire.frames import FromWorker
from scripts.fuzz import run
from scripts.fuzz.decoders import FROM_WORKER, client_frame
from scripts.fuzz.entropy import Bred, Seeded
from scripts.fuzz.live import check_answers
from scripts.fuzz.run import Target, play
from scripts.fuzz.shapes import message_pack
from scripts.fuzz.targets import TARGETS

INPUTS = 3_000


def target_of(take):
    @contextlib.contextmanager
    def open_target():
        yield take

    return Target("planted", 1, open_target)


def take_frame(entropy):
    """Decode a worker's frame as the daemon does, refusals let pass."""
    with contextlib.suppress(ProtocolError):
        return codec.decode(FromWorker, message_pack(FROM_WORKER, entropy))
    return None


def test_a_crash_behind_the_decoder_is_found():
    """A number that nobody bounds is met, named by its place, with the seed that shows it."""

    def take(entropy):
        frame = take_frame(entropy)
        if getattr(frame, "number", 0) > 7:
            raise OverflowError("planted")

    found = play(target_of(take), INPUTS, "1")

    (problem,) = found.problems
    assert problem.startswith("OverflowError at test_fuzz.py:")
    seed = found.examples[problem].splitlines()[0].removeprefix("seed ")
    with pytest.raises(OverflowError, match="planted"):
        take(Seeded(seed))


def test_a_hang_is_found(monkeypatch):
    """An input that takes too long is a finding; the next one is played."""
    monkeypatch.setattr(run, "HANG_S", 0.05)
    inputs = iter((signal.pause, lambda: None))

    found = play(target_of(lambda _entropy: next(inputs)()), 2, "1")

    assert [problem.split(" at ")[0] for problem in found.problems] == ["HangError"]
    assert found.inputs == 2


def test_memory_that_grows_is_found():
    """What a target keeps of every input shows."""
    kept = []

    def keep(_entropy):
        page = mmap.mmap(-1, 100_000)  # not what earlier tests have given back to the allocator
        page.write(bytes(100_000))
        kept.append(page)

    found = play(target_of(keep), 1_000, "1")

    for page in kept:
        page.close()
    assert not found.is_flat


def test_nothing_is_found_where_nothing_is_wrong():
    """Refusals are no findings, and most inputs get past the first check."""
    taken = []
    found = play(
        target_of(lambda entropy: taken.append(take_frame(entropy) is not None)), INPUTS, "1"
    )

    assert found.problems.total() == 0
    assert sum(taken) > INPUTS // 2


def test_a_seed_is_an_input():
    """The same seed is the same input; another is another."""
    assert client_frame(Seeded("1.5")) == client_frame(Seeded("1.5"))
    assert client_frame(Seeded("1.5")) != client_frame(Seeded("1.6"))


def test_bred_choices_come_from_the_bytes():
    """An engine's bytes decide; where they end, each choice is its first."""
    entropy = Bred(b"\x03\x01\x00")

    assert [entropy.below(10), entropy.below(300), entropy.below(10), entropy.blob(4)] == [
        3,
        0x0100,
        0,
        b"",
    ]


def test_the_shares_are_the_whole():
    """All targets together get the inputs that were asked for."""
    assert sum(target.share for target in TARGETS) == 1_000


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, "of 300 frames 0 were answered"),
        ({"Failed": 149}, "of 300 frames 149 were answered"),
        ({"Reply": 120, "refused": 121}, "of 241 answers no handler gave 121"),
    ],
    ids=["none", "too few", "by the gate"],
)
def test_a_daemon_that_leaves_frames_unanswered_is_found(answers, problem):
    """No answer at all is no proof of anything, and of a few frames each may be nonsense."""
    check_answers({"Reply": 75, "refused": 75}, 300)
    check_answers(answers, 299)

    with pytest.raises(AssertionError, match=problem):
        check_answers(answers, 300)
