"""Does the new output show the same picture? Equality, PSNR and SSIM: 'faster because wrong' is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Pixels = NDArray[np.uint8]
"""(frames, height, width, channels); a picture is one frame."""

CLOSE_PSNR_DB = 30.0
CLOSE_SSIM = 0.95
"""Both must be reached to be called close: the eye finds little below, and reordered sums stay well above."""

_SIGMA = 1.5  # Wang et al. 2004: an 11 x 11 Gaussian window of this width
_RADIUS = 5
_C1 = (0.01 * 255) ** 2
_C2 = (0.03 * 255) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How alike two outputs of one size are. Infinite PSNR does not occur: equal ones are ``identical``."""

    identical: bool
    psnr_db: float | None
    ssim: float | None

    @property
    def close(self) -> bool:
        """Whether the difference is below what is easily seen."""
        return self.identical or (
            self.psnr_db is not None
            and self.ssim is not None
            and self.psnr_db >= CLOSE_PSNR_DB
            and self.ssim >= CLOSE_SSIM
        )


def likeness(base: Pixels, new: Pixels) -> Likeness | None:
    """Equality, PSNR and mean SSIM of two outputs; None where their shapes differ."""
    if base.shape != new.shape:
        return None
    if np.array_equal(base, new):
        return Likeness(identical=True, psnr_db=None, ssim=1.0)
    return Likeness(identical=False, psnr_db=psnr_db(base, new), ssim=ssim(base, new))


def psnr_db(base: Pixels, new: Pixels) -> float:
    """Peak signal-to-noise ratio in dB for 8-bit pixels: 10 log10(255^2 / mean squared error)."""
    error = float(np.mean((base.astype(np.float64) - new.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255.0**2 / error)


def ssim(base: Pixels, new: Pixels) -> float:
    """Mean structural similarity over frames and channels (Wang, Bovik, Sheikh, Simoncelli 2004, eq. 13)."""
    values = [
        _ssim_plane(base[frame, :, :, channel], new[frame, :, :, channel])
        for frame in range(base.shape[0])
        for channel in range(base.shape[3])
    ]
    return float(np.mean(values))


def _ssim_plane(base: Pixels, new: Pixels) -> float:
    x, y = base.astype(np.float64), new.astype(np.float64)
    mean_x, mean_y = _blur(x), _blur(y)
    variance_x = _blur(x * x) - mean_x**2
    variance_y = _blur(y * y) - mean_y**2
    covariance = _blur(x * y) - mean_x * mean_y
    top = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    bottom = (mean_x**2 + mean_y**2 + _C1) * (variance_x + variance_y + _C2)
    return float(np.mean(top / bottom))


def _blur(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(ndimage.gaussian_filter(plane, sigma=_SIGMA, radius=_RADIUS), dtype=np.float64)
