"""What a list of tools has, and what models read of it."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.errors import InvalidTool, ToolNotFound
from cmdc_runtime.extensions import ToolContext
from cmdc_runtime.tools import find, to_schema


@cmdc.tool
def double(number: int) -> str:
    """Double a number.

    Args:
        number: Any.
    """
    return str(2 * number)


class Placed(cmdc.Tool):
    """Says where it is."""

    name = "placed"

    def execute(self, args, context):
        return "here"

    def describe(self, tool_context):
        return f"Works in {tool_context.working_dir}."


TOOLS = [
    double,
    Placed,
    cmdc.tools.ReadFile,
    cmdc.tools.Reason(name="think"),
    "shell",
    f"{__name__}:double",
]


@pytest.mark.parametrize(
    ("name", "at"), [("double", 0), ("placed", 1), ("read_file", 2), ("think", 3), ("shell", 4)]
)
def test_a_tool_is_found_by_its_name(name, at):
    """As it stands in the list, whatever form it has; the first one counts."""
    assert find(TOOLS, name) is TOOLS[at]


def test_a_tool_that_is_not_there_is_named_with_those_that_are():
    """So that a slip is seen."""
    with pytest.raises(ToolNotFound, match="no tool is named 'duble'; there are double, shell"):
        find([double, "shell"], "duble")
    with pytest.raises(ToolNotFound, match="there are none"):
        find([], "double")


@pytest.mark.parametrize("call", [lambda tools: find(tools, "x"), to_schema])
@pytest.mark.parametrize("thing", [print, 3, "shel", "no_such_module:x", cmdc.plugins.CostGuard])
def test_what_is_no_tool_is_refused(call, thing):
    """By both."""
    with pytest.raises(InvalidTool):
        call([thing])


def test_models_read_name_description_and_parameters():
    """In the form of requests, in their order; built-in ones as a session has them."""
    schema = to_schema(TOOLS, ToolContext(working_dir="/w"))
    functions = [one["function"] for one in schema]

    assert [one["name"] for one in functions] == [
        "double",
        "placed",
        "read_file",
        "think",
        "shell",
        "double",
    ]
    assert {one["type"] for one in schema} == {"function"}
    assert functions[0] == {
        "name": "double",
        "description": "Double a number.",
        "parameters": double.parameters,
    }
    assert functions[1]["description"] == "Works in /w."
    assert "path" in functions[2]["parameters"]["properties"]
    assert to_schema([Placed])[0]["function"]["description"] == "Works in .."
