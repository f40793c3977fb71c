"""The Python reference has every public name."""

import re

from cmdc_runtime import exports
from scripts.site import api

ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def test_each_public_name_has_an_entry(tmp_path):
    """But for the calls of the package, which are the methods of a client."""
    pages = api.write(tmp_path)
    entries = {name for page in pages for name in ENTRY.findall((tmp_path / page).read_text())}
    named = {
        f"{module}.{name}"
        for module, names in exports.NAMES_OF_MODULE.items()
        for name in names
        if name not in exports.CALLS
    }

    assert named - entries == set()
    assert "cmdc_runtime.events.MessageDelta" in entries
    assert "cmdc_runtime.plugins.CostGuard" in entries
    assert not [name for name in entries if name.rpartition(".")[2].isupper()]
