"""Outputs held against each other: PSNR and SSIM by hand-checked values, and what is said of a pair."""

import hashlib

import numpy as np
import pytest

from stepscope.analyse.comparison.quality import likeness, psnr_db, ssim
from stepscope.model.errors import UnreadableInputError
from stepscope.record.picture_reader import read_pixels
from stepscope.session.compare_quality import SavedOutput, quality_rows, saved_outputs

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def picture():
    """A smooth coloured picture of 64 x 64."""
    x, y = np.meshgrid(np.arange(64), np.arange(64))
    return np.stack([x * 3, y * 3, 255 - x - y], axis=-1).clip(0, 255).astype(np.uint8)[np.newaxis]


def test_psnr_of_a_known_error(picture) -> None:
    """A uniform error of 5 is 20 log10(255 / 5) dB."""
    base = np.full_like(picture, 100)
    assert psnr_db(base, base + 5) == pytest.approx(20 * np.log10(255 / 5))


def test_ssim_of_equal_inverted_and_shifted(picture) -> None:
    """SSIM is 1 for equals, below zero for an inverted texture, and high for a change of brightness."""
    noise = np.random.default_rng(0).integers(0, 255, picture.shape).astype(np.uint8)
    assert ssim(picture, picture) == pytest.approx(1.0)
    assert ssim(noise, 255 - noise) < 0
    assert 0.95 < ssim(picture, np.clip(picture.astype(int) + 4, 0, 255).astype(np.uint8)) < 1


def test_ssim_of_two_constants_is_its_luminance_term() -> None:
    """Without texture SSIM is (2ab + c1) / (a^2 + b^2 + c1), eq. 13 with zero variances."""
    a, b, c1 = 100.0, 150.0, (0.01 * 255) ** 2
    expected = (2 * a * b + c1) / (a * a + b * b + c1)
    ones = np.ones((1, 20, 20, 1), dtype=np.uint8)
    assert ssim(ones * 100, ones * 150) == pytest.approx(expected)


def test_likeness_of_different_sizes_is_none(picture) -> None:
    """Pictures of two sizes cannot be compared pixel by pixel."""
    assert likeness(picture, picture[:, :32]) is None


def save(path, pixels, *, finite=True):
    Image.fromarray(pixels[0]).save(path)
    return SavedOutput(path=path, sha256=hashlib.sha256(pixels.tobytes()).hexdigest(), finite=finite)


FACTS = ({"seed": "0"}, {"seed": "0"})


def test_verdicts_on_a_pair(tmp_path, picture) -> None:
    """Identical by hash, close, different, broken: each is told apart, from files on disk."""
    base = save(tmp_path / "base.png", picture)
    near = save(tmp_path / "near.png", picture ^ 1)
    far = save(tmp_path / "far.png", 255 - picture)
    nan = save(tmp_path / "nan.png", picture, finite=False)
    rows = {
        name: quality_rows([[base]], [[other]], FACTS)[0]
        for name, other in (("same", base), ("near", near), ("far", far), ("nan", nan))
    }
    assert {name: row.verdict for name, row in rows.items()} == {
        "same": "identical", "near": "close", "far": "different", "nan": "broken",
    }  # fmt: skip
    assert rows["near"].psnr_db == pytest.approx(20 * np.log10(255))
    assert rows["far"].ssim < 0.95


def test_other_seeds_or_missing_files_are_said(tmp_path, picture) -> None:
    """Pictures of two seeds are not compared; a hash without a file says only that they differ."""
    base = save(tmp_path / "base.png", picture)
    other = SavedOutput(path=None, sha256="f" * 64, finite=True)
    assert quality_rows([[base]], [[other]], ({"seed": "0"}, {"seed": "1"}))[0].verdict == "not compared"
    row = quality_rows([[base]], [[other]], FACTS)[0]
    assert (row.verdict, row.psnr_db) == ("different", None)
    assert "not here" in row.note


def test_a_base_that_differs_from_itself_is_said(tmp_path, picture) -> None:
    """Where the base's own repeats differ, a new difference proves nothing."""
    base, again = save(tmp_path / "a.png", picture), save(tmp_path / "b.png", picture ^ 1)
    row = quality_rows([[base], [again]], [[again]], FACTS)[0]
    assert "base's own runs differ" in row.note


def test_outputs_are_found_beside_their_dump(tmp_path, picture) -> None:
    """A run folder that was moved still finds its pictures."""
    (tmp_path / "outputs").mkdir()
    save(tmp_path / "outputs" / "a.png", picture)
    (found,) = saved_outputs([{"path": "/gone/outputs/a.png", "sha256": "x"}], near=tmp_path)
    assert found.path == tmp_path / "outputs" / "a.png"


def test_what_is_no_picture_is_refused(tmp_path) -> None:
    """A missing or broken file is a named error, not a traceback."""
    (tmp_path / "x.png").write_bytes(b"no picture")
    for name in ("x.png", "none.png"):
        with pytest.raises(UnreadableInputError):
            read_pixels(tmp_path / name)
