"""What is otherwise on purpose where a vendor is asked without litellm: one row each, and why.

Everything that is no row here is a defect, of this project or of litellm.
"""

DIFFERENCES = {
    "additionalProperties of tools for vLLM": (
        "litellm drops the keyword from tools for hosted_vllm; servers of today take it, and a"
        " model that reads of a closed object keeps to it better"
    ),
    "no usage is made up": (
        "where a server reports none, litellm counts tokens and reports that as a usage; here"
        " it is unknown"
    ),
    "no status is made up": (
        "a server that has said 200 and reports a failure in the stream has no other status;"
        " litellm gives some of these failures a 500 of its own"
    ),
    "redirects lead to the same server or nowhere": (
        "a key goes to the server that it was meant for and nowhere else, and no request is made"
        " another on the way; the answer is reported as it is, with its status and where it leads"
    ),
    "one user agent": (
        "requests say that they are this project's, and nothing about libraries and machines; to"
        " OpenRouter no other project's name and page are sent"
    ),
    "no price where tokens of sound are": (
        "they have prices of their own, which this project does not know how to add"
    ),
}
