"""Typed answers: a tool that takes a model of your own, and an answer that is one.

CMDC_MODEL=openai:gpt-4o-mini python examples/16_typed_answers.py
"""

import os
from typing import Annotated, Literal

import msgspec

import cmdc_runtime as cmdc


class Parcel(msgspec.Struct, frozen=True):
    """A parcel and where it goes."""

    city: Annotated[str, msgspec.Meta(description="Where it goes.")]
    weight_kg: Annotated[float, msgspec.Meta(gt=0, le=30)]


class Quote(msgspec.Struct):
    """What sending a parcel costs."""

    parcel: Parcel
    euros: float
    service: Literal["standard", "express"]


@cmdc.tool(effects="read")
def price(parcel: Parcel, service: Literal["standard", "express"] = "standard") -> dict[str, float]:
    """Return what it costs to send a parcel."""
    return {"euros": parcel.weight_kg * (2.0 if service == "standard" else 5.0)}


with cmdc.create_agent(model=os.environ["CMDC_MODEL"], tools=[price], result=Quote) as session:
    quote = session.run("What does it cost to send 3 kg to Rome, the fast way?").output
    print(f"{quote.parcel.weight_kg:g} kg to {quote.parcel.city}: {quote.euros:.2f} EUR")

    # One call may want another type; this one is an object to the model, and a number here.
    days = session.run("How many days does that take?", result=int).output
    print(f"{days} days")
