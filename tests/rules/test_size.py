"""No package outgrows its budget of code lines by accident."""

from __future__ import annotations

from scripts import size


def test_no_package_outgrows_its_budget() -> None:
    allowed = size.budgets()
    found = {package: one.code for package, one in size.measure_all(size.read_tree()).items()}
    advice = [
        f"{package} has {code} code lines of {allowed.get(package, 0)}: cut some, or raise it on purpose in "
        f"scripts/budgets.toml to {size.with_headroom(code)} and say why in the commit"
        for package, code in found.items()
        if code > allowed.get(package, 0)
    ]
    assert not advice, "\n".join(advice)


def test_a_budget_leaves_room_for_a_change_or_two() -> None:
    assert [size.with_headroom(code) for code in (0, 1, 82, 473, 13_000)] == [0, 50, 100, 500, 13_300]


def test_code_lines_are_neither_blank_nor_comment_nor_docstring() -> None:
    lines = ['"""Docstring', "", 'of two."""', "", "# A comment.", "x = 1  # beside", '"""What x is."""', ""]
    lines += ["def f():", '    """Does."""', "    return (", "        x", "    )", ""]
    assert size.measure("\n".join(lines)) == size.Size(files=1, code=5, comments=2)
