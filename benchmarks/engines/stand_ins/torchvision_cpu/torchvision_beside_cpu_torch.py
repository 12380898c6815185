"""Lets a torchvision built for CUDA be imported beside a torch built for the CPU.

Its compiled part cannot be loaded there, and its Python part then stops at operators that nobody has declared. They are
declared here, when torchvision is about to be imported. Started by a .pth file of the engines' environment.
"""

import sys
from importlib.abc import MetaPathFinder

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class DeclareFirst(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            declare()
        return


def declare():
    import torch

    if torch.version.cuda is None:
        self = sys.modules[__name__]
        self.library = torch.library.Library("torchvision", "DEF")
        for operator in OPERATORS:
            self.library.define(operator)


sys.meta_path.insert(0, DeclareFirst())
