"""Classes of the `tsched` ops with typed accessors; `scripts/typed_ops.py` writes their declarations, `typed_ops.pyi`.

A class is made when it is first imported from here. The files of `ops/` import this one for type checking alone, since
the classes are made from what they declare.
"""

from tessera.ir.base.dialect_of import class_lookup
from tessera.ir.schedule.dialect import DIALECT

__getattr__ = class_lookup(DIALECT.dialect, globals())
