"""A model that has an agent do, again and again, what its process does not survive."""

from cmdc_runtime.testing import ToolCalls, ToolUse


def poisoned(name):
    """Return what a model says: this call to all but to "Again."; it may be asked anew."""

    def say(request):
        is_over = request["messages"][-1]["content"] == "Again."
        return "fine" if is_over else ToolCalls(ToolUse(name, {}))

    return say
