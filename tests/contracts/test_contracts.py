"""The table of contracts: complete, true, and every promise in it really refused by the verifier that it names."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from scripts.contracts import PAGE, Contract, complaints, read_table, render
from tessera.diagnostics.codes import all_codes
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.passes import check_entry, find_pass, parse_pipeline, pass_modules
from tessera.ir.base.text import parse_module
from tests.diagnostics.test_pages import Page
from tests.diagnostics.test_pages import run as run_page
from tests.errors.test_programs import SECTION
from tests.errors.test_programs import run as run_program

CONTRACTS = read_table()
ROOMS = {"graph": "graph", "schedule": "schedule", "tile": "tile", "target": "target"}


def frames(error: BaseException) -> Iterator[CodeType]:
    """The code of every call on the way to an error, and to those that it came from."""
    seen: BaseException | None = error
    while seen is not None:
        for frame, _ in traceback.walk_tb(seen.__traceback__):
            yield frame.f_code
        seen = seen.__context__


def ir_of(contract: Contract) -> tuple[str, str]:
    """The part of a file of IR that has the contract's symbol, and the options of the pass."""
    _, _, rest = contract.failing.partition("@")
    symbol, brace, options = rest.partition("{")
    parts = contract.file.read_text(encoding="utf-8").split("// -----")
    found = [part for part in parts if f"@{symbol}(" in part.replace(f"`@{symbol}", "")]
    assert len(found) == 1, f"{contract.failing}: {len(found)} parts have the symbol"
    return found[0], brace + options


def break_promise(contract: Contract, folder: Path) -> None:
    """Run the program that must be refused."""
    if contract.file.suffix == ".mlir":
        text, options = ir_of(contract)
        module = parse_module(text)
        check_entry(contract.level, module)  # where a pass is the verifier, it is the first that finds anything
        name = next(name for name, path in pass_modules().items() if contract.function.__module__ == path)
        (one,) = parse_pipeline(name + options)
        one.run(module)
    elif "#" in contract.failing:
        whole, section = contract.file.read_text(encoding="utf-8"), contract.failing.partition("#")[2]
        (program,) = [match["program"] for match in SECTION.finditer(whole) if match["name"] == section]
        run_program(program, folder)
    else:
        run_page(Page.read(contract.file.stem).fails, folder)


@pytest.fixture
def kept_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("kept_environment")
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.promise)
def test_a_broken_promise_is_refused_by_its_verifier(
    contract: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESSERA_FULL_TRACEBACK", "1")  # the verifier's own frames are what is looked for
    with pytest.raises(TesseraError) as caught:
        break_promise(contract, tmp_path)
    assert caught.value.code == contract.code, str(caught.value)
    verifier = inspect.unwrap(contract.function).__code__
    met = list(dict.fromkeys(code.co_qualname for code in frames(caught.value)))
    assert verifier in frames(caught.value), f"{contract.verifier} was not asked; {', '.join(met[-8:])} were"


def test_the_table_is_in_order_and_the_page_is_made_from_it() -> None:
    assert complaints(CONTRACTS) == []
    assert PAGE.read_text(encoding="utf-8") == render(CONTRACTS), "run scripts/contracts.py"


def test_every_error_is_the_error_of_a_contract() -> None:
    assert sorted({contract.code for contract in CONTRACTS}) == list(all_codes())


def test_every_pass_that_checks_is_the_verifier_of_a_contract() -> None:
    checks = {path for name, path in pass_modules().items() if "-check-" in name}
    assert checks == {contract.function.__module__ for contract in CONTRACTS if contract.function.__module__ in checks}


def test_a_pass_checks_at_the_level_of_its_room() -> None:
    """A promise that a later room checks again is not thereby one of that room."""
    for contract in CONTRACTS:
        room = contract.verifier.split(".")[1] if contract.verifier.startswith("ir.") else ""
        if ".passes." in contract.verifier and room in ROOMS:
            assert contract.level == room, contract.promise
            assert find_pass(f"{room}-{contract.verifier.split(':')[0].split('.')[-1]}".replace("_", "-"))


def test_a_wrong_table_is_complained_about() -> None:
    first, *_, last = CONTRACTS
    assert complaints([last, first]) == ["the levels are out of order"]
    assert complaints([first, first]) == [f"said twice: {first.promise}"]
    gone = Contract("trace", "p", "types.shape:gone", "T0101", "docs/errors/T9999.md")
    assert [line.split(":")[1] for line in complaints([gone])] == [" no such verifier", " no such file"]
    assert complaints([Contract("later", "p", "types.shape:broadcast", "T0101", "docs/errors/T0101.md")]) == [
        "no such level: later"
    ]
