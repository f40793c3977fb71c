"""The contract of providers: what kind of failure is what, and what a provider may leave out."""

import pytest

from cmdc_runtime.errors import InvalidFields
from cmdc_runtime.extensions.provider import (
    CLASS_KINDS,
    OVERFLOW_TEXTS,
    PERMANENT_TEXTS,
    SPENT_TEXTS,
    STATUS_KINDS,
    TRANSIENT_TEXTS,
    FailureKind,
    ModelRequest,
    ModelTable,
    ProviderError,
    classify,
    context_window_of,
    price_usd_of,
)

T, P = FailureKind.TRANSIENT, FailureKind.PERMANENT
O, TO = FailureKind.OVERFLOW, FailureKind.TIMEOUT  # noqa: E741


class Plain:
    """A provider that only answers."""

    async def stream(self, request):
        return
        yield


class Knowing(Plain):
    """A provider that knows its models, too."""

    def context_window(self, model):
        return 8_000 if model == "a:b" else None

    def price_usd(self, model, prompt_tokens, completion_tokens):
        return 0.001 * prompt_tokens + 0.002 * completion_tokens if model == "a:b" else None


def test_a_provider_need_not_know_its_models():
    """Then nothing is known: no window, no price."""
    assert not isinstance(Plain(), ModelTable)
    assert context_window_of(Plain(), "a:b") is None
    assert price_usd_of(Plain(), "a:b", 1, 1) is None


def test_a_provider_that_knows_its_models_is_asked():
    """It may still not know one of them."""
    assert isinstance(Knowing(), ModelTable)
    assert context_window_of(Knowing(), "a:b") == 8_000
    assert context_window_of(Knowing(), "a:c") is None
    assert price_usd_of(Knowing(), "a:b", 10, 5) == pytest.approx(0.02)
    assert price_usd_of(Knowing(), "a:c", 10, 5) is None


def test_a_request_asks_for_free_text_unless_a_schema_is_given():
    """A schema is an option."""
    assert ModelRequest(model="a:b", messages=()).response_format is None


@pytest.mark.parametrize("name", CLASS_KINDS)
def test_a_clear_class_decides_whatever_the_status(name):
    """A client that names the failure knows best."""
    assert classify(500, [name, "Exception"], "text") == CLASS_KINDS[name]


@pytest.mark.parametrize("text", OVERFLOW_TEXTS)
def test_each_overflow_text_is_known_where_the_status_is_unclear(text):
    """In any case of letters; behind a clear status the same words mean something else."""
    assert classify(400, [], f"Oh: {text.upper()}!") == O
    assert classify(None, [], text) == O
    assert classify(401, [], text) == P


@pytest.mark.parametrize("text", PERMANENT_TEXTS)
def test_permanent_texts_win_over_transient_ones(text):
    """What cannot succeed is never asked again."""
    assert classify(None, [], f"{text}, 503, timeout") == P


@pytest.mark.parametrize("text", TRANSIENT_TEXTS)
def test_each_transient_text_is_known(text):
    """The last resort, where there is neither class nor status."""
    assert classify(None, [], text) == T


@pytest.mark.parametrize("code", SPENT_TEXTS)
def test_an_account_that_has_nothing_left_is_asked_no_more(code):
    """Whatever its status and class say: a limit that is soon over has the same."""
    assert classify(429, ["RateLimitError"], f'{{"code": "{code}"}}') == P
    assert classify(429, ["RateLimitError"], "You exceeded your current quota.") == T


@pytest.mark.parametrize("status", STATUS_KINDS)
def test_a_status_with_a_meaning_of_its_own_decides(status):
    """Before what its class of statuses says."""
    assert classify(status, ["APIConnectionError"], "odd") == STATUS_KINDS[status]


@pytest.mark.parametrize(
    ("status", "names", "text", "kind"),
    [
        (418, [], "odd", P),
        (599, [], "odd", T),
        (302, [], "odd", P),
        (302, ["ConnectionError"], "odd", T),
        (None, ["Sub", "APIConnectionError"], "odd", T),
        (None, [], "odd", P),
        (500, [], "prompt is too long", T),
        (None, ["TimeoutError"], "", TO),
    ],
)
def test_the_rest_goes_by_status_then_by_hint(status, names, text, kind):
    """What nothing is known of is permanent: no retry is safe for it."""
    assert classify(status, names, text) == kind


OVERFLOWS = {
    "openai": "This model's maximum context length is 128000 tokens. However, your messages"
    " resulted in 140210 tokens. Please reduce the length of the messages.",
    "openai responses": "Your input exceeds the context window of this model. Please adjust it.",
    "openai tokens": "Input tokens exceed the configured limit of 272000 tokens.",
    "openai code": "bad request context_length_exceeded",
    "openai string": "Invalid 'messages[1].content': string too long. string_above_max_length",
    "openai input": "Invalid 'input[2].content[0].text': string too long. string_above_max_length",
    "anthropic": "prompt is too long: 201512 tokens > 200000 maximum",
    "anthropic sum": "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000",
    "google": "The input token count (1300000) exceeds the maximum number of tokens allowed (8).",
    "vertex": "Unable to submit request because the input token count is 11 but model only supports"
    " up to 10.",
    "bedrock": "Input is too long for requested model.",
    "bedrock nova": "Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "copilot": "prompt token count of 130000 exceeds the limit of 128000",
    "copilot code": "model_max_prompt_tokens_exceeded",
    "llama.cpp": "the request exceeds the available context size. try increasing it",
    "llama.cpp new": "request (9000 tokens) exceeds the available context size (8192 tokens)",
    "llama-cpp-python": "Requested tokens (9000) exceed context window of 8192",
    "lm studio": "The number of tokens to keep from the initial prompt is greater than the context"
    " length.",
    "lm studio only": "Trying to keep the first 4690 tokens when context the overflows. However,"
    " the model is loaded with context length of only 4096 tokens",
    "lm studio size": "Context size has been exceeded.",
    "vllm sum": "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum"
    " context length is 8192 tokens and your request has 5000 input tokens (4000 > 8192 - 5000).",
    "openai sum": "This model's maximum context length is 8192 tokens. However, you requested 9000"
    " tokens (5000 in the messages, 4000 in the completion). Please reduce the length.",
    "sglang sum": "Requested token count exceeds the model's maximum context length of 8192 tokens."
    " You requested a total of 9000 tokens: 5000 tokens from the input messages and 4000 tokens for"
    " the completion.",
    "tgi sum": "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and"
    " 200 `max_new_tokens`",
    "vllm": "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "sglang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "sglang count": "Requested token count exceeds the model's maximum context length of 8192.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.",
    "tgi inputs": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "ollama": "the input length exceeds the context length",
    "mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768"
    " maximum context length",
    "mistral many": "Prompt has too many tokens",
    "cohere": "too many tokens: total number of tokens in the prompt exceed limit of 4096",
    "deepseek": "This model's maximum context length is 65536 tokens. Please reduce the length of"
    " the messages or completion.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "groq": "Request too large for model `m`: Limit 6000, please reduce your message size",
    "groq messages": "Please reduce the length of the messages or completion.",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 9000"
    " while limit is 8192",
    "openrouter": "This endpoint's maximum context length is 8192 tokens. However, you requested"
    " about 9000 tokens.",
    "moonshot": "Invalid request: Your request exceeded model token limit: 8192",
    "dashscope": "Range of input length should be [1, 30720]",
    "zhipu": "Prompt exceeds max length",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "fireworks": "The prompt is too long: 9000, model maximum context length: 8192",
    "deepinfra": "Requested input length 10000 exceeds maximum input length 8192",
}
NO_OVERFLOWS = {
    "vllm, a long answer": "'max_tokens' or 'max_completion_tokens' is too large: 99999. This"
    " model's maximum context length is 8192 tokens and your request has 12 input tokens (99999 >"
    " 8192 - 12).",
    "vllm, older": "max_tokens is too large: 8192. This model's maximum context length is 8192"
    " tokens and your request has 5 input tokens.",
    "openai, a long answer": "This model's maximum context length is 8192 tokens. However, you"
    " requested 9012 tokens (12 in the messages, 9000 in the completion). Please reduce the length"
    " of the messages or completion.",
    "openrouter, a long answer": "This endpoint's maximum context length is 8192 tokens. However,"
    " you requested about 9012 tokens (12 of text input, 9000 in the output). Please reduce it.",
    "sglang, a long answer": "Requested token count exceeds the model's maximum context length of"
    " 8192 tokens. You requested a total of 9012 tokens: 12 tokens from the input messages and 9000"
    " tokens for the completion. Please reduce the number of tokens in the input messages.",
    "anthropic sum, a long answer": "input length and `max_tokens` exceed context limit: 12 +"
    " 200000 > 200000, decrease input length or `max_tokens` and try again",
    "tgi, a long answer": "Input validation error: `inputs` tokens + `max_new_tokens` must be <="
    " 4097. Given: 6 `inputs` tokens and 4097 `max_new_tokens`",
    "another parameter": "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
    " 'max_completion_tokens' instead.",
    "a long answer": "max_tokens: 99999 exceeds the limit of 4096",
    "a long answer, openai": "max_tokens is too large: 99999. This model supports at most 4096"
    " completion tokens, whereas you provided 99999.",
    "a long answer, anthropic": "max_tokens: 99999 > 8192, which is the maximum allowed number of"
    " output tokens for m",
    "a long answer, bedrock": "The maximum tokens you requested exceeds the model limit of 4096.",
    "a long answer, google": "Unable to submit request because it has a maxOutputTokens value of"
    " 99999 but the supported range is from 1 to 8193.",
    "no answer": "max_tokens: must be greater than or equal to 1",
    "thoughts": "`max_tokens` must be greater than `thinking.budget_tokens`",
    "image": "image exceeds the limit of 20 MB",
    "image, anthropic": "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
    "image input": "Image input is too long on one side",
    "tools": "'tools': array too long, exceeds the limit of 128 tools",
    "tools, openai": "Invalid 'tools': array too long. Expected an array with maximum length 128",
    "stop": "stop: exceeds the limit of 4 sequences",
    "digits": "Exceeds the limit (4300 digits) for integer string conversion",
    "user": "Invalid 'user': string too long. Expected a string with maximum length 64, but got a"
    " string with length 99 instead. string_above_max_length",
    "tool": "Invalid 'tools[0].function.description': string too long. Expected a string with"
    " maximum length 1024. string_above_max_length",
    "call": "Invalid 'messages[2].tool_calls[0].id': string too long. string_above_max_length",
    "name": "Invalid 'messages[1].name': string too long. string_above_max_length",
    "budget": "Your daily token limit is used up.",
    "beta": "The 1M context window is not available for this subscription.",
    "option": "Extra inputs are not permitted: context_window",
    "temperature": "temperature exceeds the model's maximum of 1",
    "metadata": "metadata: exceeds the limit of 16 keys; reduce the length",
}


@pytest.mark.parametrize("status", [400, 413, 422, None])
@pytest.mark.parametrize("text", OVERFLOWS.values(), ids=OVERFLOWS)
def test_what_vendors_say_of_a_conversation_that_is_too_long_is_an_overflow(text, status):
    """Each in its own words; the conversation is compacted, and asked again."""
    assert classify(status, ["BadRequestError"], text) == O
    assert classify(401, ["BadRequestError"], text) == P


@pytest.mark.parametrize("text", NO_OVERFLOWS.values(), ids=NO_OVERFLOWS)
def test_what_exceeds_another_limit_is_no_overflow(text):
    """No shorter conversation cures it; to compact one for it loses what was said for nothing."""
    assert classify(400, ["BadRequestError"], text) == P
    assert classify(None, [], text) == P


def test_a_class_that_takes_another_string_for_the_conversation_does_not_decide():
    """Clients read the same words, and some call every long string a conversation."""
    names = ["ContextWindowExceededError", "BadRequestError"]

    assert classify(400, names, NO_OVERFLOWS["tool"]) == P
    assert classify(400, names, NO_OVERFLOWS["vllm, a long answer"]) == P
    assert classify(400, names, "oh") == O


SECONDS = "a finite number of seconds from 0 on, or None to leave the wait to the agent"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        *(
            ({"kind": kind}, f"kind: expected one of {', '.join(FailureKind)}, got {kind!r}")
            for kind in ("rate_limit", "TRANSIENT", "", None, 5, True, ["transient"])
        ),
        *(({"reason": one}, f"reason: expected a text, got {one!r}") for one in (5, None, b"no")),
        *(
            ({"status": one}, f"status: expected a number such as 429, or None, got {one!r}")
            for one in ("429", 4.0, True)
        ),
        *(
            (
                {"retry_after_s": one},
                f"retry_after_s: expected {SECONDS}, got {one!r}",
            )
            for one in (-1, float("nan"), float("inf"), True, "soon", "nan", "-3", "", [3])
        ),
        ({"retry_after_s": 10**400}, "retry_after_s: expected a finite number of seconds"),
    ],
    ids=lambda one: repr(one)[:60],
)
def test_a_failure_with_a_wrong_field_is_refused_where_it_is_made(fields, problem):
    """The field, its value and what would be right are named; else it would end in the kernel."""
    with pytest.raises(InvalidFields) as refused:
        ProviderError(**{"kind": "transient", "reason": "slow", **fields})

    assert str(refused.value).startswith(f"ProviderError: {problem}")


def test_all_wrong_fields_of_a_failure_are_named_at_once():
    """Nobody mends them one by one."""
    with pytest.raises(InvalidFields) as refused:
        ProviderError("no", 5, status="x", retry_after_s=-1)

    assert [problem.split(": ")[1] for problem in refused.value.problems] == [
        *("kind", "reason", "status", "retry_after_s")
    ]


@pytest.mark.parametrize("kind", FailureKind)
def test_the_kind_of_a_failure_may_be_its_word(kind):
    """It is the kind then."""
    assert ProviderError(kind.value, "no").kind is kind
    assert ProviderError(kind, "no").kind is kind


@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), (0, 0.0), (3, 3.0), (0.5, 0.5), ("30", 30.0), (" 1.5 ", 1.5)],
)
def test_a_wait_may_be_the_text_of_a_header(given, kept):
    """``Retry-After`` is a text; all there is of it is a number here."""
    error = ProviderError(FailureKind.TRANSIENT, "no", retry_after_s=given)

    assert (error.retry_after_s, type(error.retry_after_s)) == (kept, type(kept))
