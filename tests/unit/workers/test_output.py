"""What becomes of a ``print`` when nobody reads: it waits for a bound, and it never fails."""

import asyncio
import io
import json
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


def test_each_call_of_a_process_has_its_lines(tmp_path):
    """Whose line it is, its context says; what is no call's, and the log's own lines, are not."""
    logged = tmp_path / "log"
    with logged.open("wb") as file:
        raw = output._MarkingWriter(file.fileno())
        text = output._wrapped(raw)

        async def call(name):
            with output.printing(name, "use"):
                for _ in range(2):
                    print(name, file=text)
                    await asyncio.sleep(0)
                await asyncio.to_thread(print, f"thread of {name}", file=text)

        async def calls():
            await asyncio.gather(call("a"), call("b"))

        asyncio.run(calls())
        print("nobody", file=text)
    records = [line.removeprefix(output.RECORD_MARK) for line in logged.read_bytes().splitlines()]
    found = [json.loads(one) for one in records[:-1]]

    assert all(one["line"].split()[-1] == one["call_id"] for one in found)
    assert sorted(one["line"] for one in found) == [
        "a",
        "a",
        "b",
        "b",
        "thread of a",
        "thread of b",
    ]
    assert records[-1] == b"nobody"


def test_a_call_has_a_bound_of_lines(tmp_path):
    """What comes behind it is written as it is."""
    logged = tmp_path / "log"
    with logged.open("wb") as file, output.printing("a", "use"):
        output._PRINTING.get().left = 2
        text = output._wrapped(output._MarkingWriter(file.fileno()))
        print("1\n2\n3", file=text)

    assert [line.startswith(output.RECORD_MARK) for line in logged.read_bytes().splitlines()] == [
        True,
        True,
        False,
    ]


def lines_of(logged):
    """Return each line with its call, None where it is no record."""
    found = []
    for line in logged.read_bytes().splitlines():
        record = line.startswith(output.RECORD_MARK) and json.loads(line[1:])
        found.append((record["call_id"], record["line"]) if record else (None, line.decode()))
    return found


def test_what_a_call_has_begun_of_a_line_is_its_own(tmp_path):
    """At its end, and whoever prints and flushes meanwhile."""
    logged = tmp_path / "log"
    with logged.open("wb") as file:
        text = output._wrapped(output._MarkingWriter(file.fileno()))

        async def call(name, other):
            with output.printing(name, "use"):
                text.write(f"{name} begins")
                text.flush()
                await other.wait()

        async def calls():
            first, second = asyncio.Event(), asyncio.Event()
            running = [asyncio.create_task(call(*of)) for of in (("a", first), ("b", second))]
            await asyncio.sleep(0)
            print("nobody", file=text)
            second.set()
            await running[1]
            first.set()
            await running[0]

        asyncio.run(calls())

    assert lines_of(logged) == [(None, "nobody"), ("b", "b begins"), ("a", "a begins")]


def test_a_line_that_is_written_over_is_one_line_of_its_call(tmp_path):
    """A carriage return ends no line, and before a newline it is none of the text."""
    logged = tmp_path / "log"
    with logged.open("wb") as file, output.printing("a", "use"):
        text = output._wrapped(output._MarkingWriter(file.fileno()))
        for percent in (1, 50):
            print(f"{percent}%", end="\r", file=text, flush=True)
        print("done", end="\r\n", file=text)
        print("\rmore", end="", file=text)

    assert lines_of(logged) == [("a", "1%\r50%\rdone"), ("a", "\rmore")]


def test_what_is_too_long_for_a_record_is_a_line_of_its_own(tmp_path):
    """Bounded in what is kept of it, and no text of another call runs into it."""
    logged = tmp_path / "log"
    with logged.open("wb") as file:
        text = output._wrapped(output._MarkingWriter(file.fileno()))
        with output.printing("a", "use"):
            for _ in range(3):
                text.write("x" * output.LINE_BYTES_MAX)
        with output.printing("b", "use"):
            text.write("\x1b" * output.MARKED_BYTES_MAX)
        with output.printing("c", "use"):
            text.write("short")
    long, escapes, short = lines_of(logged)

    assert long == (None, "x" * output.BEGUN_BYTES_MAX)
    assert escapes == (None, "\x1b" * output.MARKED_BYTES_MAX)
    assert short == ("c", "short")


def test_a_forked_child_of_a_call_loses_nothing_that_it_flushes(tmp_path):
    """Its process has no end of the call to wait for."""
    logged = tmp_path / "log"
    with logged.open("wb") as file, output.printing("a", "use"):
        text = output._wrapped(output._MarkingWriter(file.fileno()))
        if (pid := os.fork()) == 0:
            text.write("of the child")
            text.flush()
            os._exit(0)
        os.waitpid(pid, 0)

    assert lines_of(logged) == [("a", "of the child")]
