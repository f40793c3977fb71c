"""Handoffs: the model gives the conversation to another agent, with its prompt, tools and model.

CMDC_MODEL=openai:gpt-4o-mini python examples/17_handoffs.py
"""

import os

import cmdc_runtime as cmdc

MODEL = os.environ["CMDC_MODEL"]


@cmdc.tool(effects="read")
def invoice(number: int) -> str:
    """Return an invoice by its number."""
    return f"invoice {number}: 12 dollars, paid on Monday"


billing = cmdc.SubAgent(
    "billing",
    "Answers questions about invoices.",
    system_prompt="You are the clerk of a shop. When it is not about money, hand back.",
    tools=[invoice],
)
desk = cmdc.Blueprint(name="desk", purpose="Greets people and hands them to who knows.")


def ask(session: cmdc.Session, question: str) -> None:
    """Print a question, who hands it to whom, and who answers."""
    print(f"> {question}")
    for event in session.stream_events(question):
        if isinstance(event, cmdc.events.HandedOff):
            print(f"  {event.from_} hands over to {event.to}, who has {', '.join(event.tools)}")
        elif isinstance(event, cmdc.events.AgentEnd):
            print(f"{session.status().agent}: {event.messages[-1].content}")


with cmdc.create_agent(model=MODEL, blueprint=desk, handoffs=[billing]) as session:
    ask(session, "Is invoice 7 paid?")
    # Who acts goes on with the next prompt, until it hands over, or back.
    ask(session, "Thank you. When do you close?")
