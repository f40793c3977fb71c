"""One contract over all built-in tools: a new module in the folder is held to it by being there.

It needs one line in ``SAMPLES`` and ``META``, and a light reference in ``cmdc_runtime.tools``.
"""

import importlib
import inspect
import pkgutil

import jsonschema
import pytest

from cmdc_runtime import tools as references
from cmdc_runtime.extensions import ToolContext, ToolError, as_tool
from cmdc_runtime.packing import BuiltIn
from workers.builtin import tools as package

NAMES = sorted(
    module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"
)
ENTRY = {"id": "1", "content": "test it", "status": "completed"}
# fmt: off
SAMPLES = {
    # name                  isolation   effects       arguments
    "apply_patch":          ("thread",  "write",      {"patch": "*** Begin Patch\n"
                                                       "*** Delete File: a\n*** End Patch"}),
    "ask_user":             ("task",    "idempotent", {"question": "Which?"}),
    "compact_conversation": ("task",    "idempotent", {}),
    "edit_file":            ("thread",  "write",      {"path": "a", "old_string": "b",
                                                       "new_string": "c"}),
    "fetch_url":            ("task",    "read",       {"url": "https://example.org/"}),
    "glob":                 ("process", "read",       {"pattern": "*.py"}),
    "grep":                 ("process", "read",       {"pattern": "x+"}),
    "list_dir":             ("thread",  "read",       {}),
    "load_skill":           ("thread",  "read",       {"name": "pdf"}),
    "read_file":            ("thread",  "read",       {"path": "a"}),
    "reason":               ("task",    "idempotent", {"question": "Why?"}),
    "shell":                ("task",    "write",      {"command": "true"}),
    "task":                 ("task",    "write",      {"description": "look"}),
    "write_file":           ("thread",  "write",      {"path": "a", "content": "b"}),
    "write_todos":          ("task",    "idempotent", {"todos": [ENTRY]}),
}
# What people read about these calls.
META = {
    "apply_patch":          "Patch a",
    "ask_user":             "Ask: Which?",
    "compact_conversation": "Compact the conversation: manual compact",
    "edit_file":            "Edit a",
    "fetch_url":            "Fetch https://example.org/",
    "glob":                 "Find *.py",
    "grep":                 "Search for x+",
    "list_dir":             "List .",
    "load_skill":           "Skill pdf",
    "read_file":            "Read a",
    "reason":               "Reason: Why?",
    "shell":                "Run true",
    "task":                 "Task for general-purpose: look",
    "write_file":           "Write a",
    "write_todos":          "WriteTodos 1/1 done",
}
# fmt: on
REQUIRED = {"fetch_url": {"allow": ["example.org"]}}
"""Options without a default."""


def module_of(name):
    """Return the module of a built-in tool."""
    return importlib.import_module(f"{package.__name__}.{name}")


def made(name):
    """Return the tool with its default options."""
    return as_tool(module_of(name).create(**REQUIRED.get(name, {})))


def light_references():
    """Return the classes that applications are given, by the names of the tools."""
    found = (thing for thing in vars(references).values() if isinstance(thing, type))
    return {
        thing.short_name: thing
        for thing in found
        if issubclass(thing, BuiltIn) and thing is not BuiltIn
    }


def test_every_built_in_has_a_sample_and_a_light_reference():
    """The folder, the table above and what applications are given name the same tools."""
    assert sorted(SAMPLES) == sorted(META) == NAMES
    assert sorted(light_references()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_name_and_file_agree(name):
    """The tool is named as its module, and so as its short name."""
    assert made(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_isolation_and_effects_are_as_agreed(name):
    """Where a call runs and whether it may run twice are promises, so they are written down."""
    tool = made(name)

    assert (tool.isolation, tool.effects) == SAMPLES[name][:2]


@pytest.mark.parametrize("name", NAMES)
def test_model_reads_everything(name):
    """The schema is draft 7 and closed, and each argument is described, as is the tool."""
    tool = made(name)
    jsonschema.Draft7Validator.check_schema(tool.parameters)

    assert len(tool.describe(ToolContext())) > len(name)
    assert tool.parameters["additionalProperties"] is False
    assert [
        argument
        for argument, schema in tool.parameters["properties"].items()
        if not schema.get("description")
    ] == []


@pytest.mark.parametrize("name", NAMES)
def test_sample_fits_the_schema_and_the_check(name):
    """What the schema allows the check takes, and people read in a line what will be done."""
    tool = made(name)
    *_, arguments = SAMPLES[name]
    jsonschema.validate(arguments, tool.parameters, jsonschema.Draft7Validator)

    assert tool.meta(tool.check(arguments)) == META[name]
    assert isinstance(tool.meta({}), str)


@pytest.mark.parametrize("name", NAMES)
def test_bad_arguments_are_reported(name):
    """An argument that does not exist is an error that the model reads."""
    with pytest.raises(ToolError, match=f"Invalid arguments for {name}: .*no_such_argument"):
        made(name).check({**SAMPLES[name][2], "no_such_argument": 1})


@pytest.mark.parametrize("name", NAMES)
def test_light_reference_has_the_options_of_the_tool(name):
    """The fields of the reference are the arguments of ``create``, with the same defaults."""
    reference = light_references()[name]
    arguments = inspect.signature(module_of(name).create).parameters

    assert list(arguments) == list(reference.__struct_fields__)
    required = REQUIRED.get(name, {})
    for field, argument in arguments.items():
        if field in required:
            assert argument.default is inspect.Parameter.empty
        else:
            assert (getattr(reference(**required), field) or None) == argument.default, field
