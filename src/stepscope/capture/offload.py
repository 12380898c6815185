"""Transfers: weights moved by the offload hooks of accelerate and diffusers, told by their hook classes.

A hook runs inside whatever stage happens to need the weights; its time is a row of its own. What the hook
does is noted when it runs, what it costs (bytes, whose weights) is worked out after the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.capture.active import ACTIVE
from stepscope.capture.clock import DeviceClock, Mark
from stepscope.capture.components import Known
from stepscope.capture.wrapping import Wrappers
from stepscope.model.recording import CallKind, Move
from stepscope.model.vocabulary import CopyKind

TRANSFER = Known(CallKind.TRANSFER, "offload", "")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a hook is about to move."""

    modules: tuple[Any, ...]
    kind: CopyKind
    pinned: bool | None = None
    stream: Any = None  # None: the stream that computes
    recurse: bool = True
    loose: tuple[Any, ...] = ()  # parameters and buffers beside the modules
    leader: Any = None  # the module whose forward asked for it
    copies: bool = True  # False: memory is only let go of


@dataclass(frozen=True, slots=True)
class Moved:
    """A plan that has been carried out, with marks on the hook's own stream."""

    plan: Plan
    began: Mark | None = None
    ended: Mark | None = None
    stream_ns: int | None = None  # where it has been settled

    def settled(self, clock: DeviceClock) -> Moved:
        """The same without events. The computing stream has passed it, so its own stream has: it waited."""
        if self.began is None or self.ended is None or not self.ended[1].query():
            return self
        return Moved(self.plan, stream_ns=_between(self.began, self.ended, clock))


def _group_onload(group: Any, _args: tuple[Any, ...]) -> Plan | None:
    return _group_plan(group, CopyKind.HOST_TO_DEVICE, stream=group.stream)


def _group_offload(group: Any, _args: tuple[Any, ...]) -> Plan | None:
    # With a stream the pinned originals are pointed at again; nothing is copied back.
    return _group_plan(group, CopyKind.DEVICE_TO_HOST, copies=group.stream is None)


def _group_plan(group: Any, kind: CopyKind, *, stream: Any = None, copies: bool = True) -> Plan | None:
    """What a group of diffusers moves. Some hold nothing: what is left over where leaves hold all weights."""
    loose = (*group.parameters, *group.buffers)
    if not group.modules and not loose:
        return None
    return Plan(
        tuple(group.modules),
        kind,
        pinned=group.stream is not None,
        stream=stream,
        loose=loose,
        leader=group.onload_leader,
        copies=copies,
    )


def _model_onload(hook: Any, args: tuple[Any, ...]) -> Plan | None:
    module = args[0]
    device = next((parameter.device for parameter in module.parameters()), None)
    return None if device == hook.execution_device else Plan((module,), CopyKind.HOST_TO_DEVICE, pinned=False)


def _model_offload(hook: Any, _args: tuple[Any, ...]) -> Plan | None:
    device = next((parameter.device for parameter in hook.model.parameters()), None)
    if device is None or device.type == "cpu":
        return None
    return Plan((hook.model,), CopyKind.DEVICE_TO_HOST, pinned=False)


def _sequential_onload(hook: Any, args: tuple[Any, ...]) -> Plan | None:
    if not hook.offload:
        return None
    return Plan((args[0],), CopyKind.HOST_TO_DEVICE, pinned=False, recurse=bool(hook.place_submodules))


Describe = Callable[[Any, tuple[Any, ...]], "Plan | None"]

HOOKS: tuple[tuple[str, str, str, Describe], ...] = (
    ("diffusers.hooks.group_offloading", "ModuleGroup", "onload_", _group_onload),
    ("diffusers.hooks.group_offloading", "ModuleGroup", "offload_", _group_offload),
    ("accelerate.hooks", "CpuOffload", "pre_forward", _model_onload),
    ("accelerate.hooks", "UserCpuOffloadHook", "offload", _model_offload),
    ("accelerate.hooks", "AlignDevicesHook", "pre_forward", _sequential_onload),
)


def watch_offload_hooks(wrappers: Wrappers) -> None:
    """Wrap the hook classes that are loaded; a library that nobody imported moves nothing."""
    for module_name, class_name, method, describe in HOOKS:
        hook_class = getattr(sys.modules.get(module_name), class_name, None)
        if hook_class is not None and hasattr(hook_class, method):
            wrappers.wrap(hook_class, method, _maker(describe))


def _maker(describe: Describe) -> Callable[[Callable[..., Any], str], Callable[..., Any]]:
    def make(original: Callable[..., Any], _attribute: str) -> Callable[..., Any]:
        import torch

        is_compiling = torch.compiler.is_compiling

        def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(self, *args, **kwargs)
            call = ACTIVE.get()
            plan = describe(self, args) if call is not None else None
            if call is None or plan is None:
                return original(self, *args, **kwargs)
            began = call.clock.mark(plan.stream) if plan.stream is not None else None
            if not call.enter_unstaged(TRANSFER):
                return original(self, *args, **kwargs)
            ended = None
            try:
                result = original(self, *args, **kwargs)
                ended = call.clock.mark(plan.stream) if plan.stream is not None else None
            finally:
                call.leave(TRANSFER, Moved(plan, began, ended))
            return result

        return observed

    return make


def _between(began: Mark, ended: Mark, clock: DeviceClock) -> int | None:
    first, last = clock.resolve([began, ended])
    clock.release([began, ended])
    return None if first is None or last is None else last - first


def settle(moved: Moved, clock: DeviceClock) -> Move:
    """What a transfer came to, after the call: the device has been waited for."""
    stream_ns = moved.stream_ns
    if moved.began is not None and moved.ended is not None:
        stream_ns = _between(moved.began, moved.ended, clock)
    elif moved.began is not None:
        clock.release([moved.began])
    plan = moved.plan
    size = _bytes(plan) if plan.copies else 0
    return Move(kind=plan.kind, bytes=size, pinned=plan.pinned, stream_ns=stream_ns)


def _bytes(plan: Plan) -> int:
    tensors: dict[int, Any] = {id(tensor): tensor for tensor in plan.loose}
    for module in plan.modules:
        for tensor in (*module.parameters(plan.recurse), *module.buffers(plan.recurse)):
            tensors[id(tensor)] = tensor
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def owners(parts: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """Which component each module belongs to, by the module's identity; the first name counts."""
    found: dict[int, str] = {}
    for name, part in parts:
        for module in part.modules():
            found.setdefault(id(module), name)
    return found


def component_of(plan: Plan, owner: dict[int, str]) -> str:
    """The name of the component whose weights were moved."""
    modules = (*plan.modules, plan.leader)
    named: Sequence[str] = [owner[id(module)] for module in modules if id(module) in owner]
    return named[0] if named else "unknown"
