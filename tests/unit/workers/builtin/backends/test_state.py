"""Files in memory: how many, how large together, and for how long."""

from cmdc_runtime import backends
from workers.builtin.backends.composite import opened
from workers.builtin.backends.state import StateFiles


def test_it_holds_so_many_files():
    """One that is there may be replaced all the same."""
    state = StateFiles(bytes_max=1000, files_max=2)
    made = [state.write(f"/{n}", "x").error for n in range(3)]

    assert made == [None, None, "the store is full: it holds 2 files"]
    assert state.write("/0", "y").error is None
    assert state.read("/2").error == "file_not_found"


def test_it_holds_so_many_bytes():
    """Paths count too, once each; a smaller file makes room, and a refused one changes nothing."""
    state = StateFiles(bytes_max=20, files_max=10)
    full = "the store is full: it holds 20 bytes"

    assert state.write("/f", "x" * 18).error is None
    assert state.write("/f", "x" * 19).error == full
    assert state.write("/g", "").error == full
    assert state.read("/f").content == "x" * 18
    assert state.write("/f", "").error is None
    assert state.upload_files([("/g", b"x" * 16), ("/h", b"")])[1].error == full


def test_it_is_on_no_disk():
    """And each has its own files."""
    one, other = (opened(backends.State()) for _ in range(2))
    one.write("/f", "x")

    assert one.local_path("/f") is None
    assert other.read("/f").error == "file_not_found"
    assert one.id != other.id


def test_options_are_those_of_the_reference():
    """Both bounds get through."""
    state = opened(backends.State(max_bytes=10, max_files=1))

    assert state.write("/f", "x" * 9).error == "the store is full: it holds 10 bytes"
    assert state.write("/f", "x").error is None
    assert state.write("/g", "x").error == "the store is full: it holds 1 files"
