// RUN: not tessera-opt %s --split -p tile-check-effects 2>&1 | filecheck %s

// Kernels draw, and write what they are given.
// CHECK-NOT: `@draws` declares
ttile.kernel @draws() attributes {symbols = ["N"], grid = [N], writes = [], tessera.effects = ["memory", "random"]} {
  ttile.return
}
// -----
// CHECK: error[T0108]: kernel `@speaks` declares {io}, and a kernel cannot have {io}
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 2]]:1
// CHECK: = help: effects on the outside world, other ranks or a state belong in the host program
ttile.kernel @speaks() attributes {symbols = ["N"], grid = [N], writes = [], tessera.effects = ["io"]} {
  ttile.return
}
