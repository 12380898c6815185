"""Real weights: a hub id or a local folder, with every failure told in one line."""

from __future__ import annotations

import json
import pickle
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.model.errors import RunFailedError, StepscopeError, UnreadableInputError, UsageError
from stepscope.workload.presets import DEFAULT_MODEL, find_preset
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
    with told_in_one_line(model):
        if folder is not None and not (folder / MODEL_INDEX).is_file():
            return _modular(model, request, dtypes)
        from diffusers import DiffusionPipeline

        return DiffusionPipeline.from_pretrained(
            model,
            **_dtype_argument(dtypes),
            revision=request.revision,
            variant=request.variant,
            trust_remote_code=request.trust_remote_code,
        )


def _folder(model: str) -> Path | None:
    """The local folder ``model`` names, checked to be a pipeline's; None for a hub id."""
    path = Path(model).expanduser()
    if _exists(path) and path.is_dir():
        indices = [path / name for name in (MODEL_INDEX, MODULAR_INDEX) if (path / name).is_file()]
        if not indices:
            raise UsageError(
                f"{model} is a folder without {MODEL_INDEX} or {MODULAR_INDEX}.",
                remedy="Give the top folder of a diffusers pipeline (what save_pretrained writes).",
            )
        _check_index(indices[0])
        return path
    if _exists(path):
        raise UsageError(
            f"{model} is a file.", remedy="Give a hub id or the top folder of a diffusers pipeline."
        )
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UsageError(f"There is no folder {model}.", remedy="Check --model-path.")
    return None


def _exists(path: Path) -> bool:
    """Whether it is there; what no file system can name (NUL, too long) is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _check_index(index: Path) -> None:
    """Whether the file names a pipeline class at all; whether diffusers has it shows on loading."""
    try:
        named = "_class_name" in json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableInputError(
            f"{index} cannot be read: {error}.", remedy="Copy or download the folder again."
        ) from error
    if not named:
        raise UnreadableInputError(
            f"{index} names no pipeline class (_class_name).", remedy="Copy or download the folder again."
        )


def _modular(model: str, request: LoadRequest, dtypes: Mapping[str, torch.dtype]) -> Any:
    from diffusers import ModularPipeline

    pipeline = ModularPipeline.from_pretrained(
        model, revision=request.revision, trust_remote_code=request.trust_remote_code
    )
    pipeline.load_components(**_dtype_argument(dtypes))
    return pipeline


def _dtype_argument(dtypes: Mapping[str, torch.dtype]) -> dict[str, Any]:
    """Diffusers 0.42 and later warn at the old name, earlier ones do not know the new one."""
    import diffusers

    major, minor = (int(part) for part in diffusers.__version__.split(".")[:2])
    return {"dtype" if (major, minor) >= (0, 42) else "torch_dtype": dict(dtypes)}


@contextmanager
def told_in_one_line(model: str) -> Iterator[None]:
    """Translate what the libraries raise while loading; ours passes through, and a device out of memory."""
    import torch

    try:
        yield
    except StepscopeError:
        raise
    except MemoryError as error:
        raise RunFailedError(f"{model} does not fit into memory.", remedy="Try --dtype bf16.") from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
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
    if raised(AttributeError) and "module diffusers" in str(chain[-1]):
        import diffusers

        return UsageError(
            f"{model} needs a class that diffusers {diffusers.__version__} lacks: {_one_line(chain[-1])}.",
            remedy="Install a newer diffusers, or --trust-remote-code if the model brings its own code.",
        )
    if raised(pickle.UnpicklingError) and "unsupported" in str(chain[-1]).lower():
        return RunFailedError(
            f"{model} holds a pickle that is more than weights, and was not loaded: {_one_line(chain[-1])}.",
            remedy="Pickles can run programs: get the weights as .safetensors.",
        )
    if sys.flags.optimize > 1:
        return RunFailedError(
            f"Loading {model} failed: {_one_line(chain[-1])}.",
            remedy="transformers reads docstrings, which python -OO leaves out: use -O.",
        )
    return RunFailedError(f"Loading {model} failed: {_one_line(chain[-1])}.", remedy=_built_in(model))


def _no_network(chain: list[BaseException]) -> bool:
    """Whether the hub could not be reached, told by type where there is one, else by wording."""
    from huggingface_hub import errors

    kinds = (
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
        ConnectionError,
        TimeoutError,
        socket.gaierror,
    )
    clients = _http_clients()
    wordings = ("offline mode", "couldn't connect", "cannot find the requested files")
    return any(
        isinstance(link, kinds)
        or type(link).__module__.split(".")[0].startswith(clients)
        or any(wording in str(link).lower() for wording in wordings)
        for link in chain
    )


def _http_clients() -> tuple[str, ...]:
    """Beginnings of the names of the packages that fetch for the hub's library.

    It has changed its client twice (requests, httpx, httpx2), so the one that its own error class descends
    from is asked for; what clients stand upon is known by name, whatever number is behind it.
    """
    from huggingface_hub.errors import HfHubHTTPError

    lineage = {base.__module__.split(".")[0] for base in HfHubHTTPError.__mro__}
    return tuple({*(lineage - {"builtins", "huggingface_hub"}), "httpx", "httpcore", "requests", "urllib3"})


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
    if _exists(Path(model).expanduser()):
        return "Check that the folder is whole."
    return f"{DEFAULT_MODEL} and other presets need no download."


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}".rstrip(".")
