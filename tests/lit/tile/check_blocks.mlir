// RUN: not tessera-opt %s --split -p tile-check-blocks 2>&1 | filecheck %s

// The sum of a whole row, loaded by one program, is the same for all blocks of rows.
// CHECK-NOT: `@whole_rows`
ttile.kernel @whole_rows(%x: !ttile.buffer<[M, 32], f32>, %y: !ttile.buffer<[M], f32>) attributes {symbols = ["M"], grid = [(M + 7) floordiv 8], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [M, -1]} : (!ttile.buffer<[M, 32], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 32], f32>
  %s = ttile.reduce %t {kind = "sum", axis = 1} : (!ttile.tile<[8, 32], f32>) -> !ttile.tile<[8], f32>
  ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [M]} : (!ttile.tile<[8], f32>, !ttile.buffer<[M], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// The sum over a block of rows is another one for every block.
// CHECK: error[T0504]: `sum` is of one block of 8 elements (`grid axis 0`) alone, and the result depends on its size, in `@block_of_rows`
// CHECK-NEXT: check_blocks.mlir:[[# @LINE + 7]]:3
// CHECK: note: rule: a schedule says how a kernel runs, and never changes its results
ttile.kernel @block_of_rows(%x: !ttile.buffer<[M, 32], f32>, %y: !ttile.buffer<[M, 32], f32>) attributes {symbols = ["M"], grid = [(M + 7) floordiv 8], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [M, -1]} : (!ttile.buffer<[M, 32], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 32], f32>
  %s = ttile.reduce %t {kind = "sum", axis = 0} : (!ttile.tile<[8, 32], f32>) -> !ttile.tile<[32], f32>
  %b = ttile.broadcast %s {axes = [1]} : (!ttile.tile<[32], f32>) -> !ttile.tile<[8, 32], f32>
  %o = ttile.elementwise %t, %b {fn = "sub"} : (!ttile.tile<[8, 32], f32>, !ttile.tile<[8, 32], f32>) -> !ttile.tile<[8, 32], f32>
  ttile.store %o, %y, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [M, -1]} : (!ttile.tile<[8, 32], f32>, !ttile.buffer<[M, 32], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// The same, and its author says that it is meant.
// CHECK-NOT: `@marked`
ttile.kernel @marked(%x: !ttile.buffer<[M, 32], f32>, %y: !ttile.buffer<[M, 32], f32>) attributes {symbols = ["M"], grid = [(M + 7) floordiv 8], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [M, -1]} : (!ttile.buffer<[M, 32], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 32], f32>
  %r = ttile.reduce %t {kind = "sum", axis = 0} : (!ttile.tile<[8, 32], f32>) -> !ttile.tile<[32], f32>
  %s = ttile.per_block %r : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %b = ttile.broadcast %s {axes = [1]} : (!ttile.tile<[32], f32>) -> !ttile.tile<[8, 32], f32>
  %o = ttile.elementwise %t, %b {fn = "sub"} : (!ttile.tile<[8, 32], f32>, !ttile.tile<[8, 32], f32>) -> !ttile.tile<[8, 32], f32>
  ttile.store %o, %y, %i, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [M, -1]} : (!ttile.tile<[8, 32], f32>, !ttile.buffer<[M, 32], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// A loop over all blocks that adds up their sums.
// CHECK-NOT: `@accumulated`
ttile.kernel @accumulated(%x: !ttile.buffer<[M, N], f32>, %y: !ttile.buffer<[M], f32>) attributes {symbols = ["M", "N"], grid = [M], writes = [1]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = N} : () -> !ttile.index
  %zero = ttile.constant {value = 0.0} : () -> !ttile.tile<[], f32>
  %total = ttile.for %low, %high, %zero {step = 16, block = "k"} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[], f32>):
    %t = ttile.load %x, %i, %k {coords = ["i", "k"], axes = ["k"], map = [i, k], bounds = [N]} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[16], f32>
    %s = ttile.reduce %t {kind = "sum", axis = 0} : (!ttile.tile<[16], f32>) -> !ttile.tile<[], f32>
    %new = ttile.elementwise %acc, %s {fn = "add"} : (!ttile.tile<[], f32>, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
    ttile.yield %new : (!ttile.tile<[], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
  ttile.store %total, %y, %i {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[M], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// The same loop with the maximum of sums, which is no accumulation.
// CHECK: error[T0504]: a loop carries what depends on one block of 16 elements (`k`), and is no accumulation over all of them, in `@largest_sum`
// CHECK: help: load the whole dim in one tile
ttile.kernel @largest_sum(%x: !ttile.buffer<[M, N], f32>, %y: !ttile.buffer<[M], f32>) attributes {symbols = ["M", "N"], grid = [M], writes = [1]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = N} : () -> !ttile.index
  %zero = ttile.constant {value = 0.0} : () -> !ttile.tile<[], f32>
  %total = ttile.for %low, %high, %zero {step = 16, block = "k"} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[], f32>):
    %t = ttile.load %x, %i, %k {coords = ["i", "k"], axes = ["k"], map = [i, k], bounds = [N]} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[16], f32>
    %s = ttile.reduce %t {kind = "sum", axis = 0} : (!ttile.tile<[16], f32>) -> !ttile.tile<[], f32>
    %new = ttile.elementwise %acc, %s {fn = "max"} : (!ttile.tile<[], f32>, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
    ttile.yield %new : (!ttile.tile<[], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
  ttile.store %total, %y, %i {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[M], f32>, !ttile.index) -> ()
  ttile.return
}
