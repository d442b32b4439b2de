"""PTX to machine code: by `ptxas` where there is one, else by the driver; kept in the store beside everything else."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache

from tessera.diagnostics.codes import CodegenError
from tessera.runtime.cache import Store, default_store, key_of
from tessera.runtime.devices.cuda.driver import driver

PROBLEM = re.compile(r"\(C75\d\d\)|warning\s*:.*C75\d\d|C75\d\d")
"""What the assembler calls an advisory, and what costs half of the speed: wgmma serialized, setmaxnreg ignored."""

_ELF = b"\x7fELF"


@cache
def assembler() -> str | None:
    """Where `ptxas` is, or None."""
    return os.environ.get("TESSERA_PTXAS") or shutil.which("ptxas")


@cache
def _assembler_version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


def machine_code(ptx: bytes, architecture: str, store: Store | None = None) -> bytes:
    """The cubin of a PTX text, from the store where it was made before; a cubin itself is left as it is.

    Raises CodegenError (T0603) where the assembler refuses the text, or says that it undid what the text asks for.
    """
    if ptx.startswith(_ELF):
        return ptx
    kept = store or default_store()
    path = assembler()
    maker = _assembler_version(path) if path else f"driver {driver().version}"
    key = key_of("cubin", architecture, maker, ptx)
    found = kept.get(key)
    if found is None:
        found = assemble(ptx, architecture, path) if path else _assemble_by_driver(ptx)
        kept.put(key, found)
    return found


def assemble(ptx: bytes, architecture: str, path: str | None = None) -> bytes:
    """The cubin that `ptxas` makes."""
    return assemble_with_words(ptx, architecture, path)[0]


def assemble_with_words(ptx: bytes, architecture: str, path: str | None = None) -> tuple[bytes, str]:
    """The cubin, and what the assembler says of registers, spills and shared memory."""
    program = path or assembler()
    if program is None:
        raise CodegenError("there is no `ptxas` here", span=None, fix="put it on PATH, or name it in TESSERA_PTXAS")
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
