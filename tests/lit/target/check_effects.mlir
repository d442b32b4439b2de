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
// -----
// Floats that are added in the order in which programs come: another sum at every run.
// CHECK: error[T0208]: kernel `@any_order` is `tessera.deterministic`, and `ttarget.store` adds f32 atomically: the order of additions differs from run to run
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 7]]:5
// CHECK: = help: let one program own each cell, or add integers
ttarget.kernel @any_order(%x: !ttile.buffer<[1], f32>) attributes {symbols = ["N"], writes = [0], lanes = 8, features = ["avx2"], scratch = 0, tessera.deterministic = true} {
  ttarget.programs {grid = [N]} ({
  ^bb0(%p: !ttile.index):
    %z = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %t = ttarget.constant {value = 1} : () -> !ttarget.vector<[], f32>
    ttarget.store %t, %x, %z {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4, mode = "atomic_add"} : (!ttarget.vector<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Integers have one sum in any order, and whoever promises nothing may have another.
// CHECK-NOT: error
// CHECK-LABEL: ttarget.kernel @integers(
ttarget.kernel @integers(%x: !ttile.buffer<[1], i32>) attributes {symbols = ["N"], writes = [0], lanes = 8, features = ["avx2"], scratch = 0, tessera.deterministic = true} {
  ttarget.programs {grid = [N]} ({
  ^bb0(%p: !ttile.index):
    %z = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %t = ttarget.constant {value = 1} : () -> !ttarget.vector<[], i32>
    ttarget.store %t, %x, %z {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4, mode = "atomic_add"} : (!ttarget.vector<[], i32>, !ttile.buffer<[1], i32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @free(
ttarget.kernel @free(%x: !ttile.buffer<[1], f32>) attributes {symbols = ["N"], writes = [0], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = [N]} ({
  ^bb0(%p: !ttile.index):
    %z = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %t = ttarget.constant {value = 1} : () -> !ttarget.vector<[], f32>
    ttarget.store %t, %x, %z {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4, mode = "atomic_add"} : (!ttarget.vector<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
