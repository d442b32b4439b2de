"""Print the LLVM text of a case, normalized as it is hashed, or as it is.

    python -m tests.replay.show "matmul/nt bf16 symbolic" gpu-sm_90a [--names]

Without a case it lists all; with one and no machine, the machines that the case is for.
"""

from __future__ import annotations

import argparse

from tests.replay.cases import FAMILIES, cases_of
from tests.replay.lowering import MACHINES, lowered_texts
from tests.replay.normalize import normalize


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", help="a family and a case in it, as `matmul/batched`")
    parser.add_argument("machine", nargs="?", choices=tuple(MACHINES))
    parser.add_argument("--names", action="store_true", help="leave names and comments as they are")
    asked = parser.parse_args()
    if asked.case is None:
        print("\n".join(f"{family}/{name}" for family in FAMILIES for name in cases_of(family)))
        return
    family, _, name = asked.case.partition("/")
    if family not in FAMILIES or name not in cases_of(family):
        parser.error(f"there is no case `{asked.case}`; without arguments all are listed")
    case = cases_of(family)[name]
    if asked.machine is None:
        print("\n".join(case.machines))
        return
    texts = lowered_texts(case, asked.machine)
    print("\n".join(texts) if asked.names else normalize(texts))


if __name__ == "__main__":
    main()
