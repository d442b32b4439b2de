"""PTX to machine code: by `ptxas` where there is one, else by the driver; kept in the store beside everything else.

Assemblers are processes, so that they run side by side, and beside the compiler: a `starter` gets each text as soon as
there is one, and `machine_codes` waits for those that were begun.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tessera.diagnostics.codes import CodegenError
from tessera.runtime.cache import Store, default_store, key_of
from tessera.runtime.devices.cuda.driver import driver, is_available
from tessera.types.settings import usable_cpus

PROBLEM = re.compile(r"\(C75\d\d\)|warning\s*:.*C75\d\d|C75\d\d")
"""What the assembler calls an advisory, and what costs half of the speed: wgmma serialized, setmaxnreg ignored."""

_ELF = b"\x7fELF"


@cache
def find_tool(name: str) -> str | None:
    """Where a program of NVIDIA's is: on PATH, or in a wheel of theirs (`nvidia-cuda-nvcc`, `nvidia-cuda-nvdisasm`)."""
    if found := shutil.which(name):
        return found
    wheels = find_spec("nvidia")
    folders = wheels.submodule_search_locations or () if wheels else ()
    files = [file for folder in folders for file in Path(folder).glob(f"*/bin/{name}") if os.access(file, os.X_OK)]
    return str(max(files)) if files else None


def assembler() -> str | None:
    """Where `ptxas` is, or None."""
    return os.environ.get("TESSERA_PTXAS") or find_tool("ptxas")


@cache
def _assembler_version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


class _Assemblers:
    """Assemblers of this process, as many at a time as there are CPUs, and the texts that they were given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._begun: dict[str, Future[bytes]] = {}
        os.register_at_fork(after_in_child=self._forget)  # a child has no threads to finish them

    def _forget(self) -> None:
        self._lock, self._pool, self._begun = threading.Lock(), None, {}

    def submit(self, key: str, ptx: bytes, architecture: str, path: str) -> Future[bytes]:
        """The cubin of a text, later; one that was begun is not begun again."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(usable_cpus(), "tessera-assembler")
            if key not in self._begun:
                self._begun[key] = self._pool.submit(assemble, ptx, architecture, path)
            return self._begun[key]

    def finish(self, keys: Sequence[str]) -> None:
        """Forget texts whose cubins were taken, or whose error was."""
        with self._lock:
            for key in keys:
                self._begun.pop(key, None)


_ASSEMBLERS = _Assemblers()


def _key_of(ptx: bytes, architecture: str, path: str | None) -> str:
    maker = _assembler_version(path) if path else f"driver {driver().version}"
    return key_of("cubin", architecture, maker, ptx)


def starter(architecture: str) -> Callable[[bytes], None] | None:
    """What lets an assembler start on a text that will be run, while the compiler goes on, from any thread.

    It is None where there is no such GPU to run it on, or no assembler; a cubin that was made before is not made again.
    """
    path = assembler()
    if path is None or not is_available() or driver().architecture != architecture:
        return None

    def start(ptx: bytes) -> None:
        key = _key_of(ptx, architecture, path)
        if default_store().get(key) is None:
            _ASSEMBLERS.submit(key, ptx, architecture, path)

    return start


def machine_code(ptx: bytes, architecture: str, store: Store | None = None) -> bytes:
    """The cubin of one PTX text: see `machine_codes`."""
    return machine_codes([ptx], architecture, store)[0]


def machine_codes(texts: Sequence[bytes], architecture: str, store: Store | None = None) -> list[bytes]:
    """The cubins of PTX texts, from the store where they were made before; a cubin itself is left as it is.

    Assemblers run side by side, one for each distinct text; the driver's takes one after the other. Raises CodegenError
    (T0603) where the assembler refuses a text, or says that it undid what the text asks for.
    """
    wanted = {ptx for ptx in texts if not ptx.startswith(_ELF)}
    if not wanted:
        return list(texts)
    kept, path = store or default_store(), assembler()
    keys = {ptx: _key_of(ptx, architecture, path) for ptx in wanted}
    made = {ptx: found for ptx, key in keys.items() if (found := kept.get(key)) is not None}
    # The longest text first: the last assembler to finish then finishes soonest.
    missing = sorted((ptx for ptx in keys if ptx not in made), key=len, reverse=True)
    if path is None:
        cubins = [_assemble_by_driver(ptx) for ptx in missing]
    else:
        try:
            begun = [_ASSEMBLERS.submit(keys[ptx], ptx, architecture, path) for ptx in missing]
            cubins = [one.result() for one in begun]
        finally:
            _ASSEMBLERS.finish(list(keys.values()))
    for ptx, cubin in zip(missing, cubins, strict=True):
        kept.put(keys[ptx], cubin)
        made[ptx] = cubin
    return [made.get(ptx, ptx) for ptx in texts]


def assemble(ptx: bytes, architecture: str, path: str | None = None) -> bytes:
    """The cubin that `ptxas` makes."""
    return assemble_with_words(ptx, architecture, path)[0]


def assemble_with_words(ptx: bytes, architecture: str, path: str | None = None) -> tuple[bytes, str]:
    """The cubin, and what the assembler says of registers, spills and shared memory."""
    program = path or assembler()
    if program is None:
        raise CodegenError(
            "there is no `ptxas` here",
            span=None,
            fix="`pip install nvidia-cuda-nvcc`, put it on PATH, or name it in TESSERA_PTXAS",
        )
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        with open(source, "wb") as file:
            file.write(ptx)
        done = subprocess.run(
            [program, "-v", f"-arch={architecture}", source, "-o", target], capture_output=True, text=True, check=False
        )
        words = done.stderr + done.stdout
        check_words(words, done.returncode)
        with open(target, "rb") as file:
            return file.read(), words


def check_words(words: str, code: int) -> None:
    """Raises CodegenError (T0603) for what the assembler refuses, and for what it takes back."""
    if code:
        raise CodegenError(
            f"ptxas refused a kernel: {words.strip().splitlines()[0] if words.strip() else code}", span=None
        )
    for line in words.splitlines():
        if PROBLEM.search(line):
            raise CodegenError(f"ptxas undid what a kernel asks for: {line.strip()}", span=None)


_CUBIN, _PTX = 0, 1
_INFO, _INFO_SIZE, _ERROR, _ERROR_SIZE = 3, 4, 5, 6
_LOG = 16 << 10


def _assemble_by_driver(ptx: bytes) -> bytes:
    cuda = driver()
    info, error = ctypes.create_string_buffer(_LOG), ctypes.create_string_buffer(_LOG)
    options = (ctypes.c_int * 4)(_INFO, _INFO_SIZE, _ERROR, _ERROR_SIZE)
    values = (ctypes.c_void_p * 4)(ctypes.addressof(info), _LOG, ctypes.addressof(error), _LOG)
    state, cubin, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    cuda.call("cuLinkCreate_v2", 4, options, values, ctypes.byref(state))
    try:
        text = ctypes.c_char_p(ptx + b"\0")
        code = cuda.library.cuLinkAddData_v2(state, _PTX, text, ctypes.c_size_t(len(ptx) + 1), b"kernel", 0, None, None)
        if not code:
            code = cuda.library.cuLinkComplete(state, ctypes.byref(cubin), ctypes.byref(size))
        words = f"{error.value.decode(errors='replace')}{info.value.decode(errors='replace')}"
        check_words(words, code)
        return ctypes.string_at(cubin.value or 0, size.value)
    finally:
        cuda.library.cuLinkDestroy(state)
