"""The reference pages of ``docs/reference``, made from the code that they describe.

``python -m scripts.reference`` (``make docs``) writes them, with ``--check`` (``make docs-check``)
it only says which are out of date. Nothing here lists what the code knows: classes come from their
base, meanings from docstrings and comments, and what a command does is found out by running it.

To add a page: a module with ``page() -> str`` and its row in ``pages.py``.
"""
