"""A draft: nothing is seen of it before it is delivered, and nothing is left where it is not."""

import pytest

from cmdc_runtime.cli.transfer import drafted
from cmdc_runtime.errors import UsageError


def test_a_draft_is_written_anew_from_its_beginning(tmp_path):
    """The shorter one has nothing of the longer one, nor of the room that was reserved."""
    file = tmp_path / "file"
    file.write_bytes(b"before")
    with drafted(str(file)) as draft:
        for text in (b"the first one", b"second"):
            with draft.whole() as write:
                write(text)
            draft.prepare()
            seen = file.read_bytes()
        with draft.whole() as write:
            write(b"third")
        draft.prepare()
        draft.deliver()

    assert (seen, file.read_bytes()) == (b"before", b"third")
    assert list(tmp_path.iterdir()) == [file]


def test_what_comes_in_between_is_not_replaced(tmp_path):
    """A directory that was made meanwhile stays, and the draft is gone."""
    file = tmp_path / "file"
    with drafted(str(file)) as draft:
        with draft.whole() as write:
            write(b"some")
        file.mkdir()
        with pytest.raises(UsageError, match="file cannot be written: Is a directory"):
            draft.deliver()

    assert list(tmp_path.iterdir()) == [file]
    assert file.is_dir()
