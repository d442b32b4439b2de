"""What a failed compilation leaves behind: a script that holds the whole program and compiles it again."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tessera.compiler.options import Options
from tessera.diagnostics.codes import CodegenError
from tessera.diagnostics.error import InternalError, TesseraError
from tessera.ir.base.reproducer import write_reproducer
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import print_module
from tessera.ir.graph.from_tape import from_tape


@contextmanager
def leaving_a_script(tape: Tape, options: Options) -> Generator[None]:
    """Within it, a failure that is not the user's names a script that shows it again."""
    try:
        yield
    except CodegenError as error:
        note = f"{write_script(tape, options, error.message)} compiles the whole program again"
        raise CodegenError(error.message, span=error.span, notes=(*error.notes, note), fix=error.fix) from error
    except TesseraError:
        raise
    except InternalError as error:
        error.script = error.script or write_script(tape, options, error.message)
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        script = write_script(tape, options, message)
        raise InternalError(message, where="compiler", script=script, command=f"python {script}") from error


def write_script(tape: Tape, options: Options, message: str) -> str:
    """The path of a script that needs nothing but Tessera: the program as Graph IR, its options, and the call."""
    graph = print_module(from_tape(tape))
    first = message.splitlines()[0] if message else "unknown"
    text = (
        f'"""Compiles a program that failed with: {_quoted(first)}"""\n\n'
        "from tessera.compiler.replay import replay\n\n"
        f"OPTIONS = {options.text!r}\n"
        f"GRAPH = {_literal(graph)}\n\n"
        "replay(GRAPH, OPTIONS)\n"
    )
    return str(write_reproducer("compile", ".py", text))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")


def _literal(text: str) -> str:
    """A string of several lines as Python source that reads like the text."""
    return repr(text) if '"""' in text or "\\" in text else f'"""\\\n{text}"""'
