// RUN: not tessera-opt %s --split -p target-check-effects 2>&1 | filecheck %s

// Kernels draw, and write what they are given.
// CHECK-NOT: `@draws` declares
ttarget.kernel @draws() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0, tessera.effects = ["memory", "random"]} {
  ttarget.return
}
// -----
// CHECK: error[T0108]: kernel `@speaks` declares {io}, and a kernel cannot have {io}
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 2]]:1
// CHECK: = help: effects on the outside world, other ranks or a state belong in the host program
ttarget.kernel @speaks() attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0, tessera.effects = ["io"]} {
  ttarget.return
}
