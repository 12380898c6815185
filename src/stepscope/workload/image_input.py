"""The variant of a pipeline that takes images, over the same components."""

from __future__ import annotations

from typing import Any

from stepscope.model.errors import UsageError
from stepscope.workload.arguments import IMAGE_PARAMETERS, parameters


def taking_images(pipeline: Any) -> Any:
    """The pipeline itself if its call takes an image, else its image-to-image or image-to-video sibling.

    Which class that is diffusers knows. Raises UsageError where there is none for this model.
    """
    if set(IMAGE_PARAMETERS) & set(parameters(pipeline)):
        return pipeline
    sibling = _sibling(type(pipeline))
    if sibling is None:
        raise UsageError(
            f"{type(pipeline).__name__} takes no --image-path, and diffusers has no variant of it that does.",
            remedy="Leave it out, or choose an image-to-image or image-to-video model.",
        )
    return sibling(**pipeline.components)


def _sibling(pipeline_class: type) -> type | None:
    """The class that stands under the same model in diffusers' tables of tasks."""
    from diffusers.pipelines import auto_pipeline

    pairs = (("TEXT2IMAGE", "IMAGE2IMAGE"), ("TEXT2VIDEO", "IMAGE2VIDEO"))
    for text, image in pairs:
        from_text = getattr(auto_pipeline, f"AUTO_{text}_PIPELINES_MAPPING", {})
        from_image = getattr(auto_pipeline, f"AUTO_{image}_PIPELINES_MAPPING", {})
        for model, candidate in from_text.items():
            if candidate is pipeline_class and model in from_image:
                found: type = from_image[model]
                return found
    return None
