"""How a tool, and what it stands on, says that it could not do what was asked."""

from cmdc_runtime.errors import ExtensionError


class ToolError(ExtensionError):
    """An expected failure: its text is the result that the model reads, marked as an error."""


class OtherBranchError(ToolError):
    """A call asks for a branch by a name that it gave to something else before."""
