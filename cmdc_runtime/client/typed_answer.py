"""Answers of a type: the form that a model is asked for, and what its text becomes.

Any type that has a JSON Schema will do: Structs, dataclasses, TypedDicts, NamedTuples, models of
pydantic, and plain ones as ``int``, ``list[str]``, ``Literal`` and unions. Vendors want an object
at the root: what is none is asked for as the one field of an object. Where every field is required
an object is closed, so that vendors can bind the model to it. msgspec reads what it knows, and
pydantic what has a part of its own. To take one more kind of type, add its reader to
``schema_and_reader``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec

from cmdc_runtime.answer_schema import Schema, form_problem, parsed_text, schema_and_reader
from cmdc_runtime.checked_struct import Checked
from cmdc_runtime.errors import InvalidOptions, ResultInvalid
from cmdc_runtime.extensions.schema import in_both_drafts
from cmdc_runtime.foreign_types import message_of
from cmdc_runtime.lines import one_line
from cmdc_runtime.messages import Message, TokenUsage
from cmdc_runtime.options import Options
from cmdc_runtime.plain import is_data, reason_of, short

if TYPE_CHECKING:
    from typing_extensions import TypeForm as TypeForm  # noqa: PLC0414 - exported
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
    Given = TypeVar("Given")
else:
    from typing import TypeVar

    Output = TypeVar("Output")
    Given = TypeVar("Given")
    TypeForm = type
    """At run time a type, of any form, is looked at where it is taken."""

WISHES_MAX: Final = 1
"""Of prompts that ask for another answer, where its type refuses what its schema allows."""
PROBLEM_CHARS_MAX: Final = 280
_UNION: Final = "ype union"
"""In what msgspec says of a union whose parts it could not tell apart."""
_OF_UNIONS: Final = (
    "tag the Structs, as in class Cat(msgspec.Struct, tag=True), "
    "or give a union of models of pydantic"
)
FIELD: Final = "result"
"""Of the object that stands around what is no object itself."""


class Reply(msgspec.Struct, Generic[Output], frozen=True, kw_only=True, metaclass=Checked):
    """What one prompt led to; ``text`` is the last answer's, ``messages`` what the cycle added.

    ``output`` is the answer as the ``result`` that was asked for, else its text.
    """

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage
    output: Output


@dataclass(frozen=True, slots=True)
class ResultForm(Generic[Output]):
    """The form of an answer: its schema, and how its JSON becomes a value of the type."""

    schema: Schema
    read_json: Callable[[bytes], Output]
    is_wrapped: bool

    def read(self, text: str) -> Output:
        """Return the value that an answer stands for.

        Raises:
            ResultInvalid: it stands for none.
        """
        try:
            body = parsed_text(text).encode()
            if self.is_wrapped:
                body = bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])[FIELD])
            return self.read_json(body)
        except KeyError as error:
            raise ResultInvalid(text, [f"it has no {FIELD!r}"]) from error
        except Exception as error:  # a class of the application may do anything
            found = message_of(error) if isinstance(error, ValueError) else reason_of(error)
            raise ResultInvalid(text, [one_line(found, PROBLEM_CHARS_MAX)]) from error

    def reply(self, found: Reply[Any]) -> Reply[Output]:
        """Return a reply with its answer as a value.

        Raises:
            ResultInvalid: the answer stands for none.
        """
        return Reply(
            text=found.text,
            messages=found.messages,
            usage=found.usage,
            output=self.read(found.text),
        )


def form_of(kind: TypeForm[Given]) -> ResultForm[Given]:
    """Return the form of answers of a type.

    Raises:
        InvalidOptions: it is no type, or none that has a JSON Schema.
    """
    if is_data(kind):
        raise InvalidOptions([f"result: expected a type, got {short(kind)}"])
    try:
        schema, reader = schema_and_reader(kind)
        root = _rooted(schema)
        is_wrapped = root.get("type") != "object"
        form: Schema = in_both_drafts(_closed(_wrapped(schema) if is_wrapped else root))
        problem = form_problem(form)
    except Exception as error:  # noqa: BLE001 - a class of the application may do anything
        problem = one_line(reason_of(error), PROBLEM_CHARS_MAX)
        way_out = _OF_UNIONS if _UNION in problem else "give a type that has one"
        raise InvalidOptions([f"result: {problem}; {way_out}"]) from None
    if problem is not None:
        raise InvalidOptions([f"result: {problem}"])
    return ResultForm(form, reader, is_wrapped)


def default_form(session: object) -> ResultForm[Any] | None:
    """Return the form of the answers of a session object that was made with one."""
    form = getattr(session, "form", None)
    return form if isinstance(form, ResultForm) else None


def with_form(
    given: Mapping[str, object], form: ResultForm[Any] | None, options: Options | None
) -> dict[str, object]:
    """Return options that ask for answers of a form, where there is one.

    Raises:
        InvalidOptions: they ask for another one by themselves.
    """
    if form is None:
        return dict(given)
    if "response_format" in given or getattr(options, "response_format", None) is not None:
        raise InvalidOptions(["result: response_format is given too: give one of the two"])
    return {**given, "response_format": form.schema}


def added(first: Reply[Any], second: Reply[Any]) -> Reply[Any]:
    """Return the reply of a prompt and of the wish for another answer."""
    return Reply(
        text=second.text,
        messages=(*first.messages, *second.messages),
        usage=first.usage + second.usage,
        output=second.output,
    )


def _rooted(schema: Schema) -> Schema:
    """Return a schema with what its root refers to at its root, where that is among its own."""
    reference, parts = schema.get("$ref"), schema.get("$defs")
    if not isinstance(reference, str) or not isinstance(parts, Mapping):
        return schema
    target = parts.get(reference.rpartition("/")[2])
    if not isinstance(target, Mapping):
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _wrapped(schema: Schema) -> Schema:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: Schema = {"type": "object", "properties": {FIELD: inner}, "required": [FIELD]}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _closed(part: Any) -> Any:  # Any: JSON at any depth
    """Return a schema in which an object with no optional field takes no other field."""
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {key: _closed(value) for key, value in part.items()}
    names = part.get("properties")
    if part.get("type") != "object" or not isinstance(names, dict):
        return found
    is_whole = names.keys() == set(part.get("required", ()))
    return {"additionalProperties": False, **found} if is_whole else found
