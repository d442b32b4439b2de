"""`tessera-opt`: reads IR, runs passes by name, prints IR; the tool behind every lit test and every reproducer."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TextIO

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.error import InternalError, TesseraError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.passes import STAGE_OF_DIALECT, Pass, Stages, check_entry, find_pass, parse_pipeline, pass_modules
from tessera.ir.base.text import parse_module, print_module

ALIASES = {
    "pm-v1_1-legalize": "graph-canonicalize,graph-decompose,graph-canonicalize,graph-eliminate-common",
    "pm-v1_1-verify": "graph-check-rules,graph-check-effects,graph-check-policy",
    **{name: f"graph-{name}" for name in ("jvp", "vjp", "linearize", "vmap")},
}
"""Pipelines with a name of their own: `-pm-v1_1-verify` runs all checks of Graph IR that texts may fail, and `--vjp`
makes adjoints."""

_SPLIT = "// -----"
OK, USER_ERROR, USAGE, INTERNAL = 0, 1, 2, 3


class UsageError(Exception):
    """The command line is not one of ours."""


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise UsageError(message)


def _parser() -> _Arguments:
    aliases = "\n".join(f"  -{name}\n      same as -p {text}" for name, text in ALIASES.items())
    parser = _Arguments(
        prog="tessera-opt",
        description="Read a module of Tessera IR, verify it, run passes over it, and print it.",
        epilog="A pass may also be a flag of its own: -graph-canonicalize, --vjp{argnums = [0]}.\n"
        "Options of a pass stand in braces; --list shows them.\n\n"
        f"aliases:\n{aliases}\n\n"
        "exit status: 0 all is well, 1 the module is wrong, 2 the command line is wrong, 3 a pass failed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,  # which would print to the process's own output, and leave
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this text")
    parser.add_argument("file", nargs="?", default="-", help="the module; standard input when left out or `-`")
    parser.add_argument("-p", "--passes", action="append", default=[], metavar="A,B{option = 1}", help="passes to run")
    parser.add_argument("-o", "--output", metavar="FILE", help="write here instead of to standard output")
    parser.add_argument("--list", action="store_true", help="list all passes and what they do")
    parser.add_argument("--verify", action="store_true", help="verify (after every pass) and print nothing")
    parser.add_argument("--print-generic", action="store_true", help="print the generic form, which MLIR tools read")
    parser.add_argument("--print-locations", action="store_true", help="print the source of every op")
    parser.add_argument("--split", action="store_true", help=f"treat what stands between lines of `{_SPLIT}` as a file")
    return parser


def run(arguments: Sequence[str], stdin: TextIO, stdout: TextIO, stderr: TextIO) -> int:
    """The whole tool on given streams; the exit status."""
    try:
        options = _parser().parse_args(_without_flags(arguments))
        if options.help or options.list:
            stdout.write(_parser().format_help() if options.help else _listing())
            return OK
        text, name = _input(options.file, stdin)
        passes = _passes(options.passes)
    except UsageError as error:
        stderr.write(f"tessera-opt: {error}\n")
        return USAGE
    load_dialects()
    status, output = OK, ""
    for part, first_line in _parts(text, options.split):
        # Blank lines in front keep the numbers of the lines as they are in the file.
        code, printed = _one("\n" * first_line + part, name, passes, options, stderr)
        status = max(status, code)
        output += (f"{_SPLIT}\n" if output else "") + printed
    if options.output:
        try:
            Path(options.output).write_text(output, encoding="utf-8")
        except OSError as error:
            stderr.write(f"tessera-opt: cannot write {options.output}: {error.strerror}\n")
            return USAGE
    else:
        stdout.write(output)
    return status


def _one(text: str, name: str, passes: Sequence[Pass], options: argparse.Namespace, stderr: TextIO) -> tuple[int, str]:
    try:
        module = parse_module(text, name)
        stage = _stage(module)
        check_entry(stage, module)
        stages = Stages(reads_text=True)
        stages.run(stage, passes, module)
        stages.finish()
        if options.verify:
            return OK, ""
        return OK, print_module(module, generic=options.print_generic, locations=options.print_locations)
    except TesseraError as error:
        stderr.write(f"{error.render()}\n")
        return USER_ERROR, ""
    except InternalError as error:
        stderr.write(f"{error}\n")
        return INTERNAL, ""


def _without_flags(arguments: Sequence[str]) -> list[str]:
    """The arguments with `-name` and `--name{option = 1}` of passes and aliases rewritten to `-p name{...}`."""
    found: list[str] = []
    known = pass_modules().keys() | ALIASES.keys()
    for argument in arguments:
        text = argument.lstrip("-")
        found += ["-p", text] if argument.startswith("-") and text.partition("{")[0].strip() in known else [argument]
    return found


def _passes(texts: Sequence[str]) -> list[Pass]:
    names = [text.strip().partition("{") for text in texts if text.strip()]
    expanded = [ALIASES.get(name.strip(), name) + brace + options for name, brace, options in names]
    try:
        return [one for text in expanded for one in parse_pipeline(text)]
    except (KeyError, ValueError) as error:
        raise UsageError(error.args[0]) from error


def _input(file: str, stdin: TextIO) -> tuple[str, str]:
    name = "<stdin>" if file == "-" else file
    try:
        text = stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        text.encode("utf-8")  # standard input may let bytes through that are no text, in disguise
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        unit = "byte" if isinstance(error, UnicodeDecodeError) else "character"
        raise UsageError(f"cannot read {name}: it is no text in UTF-8, at {unit} {error.start}") from error
    return text, name


def _parts(text: str, split: bool) -> list[tuple[str, int]]:
    """The modules of a text and how many lines stand before each."""
    if not split:
        return [(text, 0)]
    found: list[tuple[str, int]] = []
    lines = 0
    for part in text.split(f"{_SPLIT}\n"):
        found.append((part, lines))
        lines += part.count("\n") + 1
    return found


def _stage(module: ModuleOp) -> str:
    first = module.body.blocks[0].first_op if module.body.blocks else None
    return STAGE_OF_DIALECT.get(first.name.split(".", 1)[0], "graph") if first is not None else "graph"


def _listing() -> str:
    lines: list[str] = []
    for name in pass_modules():
        summary = (find_pass(name).__doc__ or "").strip().split("\n")[0]
        lines.append(f"{name:32} {summary}\n")
        options = [one.name for one in fields(find_pass(name)) if one.default is not MISSING]
        lines += [f"{'':32}   options: {', '.join(options)}\n"] if options else []
    lines += [f"{'-' + name:32} {text}\n" for name, text in ALIASES.items()]
    return "".join(lines)


def main() -> None:
    """The command; a reader that goes away, such as `head`, ends it as it ends other commands of a pipe."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(run(sys.argv[1:], sys.stdin, sys.stdout, sys.stderr))


if __name__ == "__main__":
    main()
