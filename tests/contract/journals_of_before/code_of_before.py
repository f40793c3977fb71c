"""A tool that sessions of these journals know by its name; it must stay as it is, to the letter."""

import cmdc_runtime as cmdc


@cmdc.tool(effects="read")
def known(key: str) -> str:
    """Look something up."""
    return f"known: {key}"
