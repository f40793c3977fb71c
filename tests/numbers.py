"""The numbers of a type, for tests that each of them has its range."""

from msgspec import inspect


def unbounded(described):
    """Return the places of a type's whole numbers that may be of any size."""
    found = list(_numbers(inspect.type_info(described), described.__name__))
    assert found, f"{described} has none"
    return [place for place, kind in found if kind.ge is None or kind.le is None]


def _numbers(kind, place):
    """Yield the place and the kind of every number within a kind of msgspec's."""
    if isinstance(kind, inspect.IntType):
        yield place, kind
    for name in ("item_type", "key_type", "value_type"):
        if hasattr(kind, name):
            yield from _numbers(getattr(kind, name), place)
    for part in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from _numbers(part, place)
    if isinstance(kind, inspect.StructType | inspect.DataclassType):
        for field in kind.fields:
            yield from _numbers(field.type, f"{place}.{field.name}")
