// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What all ranks must have alike: the axis, its ranks, the place, and how often a program comes here.

// CHECK: error[T0501]: `ttile.all_reduce` needs the name of a mesh axis
ttile.kernel @axis() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` is over a number of ranks, at least 1, got ['N']
ttile.kernel @size() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [N], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` is over a number of ranks, at least 1, got ['0']
ttile.kernel @none() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [0], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `op` is one of sum, prod, max, min, mean, got median
ttile.kernel @kind() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "median", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` has no mean of i32
ttile.kernel @mean() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %n = ttile.constant {value = 1} : () -> !ttile.tile<[8, 16], i32>
  %y = ttile.all_reduce %n, %i, %z {axis = "tp", size = [2], op = "mean", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], i32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], i32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` has no sum of bool
ttile.kernel @flags() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %n = ttile.constant {value = 1} : () -> !ttile.tile<[8, 16], bool>
  %y = ttile.all_reduce %n, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], bool>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], bool>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` gives one tile of !ttile.tile<[8, 16], f32>, not !ttile.tile<[8, 16], f64>
ttile.kernel @result() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f64>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_gather` gives 3 tiles of !ttile.tile<[8, 16], f32>, not !ttile.tile<[8, 16], f32>
ttile.kernel @parts() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_gather %x, %i, %z {axis = "tp", size = [3], coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.reduce_scatter` takes 2 tiles of one type, got !ttile.tile<[8, 16], f32>, !ttile.index
ttile.kernel @few() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.reduce_scatter %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` has a map of 1 expressions into a tensor of rank 2
ttile.kernel @map() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` has 1 bounds for 2 axes
ttile.kernel @bounds() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: the shape `K` uses ['K'], and what is known is ['M', 'N']
ttile.kernel @shape() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, K]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` is in a loop, and ranks need not have equally many iterations
ttile.kernel @loop() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %h = ttile.index {names = [], expr = 4} : () -> !ttile.index
  %r = ttile.for %z, %h, %x {step = 1} ({
  ^bb0(%k: !ttile.index, %c: !ttile.tile<[8, 16], f32>):
    %y = ttile.all_reduce %c, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
    ttile.yield %y : (!ttile.tile<[8, 16], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[8, 16], f32>) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_reduce` is at an index that is read from memory, which ranks need not share
ttile.kernel @read(%table: !ttile.buffer<[4], i32>) attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %f = ttile.fetch %table, %z {coords = ["z"], map = [z]} : (!ttile.buffer<[4], i32>, !ttile.index) -> !ttile.index
  %o = ttile.index %f {names = ["f"], expr = 8*f} : (!ttile.index) -> !ttile.index
  %y = ttile.all_reduce %x, %o, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.all_gather` gives 1000000000000000 tiles of {{.*}}, not
ttile.kernel @more_ranks_than_memory() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_gather %x, %i, %z {axis = "tp", size = [1000000000000000], coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
