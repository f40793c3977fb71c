"""Text that comes from outside, made fit to be written down and sent.

A file name that is no UTF-8, or half of a surrogate pair from a provider, is a str that no encoder
takes. Left as it is it would end the process at the next write, and again after each restart.
"""


def fit(text: str) -> str:
    """Return ``text`` with a ``?`` for what can't be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()
