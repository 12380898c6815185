"""Pictures, videos and sound as files: PNG, MP4, WAV; latents as NPY."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
import wave
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from stepscope.model.errors import RunFailedError, StepscopeError, UsageError
from stepscope.model.media import Media
from stepscope.model.run import Output

STEM_CHARACTERS = 100
"""SGLang cuts a prompt to so many characters."""

STEM_BYTES = 200
"""Most file systems take 255 bytes a name; the rest is for a number, a suffix and a temporary mark."""

RESERVED = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))]
)
"""Names that Windows keeps for devices."""


def save_media(media: Media, folder: Path, stem: str, *, stamp: str | None = None) -> Output:
    """Write ``media`` as ``<stem>.<suffix>`` into ``folder``; return where it is and what its pixels hash to.

    No file is ever overwritten: where the name is taken, ``<stem>-1``, ``<stem>-2``, ... The file appears
    whole or not at all. ``stamp`` is kept inside the file as its description.

    Raises:
        UsageError: ``folder`` cannot be a folder.
        RunFailedError: no permission, a full disk, no encoder.

    """
    suffix, write = _WRITERS[media.kind]
    _make_folder(folder)
    temporary = folder / f".{stem}.{os.getpid()}{suffix}"
    try:
        write(media, temporary, stamp)
        path = _claim(temporary, folder, stem, suffix)
    except StepscopeError:
        raise
    except ImportError as error:
        raise RunFailedError(
            f"Saving a {media.kind} needs {error.name}, which is not installed.",
            remedy='Install it with: pip install "stepscope[run]".',
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise RunFailedError(
            f"The {media.kind} could not be saved under {folder}: {error}.",
            remedy="Check the folder's permissions and free space, or choose another --output-path.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return output_of(media, path=path)


def output_of(media: Media, *, path: Path | None = None) -> Output:
    """What is recorded of a result: the SHA-256 of its raw data, and whether that was finite."""
    digest = hashlib.sha256(np.ascontiguousarray(media.data).data).hexdigest()
    return Output(
        path=None if path is None else str(path), sha256=digest, kind=media.kind, finite=media.finite
    )


def stem_of(prompt: str) -> str:
    """A file name, without suffix, that says which prompt it came from and that every file system takes."""
    text = unicodedata.normalize("NFC", prompt)
    text = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in text)
    text = re.sub(r'[<>:"/\\|?*]', " ", text)
    stem = "_".join(text.split())[:STEM_CHARACTERS]
    stem = stem.encode()[:STEM_BYTES].decode(errors="ignore").strip("._- ")
    if stem.split(".")[0].lower() in RESERVED:
        stem = f"_{stem}"
    return stem or "output"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{folder} is not a folder.", remedy="Choose another --output-path.") from None
    except OSError as error:
        raise UsageError(
            f"The folder {folder} cannot be made: {error.strerror}.", remedy="Choose another --output-path."
        ) from error


def _claim(temporary: Path, folder: Path, stem: str, suffix: str) -> Path:
    """Give the finished file the first free name, without ever replacing another's."""
    number = 0
    while True:
        path = folder / (f"{stem}-{number}{suffix}" if number else f"{stem}{suffix}")
        number += 1
        try:
            os.link(temporary, path)  # fails if the name is taken: the only step that decides
        except FileExistsError:
            continue
        except OSError:  # no hard links here (FAT, some network mounts)
            if not _reserve(path):
                continue
            temporary.replace(path)
        return path


def _reserve(path: Path) -> bool:
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True


def _write_png(media: Media, path: Path, stamp: str | None) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    description = PngInfo()
    description.add_text("Software", "stepscope")
    if stamp:
        description.add_itxt("Description", stamp)
    Image.fromarray(media.data).save(path, format="PNG", pnginfo=description)


def _write_mp4(media: Media, path: Path, stamp: str | None) -> None:
    import imageio.v2 as imageio

    writer = imageio.get_writer(
        path,
        format="FFMPEG",
        fps=media.rate,
        codec="libx264",
        quality=8,
        macro_block_size=2,  # H.264 with 4:2:0 needs even sides, no more
        ffmpeg_log_level="error",
        output_params=["-metadata", f"comment={stamp}"] if stamp else [],
    )
    with writer:
        for frame in media.data:
            writer.append_data(frame)


def _write_wav(media: Media, path: Path, stamp: str | None) -> None:  # noqa: ARG001 (WAV has no place for it)
    samples = (np.clip(media.data, -1.0, 1.0) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(round(media.rate or 44_100))
        file.writeframes(samples.tobytes())


def _write_npy(media: Media, path: Path, stamp: str | None) -> None:  # noqa: ARG001
    np.save(path, media.data, allow_pickle=False)


_WRITERS: Mapping[str, tuple[str, Callable[[Media, Path, str | None], None]]] = MappingProxyType(
    {
        "image": (".png", _write_png),
        "video": (".mp4", _write_mp4),
        "audio": (".wav", _write_wav),
        "other": (".npy", _write_npy),
    }
)
"""How each kind of media is written, and under which suffix."""
