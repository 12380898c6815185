"""What the model hub refuses, and a hub that cannot be reached: a line with a remedy."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from stepscope.model.errors import UsageError
from stepscope.workload import hub
from stepscope.workload.request import (
    LoadRequest,
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Nothing here may reach for the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def hub_error(kind):
    """As the hub's library raises it, whichever HTTP client it has: it reads no more of the response."""
    request = SimpleNamespace(method="GET", url="https://hub.invalid")
    return kind("no", response=SimpleNamespace(status_code=401, headers={}, request=request))


def hub_client():
    """The module of the HTTP client that the hub's library here stands upon."""
    from huggingface_hub.errors import HfHubHTTPError

    roots = {base.__module__.split(".")[0] for base in HfHubHTTPError.__mro__}
    (name,) = roots - {"builtins", "huggingface_hub"}
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GatedRepoError", "gated.*hf auth login.*--load-format dummy"),
        ("RepositoryNotFoundError", "no model.*hf auth login"),
        ("RevisionNotFoundError", "--revision"),
        ("RemoteEntryNotFoundError", "not a diffusers pipeline"),
    ],
)
def test_what_the_hub_refuses_is_a_usage_error(monkeypatch, name, words):
    """However deep diffusers has wrapped the hub's answer."""
    import diffusers
    from huggingface_hub import errors

    def refuse(*_, **__):
        try:
            raise hub_error(getattr(errors, name))
        except errors.HfHubHTTPError as error:
            raise OSError("something vague") from error

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", refuse)
    with pytest.raises(UsageError, match=words):
        hub.load_pipeline(LoadRequest(), "black-forest-labs/FLUX.1-dev", {})


def clients_errors():
    """The installed client's own error, and those of clients that are not: known by the name alone."""
    client = hub_client()
    yield getattr(client, "ConnectError", None) or client.exceptions.ConnectionError
    for module in ("httpx", "httpx2", "httpcore2._exceptions", "requests.exceptions", "urllib3.exceptions"):
        yield type("ConnectError", (Exception,), {"__module__": module})


@pytest.mark.parametrize("kind", list(clients_errors()), ids=lambda kind: kind.__module__)
def test_a_hub_that_cannot_be_reached_is_told_whatever_the_http_client(monkeypatch, kind):
    """The hub's library has changed its client twice."""
    import diffusers

    def refuse(*_, **__):
        raise OSError("something vague") from kind("no route")

    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", refuse)
    with pytest.raises(UsageError, match="hub cannot be reached"):
        hub.load_pipeline(LoadRequest(), "black-forest-labs/FLUX.1-dev", {})
