"""`CudaProgram`: an executable for a GPU loaded into this process, and its way from arguments to results."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError, GuardError, LoadError, RuntimeArgumentError
from tessera.runtime.devices.cuda_assembler import machine_code
from tessera.runtime.devices.cuda_driver import Module, driver, error_of
from tessera.runtime.devices.cuda_memory import ALIGNMENT, POOL, Home, copy_in
from tessera.runtime.devices.cuda_stream import QUEUE, wait_for
from tessera.runtime.devices.cuda_tensor import NOWHERE, CudaTensor, Form, form_of
from tessera.runtime.executable import Executable, Port
from tessera.runtime.loader import link
from tessera.types.dim import parse_dim
from tessera.types.dtype import BY_NAME

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
_FUNCTIONS = (
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuMemsetD32Async",
    "cuTensorMapEncodeTiled",
    "cuMemcpy2DAsync_v2",
)
_KEPT = 256
_NUMBER = 0xFFFFFFFF
"""The part of what the entry says that is the driver's."""
_NO_CONTEXT = 201


class Plan:
    """What a call with tensors of these forms in a queue needs, worked out once."""

    __slots__ = ("given", "outputs", "sizes", "state", "taken", "workspace")

    def __init__(self, sizes: Any, outputs: tuple[tuple[Form, Home], ...], workspace: Home | None, state: Any) -> None:
        self.sizes, self.outputs, self.workspace, self.state = sizes, outputs, workspace, state
        self.taken: Any = None
        self.given: Any = ctypes.c_void_p * max(1, len(outputs))


class CudaProgram:
    """An executable ready to run on the device.

    `call` takes tensors of the device; NotImplemented is its answer to anything else. `run` takes whatever can be made
    into such tensors, copying those in host memory (`copies` counts them), and explains what cannot.

    Raises: DeviceError (T0720) without a device or where it fails, LoadError (T0704) for code of another one,
    RuntimeArgumentError (T0701), GuardError (T0702), OutOfMemoryError (T0707).
    """

    def __init__(self, executable: Executable) -> None:
        facts = executable.metadata
        cuda = driver()
        if facts["architecture"] != code_for(cuda.architecture):
            raise LoadError(
                f"executable was made for {facts['architecture']}, and cuda:{cuda.ordinal} is {cuda.architecture}",
                span=None,
                fix="compile it here",
            )
        self.executable, self.calls, self.copies = executable, 0, 0
        entry, *kernels, constants = executable.objects
        self._code = link([entry], {})
        self._entry = _ENTRY(self._code.address("tessera_entry"))
        self._modules: list[Module] = []
        handles: dict[str, int] = {}
        for fact, ptx in zip(facts["kernels"], kernels, strict=True):
            module = Module(machine_code(ptx, facts["architecture"]))
            self._modules.append(module)
            handles[fact["name"]] = module.function(fact["name"], fact["shared"])
        self._constants = CudaTensor.empty([len(constants)], "u8")
        copy_in(self._constants.address, _address_of(constants), len(constants), self._constants.stream)
        self._words: list[int] = [handles[name] for name in facts["called"]]
        start = self._constants.address
        for size in facts["constants"]:
            self._words.append(start)
            start += size
        self._states: dict[int, Any] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._sizes = Sizes(executable)

    def _state(self, stream: int) -> Any:
        """The table that the entry reads, for a queue; the word that values are read into is its own."""
        found = self._states.get(stream)
        if found is None:
            cuda = driver()
            cell = ctypes.c_void_p()
            cuda.call("cuMemAllocHost_v2", ctypes.byref(cell), ctypes.c_size_t(64))
            words = [stream, *(cuda.address(name) for name in _FUNCTIONS), cell.value or 0, *self._words]
            found = self._states[stream] = (ctypes.c_void_p * len(words))(*words)
        return found

    def call(self, *tensors: Any) -> Any:
        """The result of one output, or a tuple, of tensors on the device whose forms were seen before."""
        stream = QUEUE.handle
        try:
            plan = self._plans[(stream, *[tensor.form for tensor in tensors])]
        except (KeyError, AttributeError):
            return NotImplemented
        for tensor in tensors:
            if tensor.lane != stream:
                return NotImplemented
        return self.launch(plan, tensors, stream)

    def launch(self, plan: Plan, tensors: Sequence[CudaTensor], stream: int) -> Any:
        """Make room for the results and let the entry fill the queue."""
        made = [CudaTensor(home.take(), form, stream, home) for form, home in plan.outputs]
        own = plan.workspace
        workspace = own.take() if own is not None else 0
        code = self._entry(
            plan.taken(*[tensor.address for tensor in tensors]),
            plan.given(*[tensor.address for tensor in made]),
            plan.sizes,
            workspace,
            plan.state,
        )
        if own is not None:
            own.free.append(workspace)
        if code:
            if code & _NUMBER == _NO_CONTEXT and driver().enter():
                # The first call of a thread that has not met the device yet.
                return self.launch(plan, tensors, stream)
            raise self._failure(code)
        self.calls += 1
        return made[0] if len(made) == 1 else tuple(made)

    def _failure(self, code: int) -> Exception:
        number, kernel = code & _NUMBER, (code >> 32) - 1
        name = self.executable.metadata["called"][kernel] if kernel >= 0 else "the host program"
        found = error_of(number, name, driver().library)
        if number in (900, 901):
            return DeviceError(
                f"`{name}` cannot be recorded: it waits for a value of the device", fix="call it outside of `capture`"
            )
        return found

    def __call__(self, *arguments: Any) -> Any:
        result = self.call(*arguments)
        return self.run(arguments) if result is NotImplemented else result

    def run(self, arguments: Sequence[Any]) -> Any:
        """Call with anything that holds elements; what is not on the device is copied there."""
        driver().enter()
        inputs = self.executable.inputs
        if len(arguments) != len(inputs):
            raise RuntimeArgumentError(f"expected {len(inputs)} arguments, got {len(arguments)}")
        pairs = enumerate(zip(arguments, inputs, strict=True))
        tensors = [self._tensor(number, argument, port) for number, (argument, port) in pairs]
        stream = QUEUE.handle
        plan = self._plan(stream, tensors)
        # What is being recorded waits for nothing outside: `capture` has waited for all before.
        others = set[int]() if QUEUE.is_recording else {tensor.stream for tensor in tensors} - {stream}
        for other in others:
            wait_for(stream, other)
        result = self.launch(plan, tensors, stream)
        for other in others:
            # Their memory goes back to their own queues, which must not be ahead of this one then.
            wait_for(other, stream)
        return result

    def _plan(self, stream: int, tensors: Sequence[CudaTensor]) -> Plan:
        key = (stream, *[tensor.form for tensor in tensors])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            sizes, forms, workspace = self._sizes.plan([tensor.shape for tensor in tensors])
            outputs = tuple((form, POOL.home(form.bytes, stream)) for form in forms)
            own = POOL.home(workspace, stream) if workspace else None
            plan = self._plans[key] = Plan(sizes, outputs, own, self._state(stream))
            plan.taken = ctypes.c_void_p * max(1, len(tensors))
        return plan

    def _tensor(self, number: int, argument: Any, port: Port) -> CudaTensor:
        """One argument as a tensor of the device, of the right dtype and rank, beginning where kernels expect it."""
        where = f"argument {number}" + (f" (`{port.name}`)" if port.name else "")
        tensor = argument
        if not isinstance(argument, CudaTensor):
            needs = isinstance(argument, bool | int | float | list | tuple) or port.dtype == "i4"
            tensor = CudaTensor.of(argument, port.dtype if needs else None)
            self.copies += 1
        if tensor.dtype.name != port.dtype or tensor.ndim != port.rank:
            raise RuntimeArgumentError(
                f"{where} is {tensor.dtype} of rank {tensor.ndim}; the compiled function takes {port.dtype} of rank "
                f"{port.rank}",
                notes=(f"it has shape {list(tensor.shape)}, and must be {port}",),
            )
        if tensor.lane == NOWHERE and tensor.nbytes:
            self.copies += 1
            return tensor.copy()
        return tensor


def code_for(architecture: str) -> str:
    """The code that a device runs: that of its generation."""
    return {"sm_8": "sm_80", "sm_9": "sm_90a", "sm_1": "sm_100a"}.get(architecture[:4], architecture)


def _address_of(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


class Sizes:
    """The arithmetic of sizes around a call: symbols from shapes, guards, shapes of outputs, bytes of memory."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        facts = executable.metadata
        self.workspace = parse_dim(facts["workspace"])
        self.scratches = [
            (parse_dim(grid), programs, slots, parse_dim(size)) for grid, programs, slots, size in facts["scratches"]
        ]

    def plan(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Any, list[Form], int]:
        """Sizes for the entry, forms of the outputs and bytes of workspace; raises where the shapes do not fit."""
        executable = self.executable
        dims = [dim for shape in shapes for dim in shape]
        symbols = {name: dims[at] for name, at in zip(executable.symbols, executable.binding, strict=True)}
        self._check(shapes, symbols)
        forms = [
            form_of(BY_NAME[port.dtype], tuple(parse_dim(text).evaluate(symbols) for text in port.dims))
            for port in executable.outputs
        ]
        values = list(symbols.values())
        return (ctypes.c_int64 * max(1, len(values)))(*values), forms, self._bytes(symbols)

    def _bytes(self, symbols: Mapping[str, int]) -> int:
        own = -(-self.workspace.evaluate(symbols) // ALIGNMENT) * ALIGNMENT
        scratch = 0
        for grid, programs, slots, size in self.scratches:
            blocks = min(-(-grid.evaluate(symbols) // programs), slots // programs)
            scratch = max(scratch, blocks * programs * size.evaluate(symbols))
        return own + scratch

    def _check(self, shapes: Sequence[tuple[int, ...]], symbols: Mapping[str, int]) -> None:
        shown = ", ".join(f"`{name}` = {value}" for name, value in symbols.items())
        notes = (f"here {shown}",) if shown else ()
        for number, (shape, port) in enumerate(zip(shapes, self.executable.inputs, strict=True)):
            for axis, (size, text) in enumerate(zip(shape, port.dims, strict=True)):
                expected = parse_dim(text).evaluate(symbols)
                if expected != size:
                    raise RuntimeArgumentError(
                        f"argument {number} (`{port.name}`) has size {size} in dim {axis}; expected {text}",
                        notes=(f"it has shape {list(shape)}, and must be {port}", *notes),
                    )
        for guard in self.executable.guards:
            left, right = (parse_dim(text).evaluate(symbols) for text in (guard.left, guard.right))
            if left != right:
                raise GuardError(
                    f"{guard.what}: `{guard.left}` = {left} and `{guard.right}` = {right} must agree", notes=notes
                )
