"""What becomes of a ``print`` when nobody reads: it waits for a bound, and it never fails."""

import io
import os
import threading

import pytest

from workers import output


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", 0) as reading, os.fdopen(writer, "wb", 0) as writing:
        yield reading, writing


def written(reading, writing):
    writing.close()
    return reading.read()


def test_a_line_goes_out_at_once_and_half_a_line_when_it_is_flushed(pipe):
    """Whatever the text is, half a surrogate too."""
    reading, writing = pipe
    text = output._text(writing.fileno())
    print("line \udcff", file=text)

    assert os.read(reading.fileno(), 100) == b"line \\udcff\n"
    print("half", end="", file=text)
    text.flush()
    assert written(reading, writing) == b"half"


def test_what_nobody_can_read_is_lost_without_an_error(pipe):
    """A reader that is gone, and a descriptor that is closed."""
    reading, writing = pipe
    text = output._text(writing.fileno())
    reading.close()
    print("lost", file=text)
    writing.close()
    print("lost", file=text)
    text.flush()


def test_a_full_pipe_that_does_not_block_is_waited_for(pipe, monkeypatch):
    """A reader that reads gets everything; one that does not costs a bound of time."""
    reading, writing = pipe
    os.set_blocking(writing.fileno(), False)
    raw = output._PatientWriter(writing.fileno(), "wb", closefd=False)
    many = b"x" * 200_000
    monkeypatch.setattr(output, "WRITABLE_S", 0.01)
    assert raw.write(many) == len(many)
    left = len(os.read(reading.fileno(), len(many)))
    assert left < len(many)

    monkeypatch.setattr(output, "WRITABLE_S", 10.0)
    parts = []
    thread = threading.Thread(target=lambda: parts.extend(iter(lambda: reading.read(1 << 16), b"")))
    thread.start()
    assert raw.write(memoryview(many)) == len(many)
    writing.close()
    thread.join()
    assert sum(map(len, parts)) == len(many)


def test_streams_that_are_no_files_are_replaced_too(monkeypatch):
    """A process may have none at all."""
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    output.keep_printing()

    assert (output.sys.stdout.fileno(), output.sys.stderr.fileno()) == (1, 2)
    assert output.sys.stdout.line_buffering
