"""Real weights: a hub id or a local folder, with every failure told in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.model.errors import RunFailedError, StepscopeError, UsageError
from stepscope.workload.presets import PRESETS, find_preset
from stepscope.workload.request import LoadRequest

if TYPE_CHECKING:
    import torch

MODEL_INDEX = "model_index.json"
MODULAR_INDEX = "modular_model_index.json"


def load_pipeline(request: LoadRequest, model: str, dtypes: Mapping[str, torch.dtype]) -> Any:
    """The pipeline with its published weights, on the CPU.

    ``dtypes`` names a dtype for some components and ``default`` for the rest.

    Raises:
        UsageError: no such model or folder, no access to it, or no network.
        RunFailedError: the weights could not be read or did not fit into memory.

    """
    folder = _folder(model)
    with _told_in_one_line(model):
        if folder is not None and not (folder / MODEL_INDEX).is_file():
            return _modular(model, request, dtypes)
        from diffusers import DiffusionPipeline

        return DiffusionPipeline.from_pretrained(
            model,
            torch_dtype=dict(dtypes),
            revision=request.revision,
            variant=request.variant,
            trust_remote_code=request.trust_remote_code,
        )


def _folder(model: str) -> Path | None:
    """The local folder ``model`` names, checked to be a pipeline's; None for a hub id."""
    path = Path(model).expanduser()
    if path.is_dir():
        if not any((path / index).is_file() for index in (MODEL_INDEX, MODULAR_INDEX)):
            raise UsageError(
                f"{model} is a folder without {MODEL_INDEX} or {MODULAR_INDEX}.",
                remedy="Give the top folder of a diffusers pipeline (what save_pretrained writes).",
            )
        return path
    if path.is_file():
        raise UsageError(
            f"{model} is a file.", remedy="Give a hub id or the top folder of a diffusers pipeline."
        )
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"There is no folder {model}.", remedy="Check --model-path.")
    return None


def _modular(model: str, request: LoadRequest, dtypes: Mapping[str, torch.dtype]) -> Any:
    from diffusers import ModularPipeline

    pipeline = ModularPipeline.from_pretrained(
        model, revision=request.revision, trust_remote_code=request.trust_remote_code
    )
    pipeline.load_components(torch_dtype=dict(dtypes))
    return pipeline


@contextmanager
def _told_in_one_line(model: str) -> Iterator[None]:
    """Translate what the libraries raise while loading; a StepscopeError passes through."""
    try:
        yield
    except StepscopeError:
        raise
    except MemoryError as error:
        raise RunFailedError(f"{model} does not fit into memory.", remedy="Try --dtype bf16.") from error
    except (OSError, ValueError, ImportError, AttributeError, RuntimeError, TypeError, KeyError) as error:
        raise _translated(model, error) from error


def _translated(model: str, error: BaseException) -> StepscopeError:
    """The cause that a person can act on, wherever in the chain of exceptions it is."""
    from huggingface_hub import errors

    chain = list(_chain(error))

    def raised(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    if raised(errors.GatedRepoError):
        return UsageError(
            f"{model} is gated: its licence has to be accepted first.",
            remedy=f"Accept it on the model's page, then `hf auth login`{_or_dummy(model)}.",
        )
    if raised(errors.RepositoryNotFoundError, errors.HFValidationError):
        return UsageError(
            f"There is no model {model!r} on the hub, or it is private.",
            remedy=f"Check the spelling, or `hf auth login`. {_built_in(model)}",
        )
    if raised(errors.RevisionNotFoundError):
        return UsageError(f"{model} has no such revision.", remedy="Check --revision.")
    if raised(errors.EntryNotFoundError) and not raised(errors.LocalEntryNotFoundError):
        return UsageError(
            f"{model} holds no {MODEL_INDEX}: it is not a diffusers pipeline.",
            remedy="Look for a repository whose name ends in -Diffusers or -diffusers.",
        )
    if _no_network(chain):
        return UsageError(
            f"{model} is not in the local cache and the hub cannot be reached.",
            remedy=f"Check the network, give a local folder{_or_dummy(model)}.",
        )
    return RunFailedError(f"Loading {model} failed: {_one_line(chain[-1])}", remedy=_built_in(model))


def _no_network(chain: list[BaseException]) -> bool:
    """Whether the hub could not be reached, told by type where there is one, else by wording."""
    from huggingface_hub import errors

    kinds = (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError, TimeoutError)
    wordings = (
        "offline",
        "couldn't connect",
        "connection error",
        "cannot find the requested files",
        "resolve",
    )
    return any(
        isinstance(link, kinds) or any(wording in str(link).lower() for wording in wordings) for link in chain
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and everything it came from, outermost first."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _or_dummy(model: str) -> str:
    """Presets have a way out that needs no weights."""
    return ", or profile it with random weights: --load-format dummy" if find_preset(model) else ""


def _built_in(model: str) -> str:
    if find_preset(model):
        return "It can be profiled with random weights: --load-format dummy."
    return "Without a download: --load-format dummy with one of " + ", ".join(PRESETS) + "."


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
