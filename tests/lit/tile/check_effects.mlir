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
// -----
// Floats that are added in the order in which programs come: another sum at every run.
// CHECK: error[T0208]: kernel `@any_order` is `tessera.deterministic`, and `ttile.store` adds f32 atomically: the order of additions differs from run to run
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 5]]:3
// CHECK: = help: let one program own each cell, or add integers
ttile.kernel @any_order(%x: !ttile.buffer<[1], f32>) attributes {symbols = ["N"], grid = [N], writes = [0], tessera.deterministic = true} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 1} : () -> !ttile.tile<[], f32>
  ttile.store %t, %x, %z {coords = ["i"], axes = [], map = [i], bounds = [], mode = "atomic_add"} : (!ttile.tile<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Integers have one sum in any order, and whoever promises nothing may have another.
// CHECK-NOT: error
// CHECK-LABEL: ttile.kernel @integers(
ttile.kernel @integers(%x: !ttile.buffer<[1], i32>) attributes {symbols = ["N"], grid = [N], writes = [0], tessera.deterministic = true} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 1} : () -> !ttile.tile<[], i32>
  ttile.store %t, %x, %z {coords = ["i"], axes = [], map = [i], bounds = [], mode = "atomic_add"} : (!ttile.tile<[], i32>, !ttile.buffer<[1], i32>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK-LABEL: ttile.kernel @free(
ttile.kernel @free(%x: !ttile.buffer<[1], f32>) attributes {symbols = ["N"], grid = [N], writes = [0]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 1} : () -> !ttile.tile<[], f32>
  ttile.store %t, %x, %z {coords = ["i"], axes = [], map = [i], bounds = [], mode = "atomic_add"} : (!ttile.tile<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
  ttile.return
}
