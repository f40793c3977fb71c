"""Somebody who writes by completion: what an editor asks a library, with the engine of editors.

The check of types is the test's, of ``typed.py``.
"""

import inspect

import jedi

import cmdc_runtime as cmdc

WRITTEN = """
import cmdc_runtime as cmdc
with cmdc.create_agent(model="openai:gpt-4o-mini") as session:
    session.
"""


def completed(source: str, line: int, column: int) -> set[str]:
    """Return what an editor offers at a place."""
    return {one.name for one in jedi.Script(source).complete(line, column)}


print(completed("import cmdc_runtime as cmdc\ncmdc.", 2, 5) >= set(cmdc.__all__) - {"__version__"})
print(completed(WRITTEN, 4, 12) >= {"run", "stream", "stream_events", "collect_reply", "status"})
signatures = jedi.Script(WRITTEN).get_signatures(3, 23)
print(sorted({parameter.name for one in signatures for parameter in one.params}))
print(all(inspect.getdoc(getattr(cmdc, name)) for name in cmdc.__all__ if name != "__version__"))
print((inspect.getdoc(cmdc.create_agent) or "").splitlines()[0])
