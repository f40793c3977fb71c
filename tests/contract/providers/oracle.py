"""What litellm would send, asked of itself; nothing leaves the process and no key is used."""

import importlib
import json

BETA = "anthropic-beta"


class Oracle:
    """litellm, behind the settings that the project imports it with."""

    def __init__(self):
        self._adapter = importlib.import_module("workers.builtin.providers.litellm")
        utils = importlib.import_module("litellm.utils")
        types = importlib.import_module("litellm.types.utils")
        self._raw = utils.return_raw_request
        self._endpoint = types.CallTypes.completion

    def asked(self, request):
        """Return address, body and beta that litellm makes of a request; None: it refuses it.

        The beta is a header of Anthropic's, which names what a request needs.
        """
        arguments = self._adapter.call_arguments(request)
        arguments.pop("api_key", None)
        shown = json.loads(json.dumps(self._raw(self._endpoint, arguments)))
        body = shown.get("raw_request_body")
        if body is None:
            return None
        # The library behind it puts these where they belong when it sends.
        body |= body.pop("extra_body", None) or {}
        body.pop("extra_headers", None)
        return shown["raw_request_api_base"], body, shown["raw_request_headers"].get(BETA)
