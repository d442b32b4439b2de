"""Classes of the `ttarget` ops of NVIDIA GPUs with typed accessors; `scripts/typed_ops.py` writes `typed_ops.pyi`.

A class is made when it is first imported from here. The files of `ops/` import this one for type checking alone, since
the classes are made from what they declare.
"""

from tessera.backends.nvptx.dialect import DIALECT
from tessera.ir.base.dialect_of import class_lookup

__getattr__ = class_lookup(DIALECT.dialect, globals())
