"""RUN lines in process: `tessera-opt` and `filecheck` as functions joined by pipes, some 600 ms a line less."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from filecheck.parser import Parser

from tessera.cli import opt

RUN = re.compile(r"^\s*//\s*RUN:\s*(.*?)\s*$", re.MULTILINE)


class LitError(Exception):
    """A RUN line did not do what it says; the text shows why."""


@dataclass(frozen=True)
class Outcome:
    """What one command of a pipe left behind."""

    status: int
    output: str
    errors: str


def run_lines(text: str) -> list[str]:
    """The commands of a test, lines ending in a backslash joined."""
    return [line for line in "\n".join(RUN.findall(text)).replace("\\\n", " ").split("\n") if line.strip()]


def run_file(path: Path) -> None:
    """Run all RUN lines of a test; raises LitError at the first that fails."""
    lines = run_lines(path.read_text())
    if not lines:
        raise LitError(f"{path} has no RUN line")
    for line in lines:
        run_line(line, path)


def run_line(line: str, path: Path) -> None:
    """Run one pipe; its last command must succeed, and so must every other unless it stands behind `not`."""
    flowing = ""
    for command in line.split("|"):
        words = [word.replace("%s", str(path)) for word in shlex.split(command)]
        expected_failure = words[0] == "not"
        words = words[1:] if expected_failure else words
        merged = "2>&1" in words
        outcome = _run([word for word in words if word != "2>&1"], flowing)
        if (outcome.status != 0) != expected_failure:
            said = f"ended with status {outcome.status}"
            raise LitError(f"{line}\n`{shlex.join(words)}` {said}\n{outcome.errors}\n{outcome.output}")
        flowing = outcome.errors + outcome.output if merged else outcome.output


def _run(words: list[str], flowing: str) -> Outcome:
    if words[0] == "tessera-opt":
        output, errors = io.StringIO(), io.StringIO()
        status = opt.run(words[1:], io.StringIO(flowing), output, errors)
        return Outcome(status, output.getvalue(), errors.getvalue())
    if words[0] == "filecheck":
        return _filecheck(words, flowing)
    raise LitError(f"`{words[0]}` is no command of a RUN line; there are tessera-opt, filecheck and not")


def _filecheck(words: list[str], flowing: str) -> Outcome:
    options = parse_argv_options(list(words))
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
        status = Matcher(options, FInput("<pipe>", flowing), Parser.from_opts(options)).run()
    return Outcome(status, "", errors.getvalue())
