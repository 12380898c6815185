"""Results become arrays, arrays become files, and no file is lost."""

from __future__ import annotations

import hashlib
import string
import wave
from types import SimpleNamespace

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stepscope.model.errors import RunFailedError, UsageError
from stepscope.model.media import Media
from stepscope.record.media import STEM_BYTES, output_of, save_media, stem_of
from stepscope.workload.media import media_of

PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
UNIT = PIXELS.astype(np.float32) / 255


def image(data=PIXELS, **more) -> Media:
    return Media(kind="image", data=data, **more)


@pytest.mark.parametrize(
    "images",
    [
        [Image.fromarray(PIXELS)],
        UNIT[None],
        torch.tensor(UNIT).permute(2, 0, 1)[None],
        torch.tensor(UNIT).permute(2, 0, 1)[None].double(),
    ],
    ids=["pil", "numpy", "tensor", "float64"],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda images: SimpleNamespace(images=images),
        lambda images: (images,),
        lambda images: {"images": images},
        lambda images: SimpleNamespace(values={"images": images, "latents": None}),
    ],
    ids=["output", "tuple", "dict", "modular"],
)
def test_images_of_any_form_become_the_same_pixels(images, wrap):
    """PIL, arrays and tensors, in every container pipelines use."""
    (media,) = media_of(wrap(images))

    assert media.kind == "image"
    assert media.finite
    assert np.array_equal(media.data, PIXELS)


@pytest.mark.parametrize(
    "frames",
    [
        [[Image.fromarray(PIXELS)] * 3],
        np.stack([UNIT] * 3)[None],
        torch.tensor(np.stack([UNIT] * 3)).permute(0, 3, 1, 2)[None].bfloat16(),
    ],
    ids=["pil", "numpy", "bfloat16"],
)
def test_videos_of_any_form_become_frames(frames):
    """Channels last, frames first, with a frame rate."""
    (media,) = media_of(SimpleNamespace(frames=frames), fps=16)

    assert media.kind == "video"
    assert media.rate == 16
    assert media.data.shape == (3, 6, 8, 3)
    assert np.abs(media.data.astype(int) - PIXELS).max() <= 1  # bfloat16 rounds


def test_a_video_of_one_frame_is_an_image():
    """As SGLang treats num_frames 1."""
    assert media_of(SimpleNamespace(frames=UNIT[None, None]))[0].kind == "image"


def test_several_outputs_are_several_media():
    """One an output, in order."""
    batch = np.stack([UNIT, 1 - UNIT])

    assert [m.data[0, 0, 0] for m in media_of(SimpleNamespace(images=batch))] == [0, 255]


def test_latents_are_kept_as_they_are():
    """output_type latent gives no picture, but is hashed and saved all the same."""
    (media,) = media_of(SimpleNamespace(images=torch.randn(1, 16, 8, 8)))

    assert media.kind == "other"
    assert media.data.shape == (16, 8, 8)


def test_sound_is_samples_by_channels():
    """A stereo sound beside a video, as LTX-2 gives it."""
    result = SimpleNamespace(frames=np.stack([UNIT] * 2)[None], audio=torch.zeros(1, 2, 100))
    video, sound = media_of(result, sample_rate=16_000)

    assert video.kind == "video"
    assert sound.kind == "audio"
    assert sound.data.shape == (100, 2)
    assert sound.rate == 16_000


def test_nan_is_noticed_and_black():
    """A picture of NaN is no reason to fail, but is said."""
    broken = UNIT.copy()
    broken[0] = np.nan
    (media,) = media_of(SimpleNamespace(images=broken[None]))

    assert not media.finite
    assert not output_of(media).finite
    assert (media.data[0] == 0).all()


def test_a_png_holds_the_pixels_and_the_stamp(tmp_path):
    """Lossless, so the recorded hash can be checked from the file."""
    output = save_media(image(), tmp_path / "new" / "folder", "cat", stamp="random weights")

    with Image.open(output.path) as saved:
        pixels = np.asarray(saved)
        assert saved.text["Description"] == "random weights"
    assert np.array_equal(pixels, PIXELS)
    assert output.sha256 == hashlib.sha256(pixels.tobytes()).hexdigest()
    assert output.path.endswith("cat.png")


@pytest.mark.parametrize("size", [(64, 64), (50, 34), (33, 47)])
def test_an_mp4_holds_every_frame(tmp_path, size):
    """Odd sizes too, which H.264 rounds to even ones."""
    frames = np.stack([np.full((*size, 3), level, dtype=np.uint8) for level in (0, 128, 255, 64, 192)])
    output = save_media(Media(kind="video", data=frames, rate=8), tmp_path, "clip", stamp="random weights")

    with imageio.get_reader(output.path) as reader:
        read = [np.asarray(frame) for frame in reader]
        assert reader.get_meta_data()["fps"] == 8
    assert len(read) == 5
    assert abs(read[0].shape[0] - size[0]) <= 1
    assert [round(frame.mean() / 32) for frame in read] == [0, 4, 8, 2, 6]


def test_a_wav_and_latents_are_saved(tmp_path):
    """The two other kinds."""
    sound = save_media(
        Media(kind="audio", data=np.zeros((80, 2), dtype=np.float32), rate=8000), tmp_path, "a"
    )
    latents = save_media(Media(kind="other", data=np.ones((4, 2), dtype=np.float32)), tmp_path, "a")

    with wave.open(sound.path) as file:
        assert (file.getnchannels(), file.getnframes(), file.getframerate()) == (2, 80, 8000)
    assert np.load(latents.path).sum() == 8


def test_nothing_is_overwritten(tmp_path):
    """A taken name gets a number, and nothing temporary is left."""
    names = [save_media(image(PIXELS + n), tmp_path, "cat").path for n in range(3)]

    assert [name.rsplit("/")[-1] for name in names] == ["cat.png", "cat-1.png", "cat-2.png"]
    assert len(list(tmp_path.iterdir())) == 3
    assert np.asarray(Image.open(names[0]))[0, 0, 0] == 0


def test_nothing_is_overwritten_without_hard_links(tmp_path, monkeypatch):
    """FAT and some network mounts have no links."""

    def no_links(*_):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    names = [save_media(image(), tmp_path, "cat").path for _ in range(2)]

    assert [name.rsplit("/")[-1] for name in names] == ["cat.png", "cat-1.png"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_where_the_folder_should_be_is_a_usage_error(tmp_path):
    """With the flag that puts it right."""
    (tmp_path / "out").write_text("")

    with pytest.raises(UsageError, match=r"not a folder.*--output-path"):
        save_media(image(), tmp_path / "out", "cat")


def test_a_failing_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    """No space: one line, and no temporary file."""

    def full(self, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("PIL.Image.Image.save", full)
    with pytest.raises(RunFailedError, match="No space left"):
        save_media(image(), tmp_path, "cat")

    assert list(tmp_path.iterdir()) == []


@given(st.text())
def test_any_prompt_makes_a_file_name(prompt):
    """Whatever is typed, the name is short, visible and legal everywhere."""
    stem = stem_of(prompt)

    assert stem
    assert len(stem.encode()) <= STEM_BYTES + 1
    assert not set(stem) & set('<>:"/\\|?*\0' + string.whitespace)
    assert stem.isprintable()
    assert not stem.startswith((".", "-"))
    assert not stem.endswith((".", " "))
    assert stem_of(stem) == stem


@pytest.mark.parametrize(
    ("prompt", "stem"),
    [
        ("A Logo With Bold Large Text", "A_Logo_With_Bold_Large_Text"),
        ("what? a/b\\c: 50%", "what_a_b_c_50%"),
        ("../../etc/passwd", "etc_passwd"),
        ("CON", "_CON"),
        ("", "output"),
        ("???", "output"),
        ("x" * 300, "x" * 100),
    ],
)
def test_file_names_of_known_prompts(prompt, stem):
    """Readable, and no way out of the folder."""
    assert stem_of(prompt) == stem


@given(st.text(max_size=40))
def test_any_prompt_can_be_saved(tmp_path_factory, prompt):
    """The file system agrees."""
    folder = tmp_path_factory.mktemp("any")
    output = save_media(Media(kind="other", data=np.zeros(1)), folder, stem_of(prompt))

    assert output.path.startswith(str(folder))
