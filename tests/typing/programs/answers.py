"""Typed answers: what run returns, with a type of every kind."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict, assert_type

import msgspec
import pydantic

import cmdc_runtime as cmdc


class Town(msgspec.Struct):
    """A place."""

    name: str


class Order(pydantic.BaseModel):
    """What is wanted."""

    count: int


@dataclass
class Line:
    """A line."""

    text: str


class Row(TypedDict):
    """A row."""

    size: int


class Pair(NamedTuple):
    """Two."""

    left: int
    right: str


session = cmdc.create_agent(model="openai:gpt-4o-mini")
assert_type(session.run("Hello"), cmdc.Reply)
assert_type(session.run("Hello").output, str)
assert_type(session.run("Where?", result=Town).output, Town)
assert_type(session.run("Where?", result=Order, timeout=5).output, Order)
assert_type(session.run("Where?", result=Line).output, Line)
assert_type(session.run("Where?", result=Row).output, Row)
assert_type(session.run("Where?", result=Pair).output, Pair)
assert_type(session.run("How many?", result=int).output, int)
assert_type(session.run("Which?", result=list[str]).output, list[str])
assert_type(session.run("Which?", result=Literal["yes", "no"]).output, Literal["yes", "no"])
assert_type(session.run("Which?", result=Town | None).output, Town | None)
assert_type(cmdc.run(session, "Where?", result=list[Town]).output, list[Town])
assert_type(cmdc.run("a-session", "Where?").output, str)
session.run("Where?", result=5)  # wrong
session.run("Where?", result=Town).output.nam  # wrong

mayor = cmdc.create_agent(model="openai:gpt-4o-mini", result=Town)
assert_type(mayor, cmdc.Session[Town])
assert_type(mayor.run("Where?"), cmdc.Reply[Town])
assert_type(mayor.run("How many?", result=int).output, int)
assert_type(cmdc.run(mayor, "Where?").output, Town)
cmdc.create_agent(model="openai:gpt-4o-mini", result=5)  # wrong
cmdc.create_agent(model="openai:gpt-4o-mini", result=Town, max_turn=5)  # wrong


def first(town: cmdc.Session[Town], plain: cmdc.Session) -> str:
    """Take sessions of both kinds."""
    return town.run("Where?").output.name + plain.run("Hello").output


async def main() -> None:
    """Do the same in an event loop."""
    found = await cmdc.aio.create_agent(model="openai:gpt-4o-mini", result=Order)
    assert_type(found, cmdc.AsyncSession[Order])
    assert_type((await found.run("How many?")).output, Order)
    assert_type((await cmdc.aio.run(found, "How many?")).output, Order)
    assert_type((await cmdc.aio.run("a-session", "Which?", result=Row)).output, Row)
    async with cmdc.AsyncClient() as client:
        made = await client.create_agent(model="openai:gpt-4o-mini")
        assert_type((await client.run(made, "Which?", result=set[int])).output, set[int])


try:
    session.run("Where?", result=Town)
except cmdc.ResultInvalid as error:
    assert_type(error.text, str)
    assert_type(error.problems, tuple[str, ...])
