"""An agent that its application's config says how to reach a model for."""

import pytest

import cmdc_runtime as cmdc
from cmdc_runtime.testing import Text

pytestmark = pytest.mark.process


def test_a_file_says_model_tools_and_server(client, scripted, tmp_path):
    """Nothing else is given; what is given outranks it."""
    model = scripted(Text("Hello."), Text("Again."))
    name, opts = model.model_source()
    file = tmp_path / "agents.toml"
    file.write_text(
        f'default_model = "{name}"\ndefault_tools = ["read_file"]\n'
        f'[[providers]]\nmodels = ["{name}"]\nbase_url = "{opts["api_base"]}"\n'
        f'[providers.opts]\napi_key = "{opts["api_key"]}"\ntemperature = 0.5\n'
    )
    config = cmdc.Config.load(file)

    with client.create_agent(config=config) as session:
        first = session.run("Hi.").text
    with client.create_agent(config=config, tools=["grep"], provider_opts={"temperature": 0}) as s:
        second = s.run("Hi.").text

    assert (first, second) == ("Hello.", "Again.")
    said = [(one["temperature"], one["tools"][0]["function"]["name"]) for one in model.requests]
    assert said == [(0.5, "read_file"), (0, "grep")]
