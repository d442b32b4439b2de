"""Calls on a GPU that are given tensors for good: results lie in their memory, and they themselves are spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.runtime.devices.cuda_tensor import CudaTensor
from tessera.runtime.donation import Donation


class CudaDonation:
    """What a program is given, and what it does with that around its launches."""

    def __init__(self, donation: Donation, names: Sequence[str]) -> None:
        """`names` are those of the arguments, for errors."""
        self._donation, self._names = donation, names
        self.results = frozenset(result for result, _ in donation.kept)
        """Results that need no memory of their own."""
        self._others = [number for number in donation.given if number not in {number for _, number in donation.kept}]

    def ready(self, tensors: Sequence[CudaTensor]) -> list[CudaTensor]:
        """The tensors as they can be written over: a copy of what others know the address of.

        Raises RuntimeArgumentError (T0701) where one that is given up shares bytes with another one.
        """
        self._donation.check(self._names, [(one.address, one.address + one.nbytes) for one in tensors])
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
        """After the launches: results have the memory of what was given up, and what was given up is spent.

        The memory belongs to the queue `stream` from now on, or to the one that it did.
        """
        for result, number in self._donation.kept:
            ready[number].give_to(made[result], stream)
        for number in self._others:
            ready[number].give_to(None)
        for number in self._donation.given:
            if given[number] is not ready[number]:
                given[number].give_to(None)

    def fail(self, given: Sequence[CudaTensor], ready: Sequence[CudaTensor]) -> None:
        """After launches that did not come to their end: what they may have written over is spent, too."""
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
            found: Any = call(*tensors)
            if found is NotImplemented:
                return found
            made: Sequence[CudaTensor] = (found,) if found.__class__ is CudaTensor else found
            self.finish(tensors, tensors, made, None)
            return found

        return donating
