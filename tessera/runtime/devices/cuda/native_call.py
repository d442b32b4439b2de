"""The builtin that calls a program of a GPU, and the plans that it looks arguments up in: see `host_call.py`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tessera.runtime.devices.cuda.graphs import NodeTable, Replays
from tessera.runtime.devices.cuda.memory import FreeList
from tessera.runtime.devices.cuda.streams import CURRENT
from tessera.runtime.devices.cuda.tensor import CudaTensor, Form
from tessera.runtime.native.layout import FASTCALL, MethodDefinition, slot_offset

PLAN = ("next", "self", "stream", "sizes", "state", "workspace", "needed", "replays")
"""The first words of a plan, as native code knows them: see `host_call.py`."""
_WORDS = ("type", "refused", "queue", "handle", "calls", "plans")
_SLOTS = ("address", "form", "lane", "stream", "_owner")
_CALLS, _PLANS = _WORDS.index("calls"), _WORDS.index("plans")
_HANDLE = "handle"
# A capsule keeps the pointer to its name, not a copy.
_NAME = ctypes.c_char_p(b"tessera.cuda_call")

_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Plan:
    """What a call with tensors of these forms in a stream needs, worked out once, and the words that native code reads.

    `sizes` and `state` are arrays that the entry is given; `outputs` are forms with where their memory comes from;
    `replays` is a table of what was captured, for programs that can be.
    """

    __slots__ = ("__weakref__", "_kept", "next", "outputs", "replays", "sizes", "state", "words", "workspace")

    def __init__(
        self,
        stream: int,
        forms: Sequence[Form],
        sizes: Any,
        outputs: Sequence[tuple[Form, FreeList]],
        workspace: FreeList | None,
        state: Any,
        replays: Replays | None = None,
    ) -> None:
        self.sizes, self.outputs, self.workspace, self.state = sizes, tuple(outputs), workspace, state
        self.replays = replays
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
        capsule = _capsule_new(ctypes.addressof(self._record), _NAME, None)
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
