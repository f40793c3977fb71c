"""Backends from their references: where a folder is."""

import pytest

from cmdc_runtime import backends
from workers.builtin.backends.composite import opened


@pytest.mark.parametrize(
    ("root_dir", "place"),
    [("out", "{here}/work/out"), ("../out", "{here}/out"), ("~/out", "{here}/home/out")],
)
def test_a_folder_is_where_its_name_says(tmp_path, monkeypatch, root_dir, place):
    """Relative to the session's working folder, or in the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    backend = opened(backends.Filesystem(root_dir=root_dir), str(tmp_path / "work"))
    backend.write("/f", "x")

    assert (tmp_path / place.format(here=tmp_path) / "f").read_text() == "x"


def test_an_absolute_folder_is_taken_as_it_is(tmp_path):
    """Whatever the working folder is."""
    backend = opened(backends.Filesystem(root_dir=str(tmp_path / "a")), "/nowhere")

    assert backend.local_path("/f") is None
    assert backend.write("/f", "x").error is None
    assert backend.local_path("/f") == str(tmp_path / "a" / "f")


def test_parts_of_a_composite_are_opened_too(tmp_path):
    """Each with the working folder."""
    reference = backends.Composite(
        default=backends.State(),
        routes={"/d/": backends.Filesystem(root_dir="d", virtual_mode=False)},
    )
    backend = opened(reference, str(tmp_path))

    assert backend.id.startswith("composite:(state:")
    assert backend.id.endswith(f"/d/=filesystem:{tmp_path}/d)")
