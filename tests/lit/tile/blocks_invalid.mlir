// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// What tiles of one shape and dtype become: each op says which of them do not fit.

// CHECK: error[T0501]: `ttile.bitcast` keeps the bits, and f32 has 32 of them, i64 64
ttile.kernel @bitcast() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[4], f32>
  %r = ttile.bitcast %a : (!ttile.tile<[4], f32>) -> !ttile.tile<[4], i64>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.clip` clips one of ['i'], got j
ttile.kernel @clip() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %r = ttile.clip %a, %i {coords = ["i"], axes = ["i"], axis = "j", bound = N, identity = 0} : (!ttile.tile<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: `ttile.arg_reduce` takes values and their indices, of one shape, got !ttile.tile<[8, 4], f32> and !ttile.tile<[8, 2], i64>
ttile.kernel @arg_reduce() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 4], f32>
  %b = ttile.constant {value = 1} : () -> !ttile.tile<[8, 2], i64>
  %r = ttile.arg_reduce %a, %b {kind = "argmax", axis = 1} : (!ttile.tile<[8, 4], f32>, !ttile.tile<[8, 2], i64>) -> !ttile.tile<[8], i64>
  ttile.return
}
// -----
// CHECK: error[T0501]: `mode` is one of down, up, index, got turn
ttile.kernel @shuffle() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %r = ttile.shuffle %a {mode = "turn", by = 1, width = 8} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  ttile.return
}
// -----
// CHECK: error[T0501]: lanes vote with bools, got f32
ttile.kernel @vote() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %r = ttile.vote %a {kind = "any", width = 8} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], bool>
  ttile.return
}
// -----
// CHECK: error[T0501]: `by` must be in 0..7, as segments have 8 lanes, got 8
ttile.kernel @butterfly() attributes {symbols = ["N"], grid = [N], writes = []} {
  %a = ttile.constant {value = 1.0} : () -> !ttile.tile<[8], f32>
  %r = ttile.butterfly %a {by = 8, width = 8} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  ttile.return
}
