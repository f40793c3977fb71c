"""Code as bytes: what cannot be imported elsewhere, with everything local that it uses.

This is cloudpickle, with those things put right that our users meet on the first day: a msgspec
``Struct`` class and its ``Meta``, neither of which cloudpickle can take; classes of which msgspec
keeps what it has computed; ``TypedDict`` classes with a base; a ``NewType``, which it knows by its
name alone; the marks by which ``dataclasses`` knows a field without a default; annotations that are
strings, which mean nothing where the module is another one; and a local module that is used as a
whole, which it takes unless two such modules import each other.

Import it where it is used: it loads cloudpickle. The functions that a loaded pickle calls
(``make_struct``, ``make_typed_dict``, ``make_meta``, ``make_module``, ``set_all``) keep their
names: they are journaled.
"""

import dataclasses
import dis
import io
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Final, NewType, get_type_hints, is_typeddict

import cloudpickle  # type: ignore[import-untyped]
import msgspec

from cmdc_runtime.packing.origin import is_local_import, local_modules

CULPRIT_DEPTH_MAX: Final = 6
CULPRIT_PARTS_MAX: Final = 200

Reduced = tuple[Any, ...]  # Any: what pickle calls a reduce value

_REGISTRY: Final = threading.Lock()  # cloudpickle's register of modules is one for the process
_MODULE_MACHINERY: Final = {"__builtins__", "__cached__", "__loader__", "__spec__"}
_STRUCT_MACHINERY: Final = {"__annotations__", "__dict__", "__slots__", "__weakref__"}
_REDUCED_WITH_STATE: Final = 3
"""So many values or more, where a class travels whole and not by what every process has."""
_CACHE_PREFIX: Final = "__msgspec_"
_ANNOTATIONS: Final = "__annotations__"
_POST_INIT: Final = "__post_init__"
_LOOKED_FOR_EARLY: Final = ("__orig_bases__", _POST_INIT)
"""What is looked for when a Struct class is made, and never again."""
_HELD_BY_TYPED_DICTS: Final = (
    "__annotations__", "__doc__", "__module__", "__qualname__", "__required_keys__",
    "__optional_keys__", "__readonly_keys__", "__mutable_keys__", "__total__",
)  # fmt: skip
_META_FIELDS: Final = tuple(name for name in dir(msgspec.Meta) if not name.startswith("_"))
_CONFIG_FIELDS: Final = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip


class LateImportError(Exception):
    """A function imports a local module only when it is called, which will not be there then."""


def dumps(thing: object) -> bytes:
    """Return ``thing`` as bytes that ``pickle.loads`` opens where it cannot be imported.

    Raises:
        LateImportError: a function of it would import a local module when called.
        Exception: anything that pickling a part of it raised; ``culprit`` names the part.
    """
    with _REGISTRY:
        known = cloudpickle.list_registry_pickle_by_value()
        modules = [module for name, module in local_modules().items() if name not in known]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            buffer = io.BytesIO()
            _Pickler(buffer).dump(thing)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue()


def culprit(thing: object, depth: int = CULPRIT_DEPTH_MAX) -> list[str]:
    """Return the way to the innermost part that cannot be pickled, empty if it is ``thing``."""
    if depth == 0:
        return []
    for _, (name, part) in zip(range(CULPRIT_PARTS_MAX), _parts(thing), strict=False):
        if part is not thing and not _can_travel(part):
            label = f"{name} ({type(part).__module__}.{type(part).__qualname__})"
            return [label, *culprit(part, depth - 1)]
    return []


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not annotated
    dispatch_table: ClassVar[Any] = ChainMap(
        {msgspec.Meta: lambda meta: (make_meta, (_meta_fields(meta),))},
        cloudpickle.Pickler.dispatch_table,
    )

    def reducer_override(self, thing: Any) -> Any:  # Any: pickle asks about everything
        if isinstance(thing, ModuleType) and thing.__name__ in _registered():
            return _reduce_module(thing)
        if isinstance(thing, NewType) and _is_local(thing):
            return _reduce_new_type(thing)
        if thing is dataclasses.MISSING:
            return "MISSING"  # its name in its module: it is known by its identity
        reduced = super().reducer_override(thing)
        if reduced is NotImplemented:  # by reference, or nothing special
            return reduced
        if isinstance(thing, FunctionType):
            _refuse_late_imports(thing)
        return _reduce_class(thing, reduced) if isinstance(thing, type) else reduced


def make_meta(fields: dict[str, Any]) -> msgspec.Meta:
    """Return an annotation's bounds."""
    return msgspec.Meta(**fields)


def make_module(name: str) -> ModuleType:
    """Return a module that no import finds; what it holds follows."""
    return ModuleType(name)


def make_struct(
    name: str, bases: tuple[type, ...], fields: list[Any], config: dict[str, Any]
) -> type[msgspec.Struct]:
    """Return a Struct class; its annotations and methods follow."""
    given = [(field, kind, msgspec.field(**settings)) for field, kind, settings in fields]
    namespace: dict[str, Any] = config.get("namespace", {})
    if _POST_INIT in namespace:  # msgspec keeps the one it finds now: it asks for the one to come
        namespace[_POST_INIT] = lambda self: made.__dict__[_POST_INIT](self)  # noqa: PLW0108
    made: type[msgspec.Struct] = msgspec.defstruct(name, given, bases=bases, **config)
    return made


def make_typed_dict(name: str, kind: type) -> type:
    """Return a TypedDict class of the metaclass ``kind``; what it holds follows."""
    made: type = kind(name, (), {_ANNOTATIONS: {}})
    return made


def set_all(thing: Any, state: Mapping[str, Any]) -> None:  # Any: a module or a class
    """Give a class or module what it held; it comes last, since it may hold the thing itself."""
    for name, value in state.items():
        setattr(thing, name, value)


def _registered() -> set[str]:
    registered: set[str] = cloudpickle.list_registry_pickle_by_value()
    return registered


def _reduce_module(module: ModuleType) -> Reduced:
    held = {name: value for name, value in vars(module).items() if name not in _MODULE_MACHINERY}
    return make_module, (module.__name__,), held, None, None, set_all


def _is_local(thing: NewType) -> bool:
    """Say whether no import elsewhere finds it by its name."""
    is_of_script = thing.__module__ in ("__main__", *_registered())
    return is_of_script or "<locals>" in vars(thing)["__qualname__"]


def _reduce_new_type(thing: NewType) -> Reduced:
    named = {name: vars(thing)[name] for name in ("__module__", "__qualname__")}
    return NewType, (thing.__name__, thing.__supertype__), named


def _reduce_class(thing: type, reduced: Reduced) -> Reduced:
    """Return what makes a local class elsewhere; ``reduced`` is cloudpickle's answer."""
    if len(reduced) < _REDUCED_WITH_STATE:  # one that every process has, as type(None)
        return reduced
    if issubclass(thing, msgspec.Struct):
        return _reduce_struct(thing)
    # One with type parameters says its bases itself, and cloudpickle takes it.
    if is_typeddict(thing) and "__orig_bases__" not in vars(thing):
        return _reduce_typed_dict(thing)
    make, arguments, (held, slots), *rest = reduced
    kept = {name: value for name, value in held.items() if not name.startswith(_CACHE_PREFIX)}
    if _ANNOTATIONS in kept:
        kept[_ANNOTATIONS] = _annotations(thing)
    return make, arguments, (kept, slots), *rest


def _reduce_struct(struct: type[msgspec.Struct]) -> Reduced:
    own = [name for name in struct.__struct_fields__ if name in vars(struct)]
    fields = [_field(field) for field in msgspec.structs.fields(struct) if field.name in own]
    config = {name: getattr(struct.__struct_config__, name) for name in _CONFIG_FIELDS}
    config["kw_only"] = any(name not in struct.__match_args__ for name in own)
    config["module"] = struct.__module__
    early = {name: vars(struct).get(name) for name in _LOOKED_FOR_EARLY if name in vars(struct)}
    config["namespace"] = early | ({_POST_INIT: None} if _POST_INIT in early else {})
    held = {
        name: value
        for name, value in vars(struct).items()
        if name not in own and name not in _STRUCT_MACHINERY
        if not name.startswith(("__match", _CACHE_PREFIX))
    }
    held[_ANNOTATIONS] = _annotations(struct)
    return (
        make_struct,
        (struct.__name__, struct.__bases__, fields, config),
        held,
        None,
        None,
        set_all,
    )


def _reduce_typed_dict(thing: type) -> Reduced:
    held = {name: vars(thing)[name] for name in _HELD_BY_TYPED_DICTS if name in vars(thing)}
    held[_ANNOTATIONS] = _annotations(thing)
    return make_typed_dict, (thing.__name__, type(thing)), held, None, None, set_all


def _annotations(thing: type) -> dict[str, Any]:  # Any: whatever was written
    """Return a class's own annotations as what they name here, else as they were written."""
    own: dict[str, Any] = vars(thing).get(_ANNOTATIONS, {})
    try:
        hints = get_type_hints(thing, include_extras=True)
    except Exception:  # noqa: BLE001 - they are code, and a name may be known to type checkers only
        return own
    return {name: hints.get(name, kind) for name, kind in own.items()}


def _field(field: msgspec.structs.FieldInfo) -> tuple[str, Any, dict[str, Any]]:
    settings: dict[str, Any] = {"name": field.encode_name}
    if field.default is not msgspec.NODEFAULT:
        settings["default"] = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        settings["default_factory"] = field.default_factory
    # Any: what it takes stands in the annotations that follow, since it may be the class itself.
    return field.name, Any, settings


def _meta_fields(meta: msgspec.Meta) -> dict[str, Any]:
    fields = {name: getattr(meta, name) for name in _META_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def _refuse_late_imports(function: FunctionType) -> None:
    for code in _codes(function.__code__):
        for name in _imports(code):
            if is_local_import(name):
                raise LateImportError(
                    f"{function.__qualname__} imports {name!r} when it is called, and that module"
                    " is not installed: import it at the top of the module instead"
                )


def _imports(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME" and instruction.argval:
            yield str(instruction.argval)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _can_travel(part: object) -> bool:
    try:
        dumps(part)
    except Exception:  # noqa: BLE001 - pickling runs any class's code; this asks whether it works
        return False
    return True


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    if isinstance(thing, FunctionType):
        yield from _function_parts(thing)
    elif isinstance(thing, MethodType):
        yield "the object of the method", thing.__self__
        yield "the function of the method", thing.__func__
    elif isinstance(thing, Mapping):
        yield from ((f"key {key!r}", value) for key, value in thing.items())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from ((f"item {at}", value) for at, value in enumerate(thing))
    elif isinstance(function := getattr(thing, "__wrapped__", None), FunctionType):
        yield from _function_parts(function)
    elif hasattr(thing, "__dict__"):
        kind = "variable" if isinstance(thing, ModuleType) else "attribute"
        yield from ((f"{kind} {name!r}", value) for name, value in list(vars(thing).items()))


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f"closure variable {name!r}", cell.cell_contents
        except ValueError:  # not set yet
            continue
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield f"global {name!r}", function.__globals__[name]
    yield "a default", function.__defaults__
    yield "a default", function.__kwdefaults__
