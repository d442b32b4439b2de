"""The contenders on one drawn program: our own function, and what NumPy, torch, torch.compile and JAX make of it."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.contenders.contender import NotOfferedError, Run
from benchmarks.drawn import spell_functions_numpy, spell_functions_torch, spell_numpy, spell_torch
from benchmarks.drawn.program import OPS, Call, Program, Step
from benchmarks.result import OURS
from tessera.frontend.pytree import as_tuple
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import Array

NARROW = ("bf16", "f16", "f8e4m3", "f8e5m2")
NUMPY_NARROW = 2**22
"""Operations of a program in a narrow float that NumPy is asked for, as its loops over such take a call an element."""


TORCH = {
    **spell_torch.SPELLINGS,
    **{f"{OPS}{name}": spell for name, spell in spell_functions_torch.SPELLINGS.items()},
}
NUMPY = {
    **spell_numpy.SPELLINGS,
    **{f"{OPS}{name}": spell for name, spell in spell_functions_numpy.SPELLINGS.items()},
}
VIEWS = spell_torch.VIEWS | {f"{OPS}{name}" for name in spell_functions_torch.VIEWS}
"""What gives a view of its operand, of ops and functions."""


@dataclass(frozen=True)
class Offer:
    """A contender's function, ready to run, and how its results become tensors (on the device) or arrays."""

    name: str
    run: Run
    unpack: Callable[[Any], list[Any]]


class Side:
    """The arguments of a program, in the memory that all contenders read, and the contenders."""

    def __init__(self, program: Program, device: str, torch: Any, jax: Any, peers: Sequence[str] = ()) -> None:
        self.program, self.device, self.torch, self.jax = program, device, torch, jax
        self.arrays: list[Any] = program.arrays() if device == "cpu" else []
        self.wanted = peers
        self.tensors = self._tensors() if torch is not None else []

    def _tensors(self) -> list[Any]:
        """Arguments as torch has them; on a CPU they share the memory of the arrays."""
        if self.device == "cpu":
            return [shared(self.torch, array) for array in self.arrays]
        rng = np.random.default_rng(0)
        found: list[Any] = []
        for argument in self.program.arguments:
            block = shared(self.torch, argument.block(rng)).cuda()
            count = -(-argument.count // max(1, len(block)))
            # Repeated on the device: gigabytes would take their time on the way.
            flat = bytes_of(self.torch, block).view(1, -1).expand(count, -1).reshape(-1)
            taken = flat[: argument.count * block.element_size()].view(block.dtype)
            found.append(taken.view(argument.shape).clone())
        return found

    def offers(self) -> dict[str, Callable[[], Offer]]:
        """How to get each contender ready, ours first."""
        found: dict[str, Callable[[], Offer]] = {OURS: self._ours}
        if self.device == "cpu":
            found["numpy"] = self._numpy
        if self.torch is not None:
            found["torch"] = partial(self._torch, "torch")
            found["torch.compile"] = partial(self._torch, "torch.compile")
        if self.device == "cpu" and self.jax is not None:
            found["jax"] = self._jax
        if self.program.kind == "attention" and self.device != "cpu":
            found |= {name: partial(self._attention, name) for name in BACKENDS}
        kept = (OURS, *self.wanted)
        return {name: make for name, make in found.items() if not self.wanted or name in kept}

    def _ours(self) -> Offer:
        function = self.program.bind([ours(step) for step in self.program.steps], by_name=True)
        if self.device == "cpu":
            jitted, arrays = ts.jit(function), tuple(self.arrays)
            return Offer(OURS, lambda: jitted(*arrays), lambda made: [self._checked(part) for part in as_tuple(made)])
        jitted = ts.jit(function, backend="cuda")
        given = tuple(to_ours(self.torch, tensor) for tensor in self.tensors)
        if not given:
            # Nothing says where a program without arguments runs but the device around it.
            def run() -> Any:
                with ts.device(ts.gpu[0]):
                    return jitted()

            return Offer(OURS, run, lambda made: [from_ours(self.torch, part) for part in as_tuple(made)])
        return Offer(
            OURS, lambda: jitted(*given), lambda made: [from_ours(self.torch, part) for part in as_tuple(made)]
        )

    def _checked(self, made: Any) -> Any:
        array = np.asarray(made)
        return array if self.torch is None else shared(self.torch, array)

    def _numpy(self) -> Offer:
        if self.program.dtype in NARROW and self.program.flops + self.program.bytes > NUMPY_NARROW:
            raise NotOfferedError("NumPy computes with narrow floats one at a time")
        run, arrays = _bound(self.program, partial(_spell_numpy, np), *_NUMPY_LAYOUT), tuple(self.arrays)

        def call() -> Any:
            with np.errstate(all="ignore"):
                return run(*arrays)

        return Offer("numpy", call, lambda made: [self._checked(part) for part in as_tuple(made)])

    def _torch(self, name: str) -> Offer:
        torch = self.torch
        run, tensors = self.torch_function(), tuple(self.tensors)
        if name == "torch.compile":
            torch._dynamo.reset()  # a program must not count against the next one's recompile limit
            run = torch.compile(run, dynamic=False)

        def call() -> Any:
            with torch.inference_mode():
                return run(*tensors)

        return Offer(name, call, lambda made: list(as_tuple(made)))

    def torch_function(self) -> Callable[..., Any]:
        """The program in torch."""
        torch = self.torch
        copy = operator.methodcaller("clone", memory_format=torch.contiguous_format)
        return _bound(self.program, partial(_spell_torch, torch), copy, operator.methodcaller("contiguous"))

    def _attention(self, name: str) -> Offer:
        """One kernel of torch, where torch would choose another."""
        torch, made = self.torch, self._torch("torch")
        chosen = getattr(importlib.import_module("torch.nn.attention").SDPBackend, BACKENDS[name])
        kernel = importlib.import_module("torch.nn.attention").sdpa_kernel
        run, tensors = self.torch_function(), tuple(self.tensors)

        def call() -> Any:
            with torch.inference_mode(), kernel(chosen):
                return run(*tensors)

        return Offer(name, call, made.unpack)

    def _jax(self) -> Offer:
        run = self.jax.jit(self.program.bind([_spell_jax(self.jax, step) for step in self.program.steps]))
        given = tuple(self.jax.numpy.asarray(array) for array in self.arrays)

        def call() -> Any:
            return self.jax.block_until_ready(run(*given))

        def unpack(made: Any) -> list[Any]:
            return [self._checked(np.array(part)) for part in as_tuple(made)]

        return Offer("jax", call, unpack)


_NUMPY_LAYOUT = operator.methodcaller("copy"), partial(np.asarray, order="C")
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}


def ours(step: Step) -> Callable[..., Any]:
    """A step as the front end records it."""
    if isinstance(step, Call):
        return step.function
    name, attributes = step.spec.name, step.attributes
    return lambda *operands: dispatch.apply(name, list(operands), attributes)


def _bound(
    program: Program, spell: Callable[[Step], Callable[..., Any]], copy: Any, lay_out: Any
) -> Callable[..., Any]:
    """A peer's function, whose results are new, and stored in order, as ours are: it copies a view, and what is not."""
    run = program.bind([spell(step) for step in program.steps])
    if program.steps[-1].op in VIEWS:
        settle = copy
    elif "transpose" in program.ops or isinstance(program.steps[-1], Call):
        settle = lay_out
    else:
        return run

    def settled(*operands: Any) -> Any:
        made = run(*operands)
        return tuple(map(settle, made)) if isinstance(made, tuple | list) else settle(made)

    return settled


def _spell_torch(torch: Any, step: Step) -> Callable[..., Any]:
    if step.op not in TORCH:
        raise NotOfferedError(f"torch has no `{step.op}`")
    return TORCH[step.op](torch, step.plain)


def _spell_numpy(xp: Any, step: Step) -> Callable[..., Any]:
    if step.op not in NUMPY:
        raise NotOfferedError(f"NumPy has no `{step.op}`")
    return NUMPY[step.op](xp, step.plain)


def _spell_jax(jax: Any, step: Step) -> Callable[..., Any]:
    if step.op in spell_numpy.JAX_SPELLINGS:
        return spell_numpy.JAX_SPELLINGS[step.op](jax, step.plain)
    return _spell_numpy(jax.numpy, step)


_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def shared(torch: Any, array: Array) -> Any:
    """A NumPy array as a tensor of the same memory."""
    array = np.asarray(array)
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.name in _BITS:
        return torch.from_numpy(array.view(_BITS[array.dtype.name])).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def bytes_of(torch: Any, tensor: Any) -> Any:
    """The bytes of a contiguous tensor."""
    return tensor.view(torch.uint8)


def to_ours(torch: Any, tensor: Any) -> Any:
    """A tensor of torch as one of ours; what DLPack does not name goes through the host, 8-bit floats by their bits."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name.startswith("float8"):
        return ts.cuda.array(tensor.view(torch.uint8).cpu().numpy().view(getattr(ml_dtypes, name)))
    return ts.cuda.array(tensor.cpu().numpy() if name in ("uint16", "uint32", "uint64") else tensor)


def from_ours(torch: Any, tensor: Any) -> Any:
    """A result of ours as a tensor of torch."""
    if tensor.dtype.name in ("f8e4m3", "f8e5m2", "u16", "u32", "u64"):
        return shared(torch, np.asarray(tensor)).cuda()
    return torch.from_dlpack(tensor)
