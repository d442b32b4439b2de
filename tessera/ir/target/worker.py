"""The code generator's process: LLVM text in, object bytes out, over its own stdin and stdout.

Unsupported IR ends the process that runs LLVM, and llvmlite holds one global lock; so LLVM lives here, one process for
each worker, and the compiler (`worker_pool.py`) sends it frames: eight bytes of length, a line of JSON, a body. Only
llvmlite.binding and the standard library are imported, and LLVM is loaded once for all workers, which are forked from
the process that did, so that they are ready in a few tens of milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, BinaryIO, NoReturn, Self

LENGTH = struct.Struct("<Q")
ENDED = struct.Struct("<Qq")
"""The id of a worker and its exit code, which is minus a signal's number where one ended it."""

MACHINES = 8
"""Target machines that are kept: more than one program asks for."""

LIGHT_PASSES = (
    "add_sroa_pass",
    "add_simplify_cfg_pass",
    "add_instruction_combine_pass",
    "add_dead_code_elimination_pass",
)


class RefusedError(Exception):
    """LLVM, or a check of ours, says no to the text; the process is well."""


def to_frame(header: dict[str, Any], body: bytes) -> bytes:
    """One frame as bytes."""
    head = json.dumps(header).encode() + b"\n"
    return LENGTH.pack(len(head) + len(body)) + head + body


def write_frame(stream: BinaryIO, header: dict[str, Any], body: bytes) -> None:
    """Send one frame."""
    stream.write(to_frame(header, body))
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame, or None at the end of the stream."""
    size = stream.read(LENGTH.size)
    if len(size) < LENGTH.size:
        return None
    payload = stream.read(LENGTH.unpack(size)[0])
    head, _, body = payload.partition(b"\n")
    return json.loads(head), body


class Complaints:
    """What LLVM prints: it reports unknown CPUs and features on stderr, and goes on without them."""

    def __init__(self) -> None:
        self._file, self._outer = os.memfd_create("complaints"), os.dup(2)

    def __enter__(self) -> Self:
        os.lseek(self._file, 0, os.SEEK_SET)
        os.ftruncate(self._file, 0)
        sys.stderr.flush()
        os.dup2(self._file, 2)
        return self

    def __exit__(self, *_: object) -> None:
        os.dup2(self._outer, 2)

    def text(self) -> str:
        return os.pread(self._file, os.fstat(self._file).st_size, 0).decode(errors="replace")


class _Folder(str):
    """A folder as `importlib.resources` gives it, as far as llvmlite asks."""

    __slots__ = ()

    def __truediv__(self, name: str) -> str:
        return os.path.join(self, name)


def _replace_resources() -> None:
    """Give llvmlite the two functions that it finds its library by in place of `importlib.resources`.

    Loading that takes 12 of the 70 ms of CPU time that a worker needs to be ready (CPython 3.11, measured with
    `-X importtime`); no worker uses it for anything else.
    """
    module: Any = type(sys)("importlib.resources")
    module.files = lambda package: _Folder(os.path.dirname(sys.modules[package].__file__ or ""))  # pyright: ignore[reportUnknownLambdaType]
    module.as_file = nullcontext
    sys.modules["importlib.resources"] = module


class Generator:
    """LLVM, set up once for all its targets."""

    def __init__(self) -> None:
        _replace_resources()
        # Not above: the parent reads frames with this module, and has no LLVM.
        import llvmlite.binding as llvm  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

        self.llvm: Any = llvm
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        self._complaints: Complaints | None = None
        self._machines: dict[tuple[Any, ...], Any] = {}

    def compile(self, header: dict[str, Any], text: str) -> tuple[bytes, dict[str, float]]:
        """Object bytes (or assembly text) and the seconds of each step."""
        started = time.perf_counter()
        machine = self._machine(header)
        module = self._parse(text)
        module.triple = header["triple"]
        module.data_layout = str(machine.target_data)
        try:
            module.verify()
        except RuntimeError as error:
            raise RefusedError(str(error)) from error
        self._check_intrinsics(module)
        parsed = time.perf_counter()
        self._optimize(module, machine, header["passes"])
        optimized = time.perf_counter()
        body = machine.emit_object(module) if header["emit"] == "object" else machine.emit_assembly(module).encode()
        done = time.perf_counter()
        return body, {"parse": parsed - started, "optimize": optimized - parsed, "generate": done - optimized}

    def _machine(self, header: dict[str, Any]) -> Any:
        """What code is generated for; kept, as LLVM works out what a CPU can do for each one anew."""
        key = tuple(header[name] for name in ("triple", "cpu", "features", "opt", "reloc", "code_model"))
        if key not in self._machines:
            while len(self._machines) >= MACHINES:
                del self._machines[next(iter(self._machines))]
            self._machines[key] = self._new_machine(header)
        return self._machines[key]

    def _new_machine(self, header: dict[str, Any]) -> Any:
        try:
            target = self.llvm.Target.from_triple(header["triple"])
        except RuntimeError as error:
            raise RefusedError(str(error)) from error
        # Made here, not when LLVM is loaded: forked workers would share the file.
        self._complaints = self._complaints or Complaints()
        with self._complaints as complaints:
            machine = target.create_target_machine(
                cpu=header["cpu"],
                features=header["features"],
                opt=header["opt"],
                reloc=header["reloc"],
                codemodel=header["code_model"],
            )
        unknown = sorted({line.strip() for line in complaints.text().splitlines() if "not a recognized" in line})
        if unknown:
            raise RefusedError("; ".join(unknown))
        return machine

    def _parse(self, text: str) -> Any:
        try:
            return self.llvm.parse_assembly(text)
        except RuntimeError as error:
            raise RefusedError(str(error)) from error

    def _check_intrinsics(self, module: Any) -> None:
        # LLVM takes any name that begins with `llvm.`; one it knows gets its attributes while parsing, others none.
        for function in module.functions:
            if function.is_declaration and function.name.startswith("llvm.") and not list(function.attributes):
                raise RefusedError(f"`{function.name}` is not an intrinsic of this LLVM")

    def _optimize(self, module: Any, machine: Any, passes: str) -> None:
        if passes == "none":
            return
        level = int(passes[1]) if passes[0] == "O" else 0
        tuning = self.llvm.create_pipeline_tuning_options(speed_level=level)
        builder = self.llvm.create_pass_builder(machine, tuning)
        if passes == "light":
            run = self.llvm.create_new_module_pass_manager()
            for name in LIGHT_PASSES:
                getattr(run, name)()
        else:
            run = builder.getModulePassManager()
        run.run(module, builder)


def serve(generator: Generator, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer frames until the parent closes the pipe."""
    while (frame := read_frame(requests)) is not None:
        header, body = frame
        try:
            result, seconds = generator.compile(header, body.decode())
        except RefusedError as error:
            write_frame(replies, {"ok": False}, str(error).encode())
        except Exception as error:
            # Whatever else went wrong goes back as text: a worker that died of it would read as a crash of LLVM.
            write_frame(replies, {"ok": False}, f"{type(error).__name__}: {error}".encode())
        else:
            write_frame(replies, {"ok": True, "seconds": seconds}, result)


def main(pipes: Sequence[tuple[int, int, int]]) -> NoReturn:
    """Load LLVM once and fork a worker for each triple of descriptors: requests, replies and what LLVM prints.

    Loading LLVM takes a process 60 ms of CPU time, a fork of one that has it takes 1 (CPython 3.11, llvmlite 0.50).
    The process that forked the workers compiles nothing: it writes their ids to stdout, later how each one ended, and
    ends when stdin is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the pipes
    generator = Generator()
    # A worker that ends while others are forked is reported after them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    process_ids: list[int] = []
    for mine in pipes:
        process_id = os.fork()
        if process_id == 0:
            _run_forked(generator, mine, pipes)
        process_ids.append(process_id)
    for descriptor in {one for three in pipes for one in three}:
        os.close(descriptor)
    os.write(1, b"".join(map(LENGTH.pack, process_ids)))
    signal.signal(signal.SIGCHLD, _report_ended)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os.read(0, 1)
    os._exit(0)


def _run_forked(generator: Generator, mine: tuple[int, int, int], pipes: Sequence[tuple[int, int, int]]) -> NoReturn:
    """One worker: with its own pipes alone, as a pipe is at its end only when nobody holds the other end."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    requests, replies, printed = mine
    os.dup2(printed, 2)
    os.dup2(2, 1)  # nothing LLVM prints may mix with frames
    os.dup2(requests, 0)
    for descriptor in {one for three in pipes for one in three} - {requests, replies}:
        os.close(descriptor)
    serve(generator, os.fdopen(requests, "rb"), os.fdopen(replies, "wb"))
    os._exit(0)  # all is written: to take LLVM and Python apart would cost more than a small kernel


def _report_ended(*_: object) -> None:
    """Write the id and the status of each worker that has ended; one write, so that no reader sees half of it."""
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process_id == 0:
            return
        os.write(1, ENDED.pack(process_id, os.waitstatus_to_exitcode(status)))
