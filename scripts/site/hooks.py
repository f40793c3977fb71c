"""What mkdocs calls by itself: one complaint of the reader of sources is no fault of the site.

The package's ``__all__`` is made of lists, which are read where they are written: ``exports``.
"""

import logging

_EXPECTED = "Unsupported item in cmdc_runtime.__all__"


def on_startup(**_given: object) -> None:
    """Leave the complaint out, and with it a build that fails for it."""
    for handler in logging.getLogger("mkdocs").handlers:
        handler.addFilter(_is_of_the_site)
    logging.getLogger("mkdocs.plugins.griffe").addFilter(_is_of_the_site)


def _is_of_the_site(record: logging.LogRecord) -> bool:
    return _EXPECTED not in record.getMessage()
