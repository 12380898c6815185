"""stepscope: know where the time goes in diffusion inference."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
