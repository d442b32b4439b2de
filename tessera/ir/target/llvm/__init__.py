"""LLVM IR as text: modules, instructions, conversions and vector mathematics that every backend writes with."""
