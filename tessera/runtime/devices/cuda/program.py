"""`CudaProgram`: an executable for a GPU loaded into this process, and its path from arguments to results."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tessera.diagnostics.codes import CaptureError, LoadError, RuntimeArgumentError
from tessera.runtime.callback import EXCHANGES, Callback, Callbacks
from tessera.runtime.devices.cuda.assembler import machine_codes
from tessera.runtime.devices.cuda.driver import NO_CONTEXT, UNCAPTURED, Module, driver, error_of
from tessera.runtime.devices.cuda.graphs import NodeTable, Replays
from tessera.runtime.devices.cuda.memory import ALIGNMENT, POOL, FreeList, PinnedMemory, copy_in, copy_out
from tessera.runtime.devices.cuda.metrics import TOO_FAR, TensorMaps, ranges, too_far, watch
from tessera.runtime.devices.cuda.streams import CURRENT, Words, current_stream, wait_for
from tessera.runtime.devices.cuda.tensor import NOWHERE, CudaTensor, Form, form_of, number_maker
from tessera.runtime.dlpack import new_capsule
from tessera.runtime.donation import Donation
from tessera.runtime.executable import Executable, Port
from tessera.runtime.launch import CALLBACK, FAILED, argument_names, argument_text, check_dims, guard_error
from tessera.runtime.loader import link
from tessera.runtime.native.support import FASTCALL, MethodDefinition, slot_offset
from tessera.runtime.tensor import Tensor
from tessera.runtime.timeline import WATCH
from tessera.types.dim import parse_dim
from tessera.types.dtype import BY_NAME

# The builtin that calls a program of a GPU, and the plans that it looks arguments up in: see `host_graphs.py`.

PLAN = ("next", "self", "stream", "sizes", "state", "workspace", "needed", "replays")
"""The first words of a plan, as native code knows them: see `host_graphs.py`."""
_WORDS = ("type", "refused", "current", "handle", "calls", "plans")
_SLOTS = ("address", "form", "lane", "stream", "_owner")
_CALLS, _PLANS = _WORDS.index("calls"), _WORDS.index("plans")
_HANDLE = "handle"
# A capsule keeps the pointer to its name, not a copy.
_NAME = ctypes.c_char_p(b"tessera.cuda_call")


class Plan:
    """What a call with tensors of these forms in a stream needs, worked out once, and the words that native code reads.

    `sizes` and `state` are arrays that the entry is given; `outputs` are forms with where their memory comes from;
    `replays` is a table of what was captured, for programs that can be; `offloaded` is where offloaded values are.
    """

    __slots__ = (
        *("__weakref__", "_kept", "next", "offloaded", "outputs"),
        *("replays", "sizes", "state", "words", "workspace"),
    )

    def __init__(
        self,
        stream: int,
        forms: Sequence[Form],
        sizes: Any,
        outputs: Sequence[tuple[Form, FreeList]],
        workspace: FreeList | None,
        state: Any,
        replays: Replays | None = None,
        offloaded: PinnedMemory | None = None,
    ) -> None:
        self.sizes, self.outputs, self.workspace, self.state = sizes, tuple(outputs), workspace, state
        self.replays, self.offloaded = replays, offloaded
        self.next: Plan | None = None
        # Native code looks for the very objects, so they live as long as the plan.
        self._kept: tuple[Any, ...] = (stream, tuple(forms))
        found = [0, id(self), id(stream), _address(sizes), _address(state)]
        free_lists = [one for _, one in self.outputs] + ([] if workspace is None else [workspace])
        found += [0, 0] if workspace is None else [id(workspace.free), free_lists.count(workspace)]
        found.append(0 if replays is None else ctypes.addressof(replays.words))
        found += [id(form) for form in forms]
        for form, free_list in self.outputs:
            found += [id(form), id(free_list), id(free_list.free), free_lists.count(free_list)]
        self.words = (ctypes.c_void_p * len(found))(*found)

    def use_nodes(self, table: NodeTable) -> None:
        """Let native calls find a table by which launches are cheaper."""
        self._kept = (*self._kept, table)
        self.words[PLAN.index("state")] = ctypes.addressof(table.state)


def _address(array: Any) -> int:
    return 0 if array is None else ctypes.addressof(array)


class NativeCall:
    """The builtin of one program; `builtin` gives NotImplemented for what fits no plan."""

    def __init__(self, function: int, owner: object) -> None:
        """`function` is the address of `tessera_call`, which `owner` keeps in memory."""
        words = [id(CudaTensor), id(NotImplemented), id(CURRENT), id(_HANDLE), 0, 0, *_slot_offsets()]
        self._record = (ctypes.c_int64 * len(words))(*words)
        self._definition = MethodDefinition(b"call", function, FASTCALL, None)
        self._plans: list[Plan] = []
        """The first plan, if there is one; the others follow it."""
        capsule = new_capsule(ctypes.addressof(self._record), _NAME, None)
        # The function holds on to what it is made of; a program that has gone may still be in somebody's hands.
        kept = (self._record, self._definition, self._plans, owner)
        self.builtin: Callable[..., Any] = self._definition.builtin(capsule, kept)

    @property
    def calls(self) -> int:
        """How often the entry has run."""
        return self._record[_CALLS]

    def count(self) -> None:
        """Count a run of the entry that Python called."""
        self._record[_CALLS] += 1

    def add(self, plan: Plan) -> None:
        """Let calls find a plan, before all others."""
        plan.next = self._plans[0] if self._plans else None
        plan.words[0] = 0 if plan.next is None else ctypes.addressof(plan.next.words)
        self._plans[:], self._record[_PLANS] = [plan], ctypes.addressof(plan.words)

    def clear(self) -> None:
        """Forget all plans; one that a thread is at work with stays until it is done."""
        self._record[_PLANS] = 0
        self._plans.clear()


def _slot_offsets() -> list[int]:
    """The offsets of the slots of a tensor, from one made for the purpose."""
    probe = object.__new__(CudaTensor)
    marks = {slot: object() for slot in _SLOTS}
    for slot, mark in marks.items():
        setattr(probe, slot, mark)
    return [slot_offset(probe, mark) for mark in marks.values()]


# Calls on a GPU to which tensors are donated: results are in their memory, and they themselves are consumed.


class CudaDonation:
    """What a program is given, and what it does with that around its launches."""

    def __init__(self, donation: Donation, names: Sequence[str]) -> None:
        """`names` are those of the arguments, for errors."""
        self._donation, self._names = donation, names
        self.results = frozenset(result for result, _ in donation.kept)
        """Results that need no memory of their own."""
        self._others = [number for number in donation.given if number not in {number for _, number in donation.kept}]
        self._spares: list[tuple[FreeList, int]] = []

    def ready(self, tensors: Sequence[CudaTensor]) -> list[CudaTensor]:
        """The tensors as they can be written over: a copy of what others know the address of.

        Raises RuntimeArgumentError (T0701) where one that is donated shares bytes with another one.
        """
        self._donation.check(self._names, [(one.address, one.address + one.nbytes) for one in tensors])
        self.free_spares()
        found = list(tensors)
        for number in self._donation.given:
            if not found[number].is_own:
                found[number] = found[number].copy()
        return found

    def finish(
        self,
        given: Sequence[CudaTensor],
        ready: Sequence[CudaTensor],
        made: Sequence[CudaTensor],
        stream: int | None,
    ) -> None:
        """After the launches: results have the memory of what was donated, and what was donated is consumed.

        The memory belongs to `stream` from now on, or to the one that it did.
        """
        for result, number in self._donation.kept:
            ready[number].give_to(made[result], stream)
        for number in self._others:
            if CURRENT.capture is not None:
                ready[number].give_to(None)  # at its end the graph takes what is free
            else:
                self._spares.extend(ready[number].give_up())
        for number in self._donation.given:
            if given[number] is not ready[number]:
                given[number].give_to(None)

    def free_spares(self) -> None:
        """Put what the last call was given, and did not write over, where results of this one are taken from.

        In a loop over a state each result then alternates between two addresses, whatever else is freed meanwhile, and
        launches for the same addresses are replayed as a graph. What they hold in between is small: large blocks do
        not wait.
        """
        # One by one, each by one operation: threads that call at a time would else free a block twice.
        while self._spares:
            try:
                free_list, address = self._spares.pop()
            except IndexError:
                return
            free_list.free.append(address)

    def __del__(self) -> None:
        if hasattr(self, "_spares"):  # it is whole
            self.free_spares()

    def fail(self, given: Sequence[CudaTensor], ready: Sequence[CudaTensor]) -> None:
        """After launches that did not come to their end: what they may have written over is consumed, too."""
        for number in self._donation.given:
            if given[number] is ready[number]:
                given[number].give_to(None)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The builtin of a program, with what is done around it."""
        count, numbers = len(self._names), self._donation.given
        others = [number for number in range(count) if number not in numbers]

        def donating(*tensors: Any) -> Any:
            if len(tensors) != count:
                return NotImplemented
            given = {id(tensors[number]) for number in numbers}
            # Memory of our own that nobody else knows belongs to one tensor alone.
            if len(given) != len(numbers) or not given.isdisjoint(map(id, map(tensors.__getitem__, others))):
                return NotImplemented
            for number in numbers:
                if tensors[number].__class__ is not CudaTensor or not tensors[number].is_own:
                    return NotImplemented
            self.free_spares()
            found: Any = call(*tensors)
            if found is NotImplemented:
                return found
            made: Sequence[CudaTensor] = (found,) if found.__class__ is CudaTensor else found
            self.finish(tensors, tensors, made, None)
            return found

        return donating


# Calls from a host program of a GPU back into Python: what they are given is fetched first, in the stream's order.


class CudaCallbacks(Callbacks):
    """The callbacks of a program whose buffers are on the device; they run in the thread that called the program."""

    def __init__(self, callbacks: Sequence[Callback], functions: Sequence[Callable[..., Any]]) -> None:
        super().__init__(callbacks, functions)
        self.can_be_captured = all(one.call in EXCHANGES for one in callbacks)
        if any(one.call in EXCHANGES for one in callbacks):
            from tessera.runtime.devices.cuda.nccl import DeviceExchanges  # noqa: PLC0415 - few communicate with others

            self._exchanges = DeviceExchanges()

    def copy_tensor(self, address: int, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """A copy in host memory."""
        made = Tensor.empty(shape, BY_NAME[dtype])
        copy_out(made.address, address, made.nbytes, current_stream())
        return made

    def put(self, address: int, source: int, size: int) -> None:
        """Bytes of host memory to the device."""
        copy_in(address, source, size, current_stream())


_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
_FUNCTIONS = (
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuMemsetD32Async",
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
)
_STATE = ("stream", "launch", "copy", "read", "wait", "fill", "encode", "encode_windows", "maps", "push", "pop")
"""The words of the table that the entry reads first: the stream, the functions above, and what is not the driver's."""
_KEPT = 64
"""Plans of a program: a call goes through them one by one."""
_NUMBER = 0xFFFFFFFF
"""The part of what the entry says that is the driver's."""


class CudaProgram:
    """An executable ready to run on the device.

    `call` is a builtin that takes tensors of the device of forms that were seen before, in the stream they belong to;
    NotImplemented is its answer to anything else. `run` takes whatever can be made
    into such tensors, copying those in host memory (`copies` counts them), and explains what cannot.

    Raises: DeviceError (T0720) without a device or where it fails, LoadError (T0704) for code of another one,
    RuntimeArgumentError (T0701), GuardError (T0702), OutOfMemoryError (T0707).
    """

    def __init__(self, executable: Executable, functions: Sequence[Callable[..., Any]] = ()) -> None:
        """`functions` are the Python functions that it calls, by slot."""
        facts, cuda = check_facts(executable), driver()
        if facts["architecture"] != code_for(cuda.architecture):
            raise LoadError(
                f"executable was made for {facts['architecture']}, and cuda:{cuda.ordinal} is {cuda.architecture}",
                span=None,
                fix="compile it here",
            )
        if (tuple(facts.get("state", ())), tuple(facts.get("plan", ()))) != (_STATE, PLAN):
            raise LoadError(
                "executable was made by another version of Tessera, whose host programs read other tables",
                span=None,
                fix="compile it again",
            )
        self.executable, self.copies = executable, 0
        entry, *kernels, constants = executable.objects
        self._callbacks = CudaCallbacks.of(facts, functions)
        called = {} if self._callbacks is None else {CALLBACK: self._callbacks.address}
        self._code = link([entry], called)
        self._entry = _ENTRY(self._code.address("tessera_entry"))
        self._native = NativeCall(self._code.address("tessera_call"), self._code)
        self.call: Callable[..., Any] = self._native.builtin
        donation = Donation.of(executable)
        self._donation = None if donation is None else CudaDonation(donation, argument_names(executable))
        if self._donation is not None:
            self.call = self._donation.around(self.call)
        self._modules: list[Module] = []
        handles: dict[str, int] = {}
        for fact, cubin in zip(facts["kernels"], machine_codes(kernels, facts["architecture"]), strict=True):
            module = Module(cubin)
            self._modules.append(module)
            handles[fact["name"]] = module.function(fact["name"], fact["shared"])
            if fact.get("waits"):
                watch(module, fact["name"], fact["waits"])
        self._constants = CudaTensor.empty([len(constants)], "u8")
        copy_in(self._constants.address, _address_of(constants), len(constants), self._constants.stream)
        words = [handles[name] for name in facts["called"]]
        start = self._constants.address
        for size in facts["constants"]:
            words.append(start)
            start += size
        streams = facts.get("streams", 1)
        nothing = self._code.address("tessera_nothing") if streams > 1 else 0
        self._sizes = Sizes(executable)
        offloads = self._sizes.offloaded.value != 0
        self._words = Words(words, streams, facts.get("events", 0), nothing, offloads=offloads)
        self._maps = TensorMaps(facts["maps"])
        self._states: dict[int, Any] = {}
        self._node_tables: dict[int, NodeTable] = {}
        self._plans: dict[tuple[Any, ...], Plan] = {}

    number_maker = staticmethod(number_maker)
    """What makes a Python float an argument."""

    @staticmethod
    def record_launches() -> Any:
        """A block in which each launch of this thread is timed by events, as `record_timeline` does on a CPU."""
        from tessera.runtime.devices.cuda.launch_times import record_launches  # noqa: PLC0415 - few are profiled

        return record_launches()

    def _state(self, stream: int, offloaded: PinnedMemory | None = None) -> Any:
        """The table that the entry reads, for a stream; that of a plan which offloads values is its own."""
        found = self._states.get(stream) if offloaded is None else None
        if found is None:
            is_captured, start = CURRENT.capture is not None, offloaded.address if offloaded is not None else 0
            found = _state_of(stream, self._maps.address, self._words, is_captured=is_captured, offloaded=start)
        if offloaded is None:
            self._states[stream] = found
        return found

    def _pin(self, sizes: Any, stream: int) -> PinnedMemory | None:
        """Host memory for the offloaded values of calls with these sizes in a stream, where there are any."""
        size = self._sizes.offloaded.evaluate(dict(zip(self.executable.symbols, sizes, strict=False)))
        return PinnedMemory(size, stream) if size else None

    def _replays(
        self, sizes: Any, outputs: Sequence[tuple[Form, FreeList]], stream: int, inputs: int
    ) -> Replays | None:
        """A table for captures of a plan, unless a profiler wants to see each launch, or a debug build watches it."""
        is_watched = any(ranges()) or any(fact.get("waits") for fact in self.executable.metadata["kernels"])
        # A copy in a graph is left to the copy engines, which take half as long again as the multiprocessors do.
        copies_only = not self.executable.metadata["called"]
        # By the memory of a result two calls that run at a time are told apart: no two replay one graph.
        if is_watched or copies_only or not any(free_list.size for _, free_list in outputs):
            return None
        run = _CapturableEntry(self._code, self._entry, sizes, len(outputs), self._maps.address, self._words)
        return Replays(inputs + len(outputs) + 1, stream, run)

    def _node_maker(self, plan: weakref.ref[Plan], stream: int) -> Callable[[], None]:
        """What makes the launches of a plan cheaper: its kernels become nodes, which all plans of a stream share."""
        program = weakref.ref(self)

        def use_nodes() -> None:
            this, found = program(), plan()
            if this is None or found is None:
                return
            if stream not in this._node_tables:
                this._node_tables[stream] = this._nodes(stream)
            found.use_nodes(this._node_tables[stream])

        return use_nodes

    def _nodes(self, stream: int) -> NodeTable:
        facts = self.executable.metadata
        known = {fact["name"]: fact for fact in facts["kernels"]}
        kernels = [
            (handle, known[name]["threads"], known[name]["shared"])
            for handle, name in zip(self._words, facts["called"], strict=False)
        ]
        launch = _STATE.index("launch"), self._code.address("tessera_launch")
        return NodeTable(self._state(stream), launch, kernels, len(_STATE))

    @property
    def calls(self) -> int:
        """How often the entry has run."""
        return self._native.calls

    def launch(self, plan: Plan, tensors: Sequence[CudaTensor], stream: int) -> list[CudaTensor]:
        """Allocate the results and let the entry put its launches into the stream."""
        made = [CudaTensor(free_list.take(), form, stream, free_list) for form, free_list in plan.outputs]
        own = plan.workspace
        workspace = own.take() if own is not None else 0
        try:
            # Offloaded values of two calls would be in the same memory: their launches come one after the other.
            with plan.offloaded.lock if plan.offloaded is not None else nullcontext():
                code = self._enter(plan, tensors, made, workspace)
        finally:
            if own is not None:
                own.free.append(workspace)
        if code:
            raised = self._callbacks.take_exception() if code == FAILED and self._callbacks is not None else None
            if raised is not None:
                raise raised
            if code & _NUMBER == NO_CONTEXT and driver().enter():
                # The first call of a thread that has no context yet.
                return self.launch(plan, tensors, stream)
            raise self._failure(code)
        self._native.count()
        return made

    def _enter(self, plan: Plan, tensors: Sequence[CudaTensor], made: Sequence[CudaTensor], workspace: int) -> int:
        given = (_addresses(tensors), _addresses(made), plan.sizes, workspace)
        if WATCH.note is None:
            return self._entry(*given, plan.state)
        from tessera.runtime.devices.cuda.race_check import watched_call  # noqa: PLC0415 - where somebody watches

        is_captured, pinned = CURRENT.capture is not None, plan.offloaded
        start, size = (pinned.address, pinned.size) if pinned is not None else (0, 0)

        def run(address: Callable[[str], int]) -> int:
            words = (plan.state[0] or 0, self._maps.address, self._words)
            return self._entry(*given, _state_of(*words, address, is_captured=is_captured, offloaded=start))

        offloaded = (start, start + size)
        return watched_call(self.executable.metadata, self._words, made, plan.workspace, workspace, run, offloaded)

    def _failure(self, code: int) -> Exception:
        number, kernel = code & _NUMBER, (code >> 32) - 1
        name = self.executable.metadata["called"][kernel] if kernel >= 0 else "the host program"
        if number == TOO_FAR:
            return too_far(name)
        if number in UNCAPTURED:
            return CaptureError(
                f"`{name}` cannot be captured: it waits for a value of the device", fix="call it outside of `capture`"
            )
        return error_of(number, name, driver().library)

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
        given = [self._tensor(number, argument, port) for number, (argument, port) in pairs]
        tensors = given if self._donation is None else self._donation.ready(given)
        stream = current_stream()
        plan = self._plan(stream, tensors)
        graph = CURRENT.capture
        if graph is not None and self._callbacks is not None and not self._callbacks.can_be_captured:
            raise CaptureError("a program that calls Python cannot be captured", fix="call it outside of `capture`")
        if graph is not None:
            # What is being captured waits for nothing outside: `capture` has waited for all before.
            made = self.launch(plan, tensors, stream)
            if self._donation is not None:
                self._donation.finish(given, tensors, made, None)
            graph.hold([*tensors, *made])
            graph.keep(plan.offloaded)
            return _unpack(made)
        others = {tensor.stream for tensor in tensors} - {stream}
        for other in others:
            wait_for(stream, other)
        try:
            made = self.launch(plan, tensors, stream)
        except BaseException:
            if self._donation is not None:
                self._donation.fail(given, tensors)
            raise
        for other in others:
            # Their memory is freed in their own streams, which must not be ahead of this one then.
            wait_for(other, stream)
        if self._donation is not None:
            self._donation.finish(given, tensors, made, stream)
        return _unpack(made)

    def _plan(self, stream: int, tensors: Sequence[CudaTensor]) -> Plan:
        key: tuple[Any, ...] = (stream, *[tensor.form for tensor in tensors])
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _KEPT:
                self._plans.clear()
                self._native.clear()
            sizes, forms, workspace = self._sizes.plan([tensor.shape for tensor in tensors])
            kept = self._donation.results if self._donation is not None else ()
            sized = ((form, 0 if number in kept else form.bytes) for number, form in enumerate(forms))
            outputs = tuple((form, POOL.free_list(size, stream)) for form, size in sized)
            own = POOL.free_list(workspace, stream) if workspace else None
            # During a capture every call takes this path, so that the graph holds its tensors; and one that may raise
            # does, since the fast path would ask Python once more.
            is_kept = CURRENT.capture is None and self._callbacks is None
            offloaded = self._pin(sizes, stream)
            # Nor do calls take it that offload values: no two of them may be at their launches at a time.
            is_fast = is_kept and offloaded is None
            replays = self._replays(sizes, outputs, stream, len(tensors)) if is_fast else None
            plan = Plan(stream, key[1:], sizes, outputs, own, self._state(stream, offloaded), replays, offloaded)
            if is_kept:
                self._plans[key] = plan
            if replays is not None:
                replays.use_nodes = self._node_maker(weakref.ref(plan), stream)
            if is_fast:
                self._native.add(plan)
        return plan

    def _tensor(self, number: int, argument: Any, port: Port) -> CudaTensor:
        """One argument as a tensor of the device, of the right dtype and rank, beginning where kernels expect it."""
        tensor = argument
        if not isinstance(argument, CudaTensor):
            needs = isinstance(argument, bool | int | float | list | tuple) or port.dtype == "i4"
            tensor = CudaTensor.of(argument, port.dtype if needs else None)
            self.copies += 1
        if tensor.dtype.name != port.dtype or tensor.ndim != port.rank:
            raise RuntimeArgumentError(
                f"{argument_text(number, port)} is {tensor.dtype} of rank {tensor.ndim}; the compiled function takes "
                f"{port.dtype} of rank {port.rank}",
                notes=(f"it has shape {list(tensor.shape)}, and must be {port}",),
            )
        if tensor.lane == NOWHERE and tensor.nbytes:
            self.copies += 1
            return tensor.copy()
        return tensor


ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""Devices that code is made for."""
_ALIKE = {"sm_87": "sm_80"}
"""Devices that run the code of another, with as much shared memory."""


def code_for(architecture: str) -> str:
    """The code that a device runs: its own, or that of another of its generation which asks for no more than it has.

    Raises LoadError (T0704) for a device that no code is made for.
    """
    architecture = _ALIKE.get(architecture, architecture)
    if architecture not in ARCHITECTURES:
        raise LoadError(
            f"no code is made for {architecture}",
            span=None,
            fix=f'code is made for {", ".join(ARCHITECTURES)}; on the CPU: `jit(backend="cpu")`',
        )
    return architecture


def _state_of(
    stream: int,
    maps: int,
    words: Words,
    address: Callable[[str], int] | None = None,
    *,
    is_captured: bool = False,
    offloaded: int = 0,
) -> Any:
    """The table that an entry reads, for a stream, with functions of the driver, or what `address` gives for them."""
    address = address or driver().address
    last = words.at(stream, address, is_captured=is_captured, offloaded=offloaded)
    found = [stream, *map(address, _FUNCTIONS), maps, *ranges(), *last]
    return (ctypes.c_void_p * len(found))(*found)


class _CapturableEntry:
    """The entry of a program as one calls it to have its launches captured."""

    def __init__(self, code: Any, entry: Any, sizes: Any, outputs: int, maps: int, words: Words) -> None:
        self._code, self._entry, self._sizes, self._outputs = code, entry, sizes, outputs
        self._maps, self._words = maps, words

    def __call__(self, addresses: Sequence[int], stream: int) -> int:
        """Put launches for results, workspace and inputs at these addresses into a stream; the driver's error, or 0."""
        count = self._outputs
        arrays = [(ctypes.c_void_p * max(1, len(part)))(*part) for part in (addresses[count + 1 :], addresses[:count])]
        state = _state_of(stream, self._maps, self._words, is_captured=True)
        return self._entry(*arrays, self._sizes, addresses[count], state)


def _unpack(made: list[CudaTensor]) -> Any:
    return made[0] if len(made) == 1 else tuple(made)


def _addresses(tensors: Sequence[CudaTensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*[tensor.address for tensor in tensors])


def _address_of(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


_MOST = 1 << 30
"""The most bytes, streams or threads that an executable may ask for: larger ones are no sizes of a GPU."""


def check_facts(executable: Executable) -> Mapping[str, Any]:
    """What an executable says of its code; raises LoadError (T0704) where the runtime could not read that."""
    facts, (*kernels, constants) = executable.metadata, executable.objects[1:] or (b"",)
    try:
        names = {_read_name(fact) for fact in facts["kernels"]}
        scratches = Sizes(executable).scratches
        counts = (facts["maps"], facts.get("streams", 1), facts.get("events", 0), *facts["constants"])
        is_one = (
            isinstance(facts["architecture"], str)
            and len(facts["kernels"]) == len(kernels)
            and names.issuperset(facts["called"])
            and all(type(count) is int and 0 <= count < _MOST for count in counts)
            and all(type(number) is int and number > 0 for _, *numbers, _ in scratches for number in numbers)
            and sum(facts["constants"]) <= len(constants)
            and all(isinstance(facts.get(table, ()), list | tuple) for table in ("state", "plan"))
            and isinstance(facts.get("accesses", {}), dict)
            and all(parse_dim(text).symbols.issubset(executable.symbols) for text in _texts_of(executable))
        )
    except (TypeError, ValueError, LookupError, AttributeError):
        is_one = False
    if not is_one:
        raise LoadError("executable is damaged: what it says of its kernels is of another form", span=None)
    return facts


def _read_name(fact: Mapping[str, Any]) -> str:
    """The name of a kernel; raises ValueError where what is said of the kernel is of another form."""
    is_one = isinstance(fact["name"], str) and all(type(fact[size]) is int for size in ("shared", "threads"))
    if not is_one or not isinstance(fact.get("waits", ()), list | tuple):
        raise ValueError(fact)
    return fact["name"]


def _texts_of(executable: Executable) -> list[str]:
    """The dims that calls evaluate."""
    dims = [text for port in (*executable.inputs, *executable.outputs) for text in port.dims]
    return [*dims, *(text for guard in executable.guards for text in (guard.left, guard.right))]


class Sizes:
    """The arithmetic of sizes around a call: symbols from shapes, guards, shapes of outputs, bytes of memory."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        facts = executable.metadata
        self.workspace, self.offloaded = (parse_dim(facts.get(name, "0")) for name in ("workspace", "offloaded"))
        self.scratches = [
            (parse_dim(grid), programs, slots, parse_dim(size)) for grid, programs, slots, size in facts["scratches"]
        ]

    def plan(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Any, list[Form], int]:
        """Sizes for the entry, forms of the outputs and bytes of workspace; raises where the shapes do not fit."""
        executable = self.executable
        symbols = check_dims(executable, shapes)
        for number, guard in enumerate(executable.guards):
            if parse_dim(guard.left).evaluate(symbols) != parse_dim(guard.right).evaluate(symbols):
                raise guard_error(executable, number, symbols)
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
