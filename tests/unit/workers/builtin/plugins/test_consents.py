"""Consents in a folder: kept for their user alone, and believed of nobody else."""

import json
import os

import pytest

from workers.builtin.plugins import _consents
from workers.builtin.plugins._consents import Consents

DIGEST = "0123456789abcdef" * 2
OTHER = DIGEST[::-1]


def test_a_consent_is_kept_for_this_user_alone(tmp_path):
    """One file, named by the digest, in a folder that nobody else can look into."""
    Consents(str(tmp_path)).keep(DIGEST, name="pdf", folder="/w/pdf")
    file = tmp_path / "consents" / DIGEST

    assert Consents(str(tmp_path)).has(DIGEST)
    assert not Consents(str(tmp_path)).has(OTHER)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(file.read_text())["name"] == "pdf"
    assert [one.name for one in file.parent.iterdir()] == [DIGEST]


def test_without_a_daemon_nothing_is_kept():
    """And nothing is believed."""
    consents = Consents(None)
    consents.keep(DIGEST, name="pdf", folder="/w/pdf")

    assert not consents.has(DIGEST)


@pytest.mark.parametrize("way", ["writable file", "writable folder", "link", "folder", "a path"])
def test_what_others_could_have_put_there_is_no_consent(tmp_path, way):
    """Only a plain file counts that this user alone can have made."""
    consents = Consents(str(tmp_path))
    consents.keep(DIGEST, name="pdf", folder="/w/pdf")
    file = tmp_path / "consents" / DIGEST
    if way == "writable file":
        file.chmod(0o622)
    elif way == "writable folder":
        file.parent.chmod(0o777)
    elif way == "a path":
        assert not consents.has(f"../consents/{DIGEST}")
        return
    else:
        file.unlink()
        file.mkdir() if way == "folder" else file.symlink_to("/etc/passwd")

    assert not consents.has(DIGEST)


def test_the_oldest_makes_room(tmp_path, monkeypatch):
    """The folder is bounded."""
    monkeypatch.setattr(_consents, "CONSENTS_MAX", 3)
    consents = Consents(str(tmp_path))
    digests = [f"{at:032x}" for at in range(5)]
    for at, digest in enumerate(digests):
        consents.keep(digest, name="pdf", folder="/w/pdf")
        os.utime(tmp_path / "consents" / digest, (at, at))

    assert [consents.has(one) for one in digests] == [False, False, True, True, True]


def test_a_folder_that_can_t_be_made_is_no_end(tmp_path):
    """The session goes on, with the consent of its own."""
    (tmp_path / "consents").write_text("in the way")
    consents = Consents(str(tmp_path))
    consents.keep(DIGEST, name="pdf", folder="/w/pdf")

    assert not consents.has(DIGEST)
