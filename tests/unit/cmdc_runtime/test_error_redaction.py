"""No error about an option shows a credential, whichever option is wrong and wherever it lies."""

import traceback
import typing

import msgspec
import pytest

import cmdc_runtime as cmdc
from cmdc_runtime import backends, plugins, reasoning, stores, tools
from cmdc_runtime.cli.choices import _provider_opt
from cmdc_runtime.client.address import checked_address
from cmdc_runtime.client.arguments import checked, checked_model
from cmdc_runtime.client.resuming import start_request
from cmdc_runtime.commands import Prompt, SwitchModel
from cmdc_runtime.extensions.plugin import config_of
from cmdc_runtime.options import FIELDS
from cmdc_runtime.packing import BuiltIn, pack, pack_plugin, pack_strategy
from cmdc_runtime.plain import short
from cmdc_runtime.redaction import HIDDEN
from supervisor.config import load_config

MARK = "hunter2-of-nobody"
ADDRESSES = {
    "user": f"https://me:{MARK}@host:1/v1",
    "user of a bad scheme": f"ftp://me:{MARK}@host/",
    "user alone": f"http://{MARK}@",
    "user with the signs of a host": f"http://me:x/{MARK}@p?@host:70000",
    "query": f"http://host/?key={MARK}",
    "signature": f"http://host/?x=1&sig={MARK}",
    "fragment": f"http://host/#access_token={MARK}",
}
HOLDERS = {
    "options of a provider": {"provider_opts": {"organization": MARK}},
    "headers": {"headers": {"X-Team": MARK}},
    "headers as pairs": {"headers": [("X-Team", MARK)]},
    "user_data": {"user_data": {"pin": [MARK]}},
    "a secret's name": {"api_key": MARK},
    "bytes": {"password": MARK.encode()},
}
WRONG = {
    **ADDRESSES,
    **HOLDERS,
    **{f"a list of {name}": [held] for name, held in HOLDERS.items()},
    **{
        f"a pair of {name}": ("telemetry", {**held, "x": object()})
        for name, held in HOLDERS.items()
    },
    "a pair of any name": ("telemetry", {"team": MARK, "x": object()}),
    "a set": {("key", MARK)},
    "foreign": object(),
    "number": 2**70,
    "no text": "",
}
"""What any field may be given: most are wrong there, and have the marker in a secret's place."""
SECRETS = {
    "provider_opts": {"organization": MARK, "api_base": ADDRESSES["user"]},
    "headers": {"X-Team": MARK},
    "user_data": {"pin": MARK},
    "endpoint": ADDRESSES["user"],
}


def secrets_of(fields):
    """Return a marker for each field that may hold a secret."""
    return {
        name: next(value for known, value in SECRETS.items() if name.endswith(known))
        for name in fields
        if name.endswith(tuple(SECRETS))
    }


def shown_by(call, *args, **given):
    """Return what an error shows, its causes and notes included; nothing where there is none."""
    shown = ""
    try:
        call(*args, **given)
    except Exception as error:  # noqa: BLE001 - whichever it is
        link = error
        while link is not None:  # the lines of code that a whole traceback quotes take most of it
            shown = "".join([*traceback.format_exception_only(link), shown])
            link = link.__cause__ or link.__context__
    return shown


def leaking(call, fields, **right):
    """Return the last line of each error that shows the marker, by the field and what is wrong."""
    secrets = secrets_of(fields)
    shown = {
        (field, name): shown_by(call, **{**right, **secrets, field: value})
        for field in [*fields, "no_such_option"]
        for name, value in WRONG.items()
    }
    return {key: text.splitlines()[-1] for key, text in shown.items() if MARK in text}


def built_ins(module):
    return [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, BuiltIn) and one is not BuiltIn
    ]


def test_no_error_about_an_option_shows_a_credential():
    """Each option is wrong in turn, with secrets in it and in its neighbours."""

    def asked(**given):
        start_request(None, given)

    assert leaking(asked, FIELDS, model="openai:x") == {}


@pytest.mark.parametrize("kind", [cmdc.SubAgent, cmdc.Blueprint])
def test_no_error_about_what_options_are_made_of_shows_a_credential(kind):
    """It is checked with the options that it is among."""
    option = "subagents" if kind is cmdc.SubAgent else "blueprint"
    right = {"name": "n"} | ({"description": "d"} if kind is cmdc.SubAgent else {"model": "a:b"})

    def asked(**given):
        made = kind(**given)
        start_request(None, {"model": "a:b", option: [made] if option == "subagents" else made})

    assert leaking(asked, kind.__struct_fields__, **right) == {}


@pytest.mark.parametrize(
    "kind",
    [*built_ins(plugins), *built_ins(reasoning), *built_ins(tools)],
    ids=lambda kind: kind.__name__,
)
def test_no_error_about_an_option_of_a_built_in_shows_a_credential(kind):
    """Where it is made, packed as a class with options or by its name, and read by the agent."""
    packed = {plugins: pack_plugin, reasoning: pack_strategy, tools: pack}
    packer = next(one for module, one in packed.items() if kind in vars(module).values())

    assert leaking(kind, kind.__struct_fields__) == {}
    for thing in (kind, kind.short_name):
        asked = lambda thing=thing, **given: packer((thing, given), "it")  # noqa: E731
        assert leaking(asked, kind.__struct_fields__) == {}
    configured = lambda **given: config_of(kind.short_name, kind, given)  # noqa: E731
    assert leaking(configured, kind.__struct_fields__) == {}


@pytest.mark.parametrize("kind", [*typing.get_args(stores.AnyStore), backends.Filesystem])
def test_no_error_about_a_place_shows_a_credential(kind):
    """An address was given where a path should be."""
    for value in [f"{ADDRESSES['user']}/", f"{ADDRESSES['query']}\0"]:
        for field in kind.__struct_fields__:
            assert MARK not in shown_by(kind, **{field: value})


def test_no_error_about_a_command_shows_a_credential():
    """Whatever it may have been made with."""
    opts = {"organization": MARK, "x": object()}
    for command in (SwitchModel(model="a:b", provider_opts=[opts]), Prompt(text={"api_key": MARK})):
        assert MARK not in shown_by(checked, command) != ""
    for model in (*ADDRESSES.values(), {"api_key": MARK}, [HOLDERS["headers"]]):
        assert MARK not in shown_by(checked_model, model, opts) != ""


@pytest.mark.parametrize("address", [*ADDRESSES.values(), f"tcp://me:{MARK}@host:1"])
def test_no_error_about_an_address_shows_a_credential(address):
    """Of the daemon, or of what was meant to be another's."""
    assert MARK not in shown_by(checked_address, address) != ""


def test_no_error_about_the_daemons_options_shows_a_credential(tmp_path):
    """Nor where the journal's URL is given in another's place."""
    url = f"postgresql://me:{MARK}@host/db"
    for field in ("spares", "log_level", "retain_days", "no_such_option"):
        environ = {f"CMDC_{field.upper()}": url}
        shown = shown_by(load_config, {}, environ, uid=0, home=tmp_path)
        assert MARK not in shown != ""


def test_no_error_of_the_command_line_shows_a_provider_option():
    """What has no = may be a key alone."""
    assert MARK not in shown_by(_provider_opt, MARK) != ""


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
def test_a_value_is_shown_without_its_credentials(address):
    """Whoever shows it, wherever it lies, also when the text is cut in the middle of one."""
    for value in (address, [address], {"a": address}, address.encode(), "x" * 60 + address):
        assert MARK[:4] not in short(value)
    assert HIDDEN[:3] in short(address)


class Loaded(msgspec.Struct):
    """Stands for an object with secrets in it."""

    headers: dict


def test_an_object_is_shown_by_its_class():
    """Its fields are nobody's here."""
    assert short(Loaded({"a": MARK})) == "<a Loaded>"
