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
// What runs is the parts of a kernel between its collectives.
// CHECK: error[T0108]: kernel `@asks` communicates by `ttile.all_reduce`, and what runs are the parts of it between its collectives
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 4]]:3
ttile.kernel @asks() attributes {symbols = [], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %r = ttile.all_reduce %t, %z {axis = "tp", size = [2], coords = ["i"], axes = ["i"], map = [i], bounds = [-1], shape = [8]} : (!ttile.tile<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
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
