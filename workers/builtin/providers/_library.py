"""litellm, imported in the one way that needs no network and reads nobody's files.

Import it from here and from nowhere else: the settings below count only when they come first.
"""

import os
import warnings

# Without the first, a thread of the import asks the network for prices; without the second, the
# first request to Claude with a schema does so for headers, and blocks the loop for up to 5 s;
# without the third, the import loads a .env file into the environment.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
os.environ.setdefault("LITELLM_MODE", "PRODUCTION")

import litellm

litellm.suppress_debug_info = True  # it would print advice to standard output at every failure
# Its types make pydantic warn once each on standard error, about nothing that anyone here can do.
warnings.filterwarnings("ignore", message="Items? .* `ReadOnly` qualifier", category=UserWarning)
# It makes a request's coroutine in a thread; who cancels the call meanwhile leaves it unawaited.
_UNAWAITED = r"coroutine '\w+\.\w*(completion|streaming)\w*' was never awaited"
warnings.filterwarnings("ignore", message=_UNAWAITED, category=RuntimeWarning)

__all__ = ["litellm"]
