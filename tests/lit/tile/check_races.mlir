// RUN: not tessera-opt %s --split -p tile-check-races 2>&1 | filecheck %s

// Each program writes its own row.
// CHECK-NOT: `@rows`
ttile.kernel @rows(%x: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], grid = [M], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %i, %z {coords = ["i", "j"], axes = ["j"], map = [i, j], bounds = [N]} : (!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.store %t, %x, %i, %z {coords = ["i", "j"], axes = ["j"], map = [i, j], bounds = [N]} : (!ttile.tile<[8], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// The program id is missing from the store: all programs write row 0.
// CHECK: error[T0503]: programs [0] and [1] of `@lost_program` both write one cell of argument 0
// CHECK-NEXT: check_races.mlir:[[# @LINE + 7]]:3
// CHECK: note: the cell written is `[0, j]`
// CHECK: help: let every program write cells of its own, by its index in the grid
ttile.kernel @lost_program(%x: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N"], grid = [M], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.constant {value = 0.0} : () -> !ttile.tile<[8], f32>
  ttile.store %t, %x, %z {coords = ["j"], axes = ["j"], map = [0, j], bounds = [N]} : (!ttile.tile<[8], f32>, !ttile.buffer<[M, N], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// One program reads what its neighbour writes: both lines are named.
// CHECK: error[T0503]: programs {{.*}} and {{.*}} of `@shift` read and write one cell of argument 0
// CHECK: note: the lines are {{.*}}check_races.mlir:[[# @LINE + 3]]:3 and {{.*}}check_races.mlir:[[# @LINE + 4]]:3
ttile.kernel @shift(%x: !ttile.buffer<[N + 1], f32>) attributes {symbols = ["N"], grid = [N], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %t = ttile.load %x, %i {coords = ["i"], axes = [], map = [i + 1], bounds = []} : (!ttile.buffer<[N + 1], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.store %t, %x, %i {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[N + 1], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// A stride that is one too small, and a free size: seen by running addresses at small sizes.
// CHECK: error[T0503]: programs [0] and [1] of `@stride` both write one cell of argument 0
ttile.kernel @stride(%x: !ttile.buffer<[M*N], f32>) attributes {symbols = ["M", "N"], grid = [M], writes = [0]} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %low, %high {step = 1} ({
  ^bb0(%j: !ttile.index):
    %t = ttile.constant {value = 1.0} : () -> !ttile.tile<[], f32>
    ttile.store %t, %x, %i, %j {coords = ["i", "j"], axes = [], map = [i * (N - 1) + j], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[M*N], f32>, !ttile.index, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
