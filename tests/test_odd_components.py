"""Components that do not let themselves be looked at: the call is observed without what they do not tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from torch import nn

import pipelines
import stepscope
from stepscope.workload.dtypes import weights_dtype


class NotInitialised(nn.Module):
    def __init__(self) -> None:
        pass


class RaisesForAttributes(nn.Module):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class HidesItsDict(nn.Module):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no attributes")


class HidesItsParameters(nn.Module):
    def named_parameters(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no parameters")

    parameters = named_parameters


class HidesItsClass:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class HoldsWhatIsNoModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._modules["inner"] = object()  # type: ignore[assignment]


class LostItsModules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_modules"] = None


class HoldsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._modules["self"] = self


class KeepsOddly(nn.Linear):
    _keep_in_fp32_modules = 5

    def __init__(self) -> None:
        super().__init__(2, 2)


class NotCompared(nn.Module):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    def __hash__(self) -> int:
        raise RuntimeError("hashed")


def traced() -> Any:
    return torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))


def scripted() -> Any:
    return torch.jit.script(nn.Linear(2, 2))


def nested() -> Any:
    module: nn.Module = nn.Identity()
    for _ in range(3000):
        module = nn.Sequential(module)
    return module


class Pipeline(DiffusionPipeline):
    """Two steps, and a component that it does not call."""

    def __init__(self, transformer: Any, scheduler: Any, odd: Any) -> None:
        self.__dict__.update(transformer=transformer, scheduler=scheduler, odd=odd)

    def __call__(self, prompt: str = "") -> Any:
        latents = torch.ones(1, 4)
        for timestep in range(2):
            latents = self.scheduler.step(self.transformer(latents, timestep), timestep, latents)
        return latents


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "make",
    [
        NotInitialised,
        RaisesForAttributes,
        HidesItsDict,
        HidesItsParameters,
        HidesItsClass,
        HoldsWhatIsNoModule,
        LostItsModules,
        HoldsItself,
        KeepsOddly,
        NotCompared,
        traced,
        scripted,
        nested,
        lambda: None,
        lambda: [nn.Linear(2, 2), None],
    ],
)
def test_an_odd_component_costs_no_call(make: Callable[[], Any]) -> None:
    """It is seen with its steps, and the other components with their dtypes."""
    parts = pipelines.ToyPipeline()
    pipeline = Pipeline(parts.transformer, parts.scheduler, make())
    with torch.no_grad():
        expected = pipeline()
        with stepscope.profile() as session:
            result = pipeline()
    assert torch.equal(result, expected)
    assert session.problems == ()
    (call,) = session.calls
    assert len(call.run.steps) == 2
    assert call.run.workload.component_dtypes["transformer"] == "float32"


def test_a_name_of_what_is_kept_in_float32_is_one_name() -> None:
    """Some classes give a text where a list of texts is meant."""

    class Model(nn.Module):
        _keep_in_fp32_modules = "norm"

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.Linear(2, 2)
            self.out = nn.Linear(2, 2, dtype=torch.bfloat16)

    assert weights_dtype(Model()) == "bfloat16"
