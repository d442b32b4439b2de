// RUN: not tessera-opt %s --split -p tile-check-bounds 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split -p 'tile-check-bounds{strict = true}' 2>&1 | filecheck %s --check-prefix=STRICT

// The last tile is cut short by its bound: nothing to say.
// CHECK-NOT: `@ragged`
// STRICT-NOT: `@ragged`
ttile.kernel @ragged(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [(N + 7) floordiv 8], writes = [0]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = p * 8} : (!ttile.index) -> !ttile.index
  %t = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.store %t, %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.tile<[8], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Without the bound it reads on; the note gives the smallest sizes that show it.
// CHECK: error[T0502]: `@unbounded` reads dim 0 at `i`, which leaves 0..N - 1
// CHECK-NEXT: check_bounds.mlir:[[# @LINE + 6]]:3
// CHECK: note: index 7 at element [7] of the tile, in program [0], N = 7
// STRICT: error[T0502]: `@unbounded` reads dim 0
ttile.kernel @unbounded(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [(N + 7) floordiv 8], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = p * 8} : (!ttile.index) -> !ttile.index
  %t = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// A loop that runs one step too far.
// CHECK: error[T0502]: `@late` writes dim 1 at `j + 1`, which leaves 0..3
// CHECK: note: index 4 at element [] of the tile, in program [0], M = 1
ttile.kernel @late(%x: !ttile.buffer<[M, 4], i32>) attributes {symbols = ["M"], grid = [M], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 4} : () -> !ttile.index
  ttile.for %low, %high {step = 1} ({
  ^bb0(%j: !ttile.index):
    %one = ttile.constant {value = 1} : () -> !ttile.tile<[], i32>
    ttile.store %one, %x, %i, %j {coords = ["i", "j"], axes = [], map = [i, j + 1], bounds = []} : (!ttile.tile<[], i32>, !ttile.buffer<[M, 4], i32>, !ttile.index, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// What an index tile holds is not known here; only a strict check asks for a window.
// CHECK-NOT: `@read_index`
// STRICT: error[T0502]: `@read_index` reads dim 0 at `t0`, and nothing proves that it stays in 0..N - 1
// STRICT: help: bound the axis, or give the access a window
ttile.kernel @read_index(%x: !ttile.buffer<[N], f32>, %at: !ttile.buffer<[8], i64>) attributes {symbols = ["N"], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %a = ttile.load %at, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[8], i64>, !ttile.index) -> !ttile.tile<[8], i64>
  %t = ttile.load %x, %z, %a {coords = ["i"], axes = ["i"], map = [t0], bounds = [-1], windows = [t0, N]} : (!ttile.buffer<[N], f32>, !ttile.index, !ttile.tile<[8], i64>) -> !ttile.tile<[8], f32>
  %u = ttile.load %x, %z, %a {coords = ["i"], axes = ["i"], map = [t0], bounds = [-1]} : (!ttile.buffer<[N], f32>, !ttile.index, !ttile.tile<[8], i64>) -> !ttile.tile<[8], f32>
  ttile.return
}
