"""Model switch: the next request goes to another model, with the conversation as it is.

CMDC_MODEL=openai:gpt-4o-mini OTHER_MODEL=anthropic:claude-haiku-4-5 \
    python examples/06_model_switch.py
"""

import os

import cmdc_runtime as cmdc

FIRST = os.environ["CMDC_MODEL"]
OTHER = os.environ.get("OTHER_MODEL", FIRST)


def ask(session: cmdc.Session, question: str) -> None:
    """Print a question, and which model says what to it."""
    print(f"> {question}\n{session.status().model}: {session.run(question).text}\n")


with cmdc.create_agent(model=FIRST) as session:
    ask(session, "My name is Ada. Greet me in five words.")

    # A request that is under way would go on where it is. Subscribers get ``ModelSwitched``.
    session.switch_model(OTHER)
    ask(session, "What is my name?")

    # Options are litellm's: keys, addresses, temperature. Without them those in force stay.
    session.switch_model(FIRST, provider_opts={"temperature": 0.0})
    ask(session, "Spell it backwards.")

    # A name that is none is refused at once, and nothing changes.
    try:
        session.switch_model("no model")
    except cmdc.InvalidOptions as error:
        print(error.problems)
    print(f"{session.status().total_tokens} tokens, {len(session.messages())} messages")
