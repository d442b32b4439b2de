// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A kernel works on memory, not on tensors.
// CHECK: error[T0501]: argument 0 of `@tensor` is !tgraph.tensor<[N], f32>, not a buffer
ttile.kernel @tensor(%x: !tgraph.tensor<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  ttile.return
}
// -----
// CHECK: error[T0501]: `writes` names arguments 0..0, got [1]
ttile.kernel @writes(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = [1]} {
  ttile.return
}
// -----
// CHECK: error[T0501]: the grid uses ['M'], and the kernel's sizes are ['N']
ttile.kernel @grid(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [M], writes = []} {
  ttile.return
}
// -----
// CHECK: error[T0501]: the grid has 1 axes, got axis 1
// CHECK-NEXT: ops_invalid.mlir:[[# @LINE + 2]]:3
ttile.kernel @axis() attributes {symbols = ["N"], grid = [N], writes = []} {
  %0 = ttile.program_id {axis = 1} : () -> !ttile.index
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.load` has a map of 1 expressions into a buffer of rank 2
ttile.kernel @map(%x: !ttile.buffer<[N, 4], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.buffer<[N, 4], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.load` names 2 indices and has 1
ttile.kernel @coords(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i", "j"], axes = [], map = [i], bounds = []} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.load` has axes ['i'] for a tile of rank 2; each must be in ['i']
// CHECK: error[T0501]: `ttile.load` has 0 bounds for 1 axes
ttile.kernel @axes(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[2, 4], f32>
  ttile.return
}
// -----
ttile.kernel @bounds(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = []} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.store` moves f32 and the buffer holds bf16
// CHECK: help: cast the tile first
ttile.kernel @dtype(%x: !ttile.buffer<[N], bf16>) attributes {symbols = ["N"], grid = [N], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[], f32>
  ttile.store %0, %x, %i {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[N], bf16>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: an index tile of `ttile.load` is !ttile.tile<[4], f32>, not integers of shape [4]
ttile.kernel @index_tile(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  %0 = ttile.load %x, %i, %t {coords = ["i"], axes = ["i"], map = [t0], bounds = [-1]} : (!ttile.buffer<[N], f32>, !ttile.index, !ttile.tile<[4], f32>) -> !ttile.tile<[4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: a tile has static sizes, got [N]
ttile.kernel @static(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[N], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: there is no elementwise function `cbrt`
ttile.kernel @function() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  %1 = ttile.elementwise %0 {fn = "cbrt"} : (!ttile.tile<[4], f32>) -> !ttile.tile<[4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `exp` does not compute in bf16
// CHECK: help: cast to f32 first
ttile.kernel @narrow() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], bf16>
  %1 = ttile.elementwise %0 {fn = "exp"} : (!ttile.tile<[4], bf16>) -> !ttile.tile<[4], bf16>
  ttile.return
}
// -----
// CHECK: error[T0501]: `lt` of f32 gives bool, not f32
ttile.kernel @predicate() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  %1 = ttile.elementwise %0, %0 {fn = "lt"} : (!ttile.tile<[4], f32>, !ttile.tile<[4], f32>) -> !ttile.tile<[4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: the reduced axis must have elements, got 0
ttile.kernel @fold() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[0], f32>
  %1 = ttile.reduce %0 {kind = "sum", axis = 0} : (!ttile.tile<[0], f32>) -> !ttile.tile<[], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.dot` multiplies [M, K] by [K, N], got [2, 4] by [2, 4]
ttile.kernel @dot() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[2, 4], f32>
  %1 = ttile.constant {value = 1.0} : () -> !ttile.tile<[2, 4], f32>
  %2 = ttile.dot %0, %1, %0 : (!ttile.tile<[2, 4], f32>, !ttile.tile<[2, 4], f32>, !ttile.tile<[2, 4], f32>) -> !ttile.tile<[2, 4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: the body of a loop yields what it carries
ttile.kernel @loop() attributes {symbols = [], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  %1 = ttile.for %z, %z, %0 {step = 1} ({
  ^bb0(%i: !ttile.index, %t: !ttile.tile<[4], f32>):
    ttile.yield
  }) : (!ttile.index, !ttile.index, !ttile.tile<[4], f32>) -> !ttile.tile<[4], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.fetch` reads a buffer of integers, got !ttile.buffer<[N], f32>
ttile.kernel @fetch(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = []} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %r = ttile.fetch %x, %i {coords = ["i"], map = [i]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.index
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.sort` does not compare bf16
// CHECK: help: cast the keys to f32 first
ttile.kernel @sort() attributes {symbols = ["N"], grid = [], writes = []} {
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %0 = ttile.scratch : () -> !ttile.buffer<[N], bf16>
  %1 = ttile.scratch : () -> !ttile.buffer<[N], i64>
  ttile.sort %0, %1, %0, %1, %n : (!ttile.buffer<[N], bf16>, !ttile.buffer<[N], i64>, !ttile.buffer<[N], bf16>, !ttile.buffer<[N], i64>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `space` is one of private, shared, got global
ttile.kernel @space() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.scratch {space = "global"} : () -> !ttile.buffer<[8], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: a program has its shared memory once, and this stands in a loop
// CHECK: help: move it before the loop
ttile.kernel @again() attributes {symbols = ["N"], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %n {step = 1} ({
  ^bb0(%i: !ttile.index):
    %0 = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: a loop carries tiles, not memory
// CHECK: help: give the buffer a dim more, and index it by the step
ttile.kernel @swap() attributes {symbols = ["N"], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %0 = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %1 = ttile.for %z, %n, %0 {step = 1} ({
  ^bb0(%i: !ttile.index, %b: !ttile.buffer<[8], f32>):
    ttile.yield %b : (!ttile.buffer<[8], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.buffer<[8], f32>) -> !ttile.buffer<[8], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.sort` works in the memory of one worker
// CHECK: help: give it private scratch
ttile.kernel @sort_shared() attributes {symbols = ["N"], grid = [], writes = []} {
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %0 = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[N], f32>
  %1 = ttile.scratch : () -> !ttile.buffer<[N], i64>
  %2 = ttile.scratch : () -> !ttile.buffer<[N], f32>
  %3 = ttile.scratch : () -> !ttile.buffer<[N], i64>
  ttile.sort %0, %1, %2, %3, %n : (!ttile.buffer<[N], f32>, !ttile.buffer<[N], i64>, !ttile.buffer<[N], f32>, !ttile.buffer<[N], i64>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.tree` does not compute in bf16
// CHECK: help: keep lines in f32
ttile.kernel @tree() attributes {symbols = ["N"], grid = [], writes = []} {
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %0 = ttile.scratch : () -> !ttile.buffer<[N, 8], bf16>
  ttile.tree %0, %n {kind = "sum"} : (!ttile.buffer<[N, 8], bf16>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.tree` works in the memory of one worker
// CHECK: help: give it private scratch
ttile.kernel @tree_shared() attributes {symbols = ["N"], grid = [], writes = []} {
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %0 = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[N, 8], f32>
  ttile.tree %0, %n {kind = "sum"} : (!ttile.buffer<[N, 8], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: atomics take f32, f64, i32, i64, u32, u64, got bf16
// CHECK: help: cast the tile, and the buffer, first
ttile.kernel @narrow_atomic(%y: !ttile.buffer<[1], bf16>) attributes {symbols = [], grid = [], writes = [0]} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[], bf16>
  ttile.store %0, %y {coords = [], axes = [], map = [0], bounds = [], mode = "atomic_add"} : (!ttile.tile<[], bf16>, !ttile.buffer<[1], bf16>) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `prefetch` counts steps ahead, got -1
ttile.kernel @behind() attributes {symbols = ["N"], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %n {step = 8, prefetch = -1} ({
  ^bb0(%i: !ttile.index):
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.softmax` is computed in f32 or f64, got bf16
// CHECK: help: cast the tile to f32 first
ttile.kernel @narrow_softmax() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[4, 8], bf16>
  %1 = ttile.softmax %0 : (!ttile.tile<[4, 8], bf16>) -> !ttile.tile<[4, 8], bf16>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.softmax` is of rows that have elements, got !ttile.tile<[8], f32>
ttile.kernel @flat_softmax() attributes {symbols = [], grid = [], writes = []} {
  %0 = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %1 = ttile.softmax %0 : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.attend` takes scores [M, N] and values [N, D], got [4, 8] and [9, 16]
ttile.kernel @other_keys() attributes {symbols = [], grid = [], writes = []} {
  %s = ttile.constant {value = 3.0} : () -> !ttile.tile<[4, 8], f32>
  %v = ttile.constant {value = 1.0} : () -> !ttile.tile<[9, 16], f32>
  %acc = ttile.constant {value = 0.0} : () -> !ttile.tile<[4, 16], f32>
  %top = ttile.constant {value = 0.0} : () -> !ttile.tile<[4], f32>
  %a, %b, %c = ttile.attend %s, %v, %acc, %top, %top : (!ttile.tile<[4, 8], f32>, !ttile.tile<[9, 16], f32>, !ttile.tile<[4, 16], f32>, !ttile.tile<[4], f32>, !ttile.tile<[4], f32>) -> (!ttile.tile<[4, 16], f32>, !ttile.tile<[4], f32>, !ttile.tile<[4], f32>)
  ttile.return
}
// -----
// CHECK: error[T0501]: maxima and sums must be [4], got [5] and [4]
ttile.kernel @other_rows() attributes {symbols = [], grid = [], writes = []} {
  %s = ttile.constant {value = 3.0} : () -> !ttile.tile<[4, 8], f32>
  %v = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %acc = ttile.constant {value = 0.0} : () -> !ttile.tile<[4, 16], f32>
  %top = ttile.constant {value = 0.0} : () -> !ttile.tile<[5], f32>
  %sum = ttile.constant {value = 0.0} : () -> !ttile.tile<[4], f32>
  %a, %b, %c = ttile.attend %s, %v, %acc, %top, %sum : (!ttile.tile<[4, 8], f32>, !ttile.tile<[8, 16], f32>, !ttile.tile<[4, 16], f32>, !ttile.tile<[5], f32>, !ttile.tile<[4], f32>) -> (!ttile.tile<[4, 16], f32>, !ttile.tile<[5], f32>, !ttile.tile<[4], f32>)
  ttile.return
}
// -----
// CHECK: error[T0501]: `group` and `descending` are the order of a `scheduler`, and none is said
// CHECK: help: say the `scheduler` too
ttile.kernel @grouped() attributes {symbols = [], grid = [4, 4], writes = [], group = 4} {
  ttile.return
}
// -----
// CHECK: error[T0501]: `lag` is said together with the `epilogue`, and none is said
ttile.kernel @late() attributes {symbols = [], grid = [4, 4], writes = [], lag = 1} {
  ttile.return
}
