"""`KernelInstance`: a kernel with its static arguments and schedule, as ops that call it know it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.compiler.backend import backend_for_kind
from tessera.frontend.kernel.block_scope import check_fixed
from tessera.frontend.kernel.definition import KernelDefinition, Rows
from tessera.frontend.kernel.legality import check_width, pad_rows
from tessera.ir.base.dispatch import Outcome, register
from tessera.ir.tile.collective_parts import Part, has_collectives, split_at_collectives
from tessera.ir.tile.records import KernelProgram
from tessera.runtime.ranks.world import mesh_in_force
from tessera.types.machine import Machine
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType


def candidates(usual: tuple[int, ...], numeric: Sequence[str], between: bool = False) -> tuple[tuple[int, ...], ...]:
    """Blocks of rows, columns and K to choose from, the usual ones first; those that change bits stay.

    Tensor cores take columns `between` powers of two, which leave fewer multiprocessors idle where programs are few.
    """
    m, n, k = usual
    rows = (m,) if "m" in numeric else (m, m // 2, m * 2, m // 4)
    columns = (n,) if "n" in numeric else (n, n // 2, n * 2, *([n + n // 2] if between else []))
    return tuple((max(1, row), max(1, column), k) for row in rows for column in columns)


class KernelInstance:
    """One use of a kernel: what it computes is known but for the types of its operands.

    Of a kernel with collectives it may be one `part`: the number of it, and of the operands of the whole kernel.
    """

    def __init__(
        self,
        definition: KernelDefinition,
        statics: Mapping[str, Any],
        schedule: Schedule | None = None,
        rows: Rows = (),
        part: tuple[int, int] | None = None,
    ) -> None:
        self.definition, self.statics, self.schedule, self.rows = definition, dict(statics), schedule, tuple(rows)
        self.part, self.mesh = part, mesh_in_force()
        self._programs: dict[Any, KernelProgram] = {}

    def _with(self, schedule: Schedule | None = None, part: tuple[int, int] | None = None) -> KernelInstance:
        """The same kernel under another schedule, or a part of it."""
        with self.mesh:
            rest = (self.rows, part or self.part)
            return KernelInstance(self.definition, self.statics, schedule or self.schedule, *rest)

    def parts(self, types: Sequence[TensorType]) -> list[tuple[Part, KernelInstance]]:
        """The kernels that a call is, in order, with exchanges between ranks behind all but the last."""
        found = split_at_collectives(self.unpadded_program(types))
        if len(found) == 1:
            return [(found[0], self)]
        return [(part, self._with(part=(number, len(types)))) for number, part in enumerate(found)]

    def _complete(self, kind: str, types: Sequence[TensorType]) -> Schedule:
        """The schedule for these operands, those that were received aside."""
        return self.definition.complete(self.schedule, kind, types if self.part is None else types[: self.part[1]])

    def program(self, types: Sequence[TensorType], kind: str = "cpu") -> KernelProgram:
        """The kernel on tiles for operands of these types, on a kind of machine."""
        key = (tuple(types), kind)
        found = self._programs.get(key)
        if found is None:
            found = self.unpadded_program(types, kind)
            is_padded = backend_for_kind(kind).keeps_rows_in_registers and not has_collectives(found)
            found = self._programs[key] = pad_rows(found) if is_padded else found
        return found

    def unpadded_program(self, types: Sequence[TensorType], kind: str = "cpu") -> KernelProgram:
        """The kernel on tiles as it was written, rows of any width among them."""
        given = types if self.part is None else types[: self.part[1]]
        with self.mesh:  # a compilation may come after the scope of the mesh
            found = self.definition.build(given, self.statics, self._complete(kind, types), self.rows)
        check_fixed(self.definition.name, found.fixed, self.schedule)
        return found if self.part is None else split_at_collectives(found)[self.part[0]].program

    def register_name(self, types: Sequence[TensorType]) -> str:
        """The name that ops call it by: the same for the same work, in every process.

        A schedule that is given and one that is found are told apart, even where they agree on this machine.
        """
        digest = self.program(types).digest
        if self.schedule is not None:
            digest = hashlib.sha256(f"{digest} {self.schedule.choices()}".encode()).hexdigest()
        name = f"{self.definition.name}:{digest[:24]}"
        register(name, self)
        return name

    def outcome(self, types: Sequence[TensorType]) -> Outcome:
        made = self.program(types)
        return Outcome(made.results, made.equalities)

    def reference(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        from tessera.compiler.kernel_trial import run_program  # noqa: PLC0415 - it needs NumPy and xDSL

        return run_program(self, arrays)

    def write(self, call: Any) -> list[Any]:
        from tessera.ir.tile.write_records import write_call  # noqa: PLC0415 - it needs xDSL

        program = self._choose_program(call)
        if backend_for_kind(call.machine.kind).keeps_rows_in_registers:
            from tessera.ir.target.limits import MAX_REGISTERS  # noqa: PLC0415 - for machine code alone

            check_width(program, call.lanes, MAX_REGISTERS * call.machine.registers)
        return write_call(program, call)

    def _choose_program(self, call: Any) -> KernelProgram:
        """The program under its schedule, or under blocks that are asked for: those that change no bit alone."""
        kind = call.machine.kind
        if self.schedule is not None:
            self.check(call.operands, call.machine, tries=False)
            return self.program(call.operands, kind)
        made = self.program(call.operands, kind)
        usual = self._complete(kind, call.operands).block
        block = call.choose("kernel.block", self._blocks(call.operands, call.machine))
        return made if tuple(block) == usual else self._under(block).program(call.operands, kind)

    def _blocks(self, types: Sequence[TensorType], machine: Machine) -> Sequence[tuple[int, ...]]:
        """Blocks to choose from, the one that does best by the model of the machine first."""
        usual = self._complete(machine.kind, types).block
        between = machine.is_gpu and self.definition.has_dots
        blocks = candidates(usual, self.program(types, machine.kind).numeric, between)
        if not machine.is_gpu:
            return blocks
        from tessera.frontend.kernel.legality import rank_blocks  # noqa: PLC0415 - for GPUs alone

        return rank_blocks(blocks, lambda block: self._under(block).program(types, machine.kind), machine)

    def discover(self, types: Sequence[TensorType], machine: Machine) -> Schedule:
        """The schedule that is in force for such operands: the one given, or the one that is found for a machine."""
        if self.schedule is not None:
            return self._complete(machine.kind, types)
        first, *others = self._blocks(types, machine)
        why = f"found for {machine.cpu or machine.name}, the first of {1 + len(others)} blocks"
        return Schedule(block=first, lineage=(f"{why}{self._share(first, types, machine)}",))

    def _share(self, block: tuple[int, ...], types: Sequence[TensorType], machine: Machine) -> str:
        """How much of a GPU a block keeps at work, where sizes are known."""
        if not machine.is_gpu:
            return ""
        from tessera.frontend.kernel.legality import busy_fraction  # noqa: PLC0415 - for GPUs alone

        share = busy_fraction(self._under(block).program(types, machine.kind), block, machine)
        return "" if share is None else f": {share:.0%} of it are at work"

    def _under(self, block: Sequence[int]) -> KernelInstance:
        return self._with(Schedule(block=tuple(block)))

    def check(self, types: Sequence[TensorType], machine: Machine, *, tries: bool = True) -> None:
        """Raises ScheduleError (T0401) where the machine cannot carry the schedule out: its numbers, and its code.

        Code is written for it only if it `tries`; a compilation does that anyway, and comes back where it fails.
        """
        from tessera.frontend.kernel.legality import check  # noqa: PLC0415 - for schedules that users give

        def build(schedule: Schedule) -> KernelProgram:
            return self._with(schedule).program(types, machine.kind)

        schedule = self._complete(machine.kind, types)
        source = self.definition.source
        span = source.span(source.tree)
        if not (tries and machine.is_gpu):
            check(build, schedule, machine, self.definition.name, span)
            return
        from tessera.compiler.kernel_trial import refusal  # noqa: PLC0415 - it needs xDSL

        def refuse_parts(program: KernelProgram) -> str:
            parts = (part.program for part in split_at_collectives(program))
            return next((found for part in parts if (found := refusal(part, machine))), "")

        check(build, schedule, machine, self.definition.name, span, refuse_parts)

    @property
    def location(self) -> str:
        return str(self.definition.source.span(self.definition.source.tree))

    @property
    def given_schedule(self) -> dict[str, Any]:
        return {} if self.schedule is None else self.schedule.choices()
