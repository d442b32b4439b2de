"""Compilers of C, which nothing needs: hidden from every test, so that the suite itself shows it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "clang++", "tcc")
"""Nothing needs a compiler of C: in tests each of these is a command that fails, whatever the machine has."""


def hide_compilers() -> str:
    """Put a folder before all others in which every compiler of C is a command that says no; gives the folder."""
    folder = tempfile.mkdtemp(prefix="tessera-test-compilers-")
    for name in COMPILERS:
        command = Path(folder, name)
        command.write_text(f'#!/bin/sh\necho "{name} was called, and Tessera needs no compiler of C" >&2\nexit 127\n')
        command.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([folder, os.environ.get("PATH", "")])
    for variable in ("CC", "CXX"):
        os.environ.pop(variable, None)
    return folder
