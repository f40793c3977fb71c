"""A mistyped vendor, and what is only unknown here."""

import json
import sys

import pytest

from workers.builtin.wires import table, vendor_names
from workers.builtin.wires.routes import VENDORS
from workers.builtin.wires.vendor_names import known_vendors, vendor_problem

SOURCE = """
class Other(str, Enum):
    NAME = "mistrel"


class LlmProviders(str, Enum):
    MISTRAL = "mistral"  # as it calls itself

    BEDROCK = "bedrock"


LlmProvidersSet = {"mistrol"}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of litellm's with these two files; nothing of it is kept."""
    (tmp_path / "types").mkdir()
    (tmp_path / "types" / "utils.py").write_text(SOURCE)
    (tmp_path / table.TABLE).write_text(json.dumps({"n": {"litellm_provider": "gemini"}, "m": []}))
    monkeypatch.setattr(table, "package", lambda: tmp_path)
    forget()
    yield tmp_path
    forget()


def forget():
    for one in (vendor_names._enumerated, table._table):
        one.cache_clear()


def test_the_vendors_are_those_of_both_files_and_ours(package):
    """Of the source nothing counts but the members of the one class."""
    assert known_vendors() == {"mistral", "bedrock", "gemini", *VENDORS}


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("opnai:gpt-4o", "openai:gpt-4o"),
        ("antropic/claude", "anthropic:claude"),
        ("mistralai:large", "mistral:large"),
        ("OpenAI:gpt-4o", "openai:gpt-4o"),
        ("gemni:pro", "gemini:pro"),
    ],
)
def test_a_mistyped_vendor_is_named_with_the_one_that_is_like_it(package, model, meant):
    """What is meant is the whole model, to be copied."""
    problem = vendor_problem(model, {})

    assert problem.startswith(f"there is no provider {model.replace('/', ':').split(':')[0]!r}; ")
    assert problem.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("model", ["mistral:large", "acme:one", "test:m", "gemini/pro"])
def test_what_is_known_or_like_none_passes(package, model):
    """A program may have added a vendor that nobody here knows."""
    assert vendor_problem(model, {}) is None


def test_an_option_that_names_the_vendor_counts(package):
    """The model may be called as it likes then."""
    assert vendor_problem("opnai:m", {"custom_llm_provider": "openai"}) is None


@pytest.mark.parametrize("gone", ["types/utils.py", table.TABLE, "both", "the class"])
def test_nothing_is_refused_where_a_file_does_not_say(package, monkeypatch, gone):
    """Half of the names would make a mistake of the other half."""
    if gone == "both":
        monkeypatch.setattr(table, "package", lambda: None)
    elif gone == "the class":
        (package / "types" / "utils.py").write_text("LlmProviders = ()\n")
    else:
        (package / gone).unlink()

    assert vendor_problem("opnai:gpt-4o", {}) is None


def test_a_vendor_that_is_spoken_to_here_costs_no_file(monkeypatch):
    """Its sessions start without a look at litellm's."""

    def look():
        raise AssertionError

    monkeypatch.setattr(vendor_names, "_enumerated", look)

    assert [vendor_problem(f"{one}:m", {}) for one in VENDORS] == [None] * len(VENDORS)


def test_the_installed_litellm_says_its_vendors_without_being_imported():
    """Its files have the form that is looked for."""
    forget()
    before = "litellm" in sys.modules

    assert {"gemini", "bedrock", "mistral", "ollama", "azure_ai"} <= known_vendors()
    assert ("litellm" in sys.modules) == before
