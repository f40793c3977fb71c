"""What stands next to a field is its meaning."""

from typing import ClassVar

from scripts.reference.sources import declared, fields_of


class Base:
    """Something to derive from."""


class One(Base):
    """Some fields."""

    # --- numbers ---
    shared: ClassVar[int] = 1
    plain: int
    beside: int = 3  # of apples
    # --- words ---
    below: str = "x"
    """Spans
    two lines."""
    silent: list[str] = []  # noqa: RUF012 - read only


class Two(Base):
    """No fields."""


def test_fields_come_as_they_are_written():
    """Type, default, section, and a comment or a string as the meaning."""
    found = [
        (one.name, one.annotation, one.default, one.meaning, one.section) for one in fields_of(One)
    ]

    assert found == [
        ("plain", "int", "", "", "numbers"),
        ("beside", "int", "3", "of apples", "numbers"),
        ("below", "str", "'x'", "Spans two lines.", "words"),
        ("silent", "list[str]", "[]", "", "words"),
    ]
    assert fields_of(Two) == []


def test_only_a_modules_own_classes_are_its_catalogue():
    """What a test derives somewhere else is no part of it."""
    stranger = type("Stranger", (Base,), {"__module__": "elsewhere"})

    assert stranger in Base.__subclasses__()
    assert declared(Base) == [One, Two]
