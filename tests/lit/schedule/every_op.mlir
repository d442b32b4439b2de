// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: tsched.module @main(
// CHECK: tsched.while
tsched.module @main(%x: !ttile.buffer<[8], f32>) -> !ttile.buffer<[8], f32> attributes {names = ["x"], workspace = 192} {
  %0 = tsched.alloc {offset = 0} : !ttile.buffer<[8], f32>
  tsched.copy %x, %0
  %1 = tsched.alloc {offset = 64} : !ttile.buffer<[8], f32>
  %2 = tsched.while %0, %1 ({
  ^bb0(%3: !ttile.buffer<[8], f32>):
    %4 = tsched.alloc {offset = 128} : !ttile.buffer<[], bool>
    tsched.call @max_lt_0b797ce033(%3, %4) {flops = 10, bytes = 33, time = 2}
    tsched.free %4
    tsched.yield %4
  }, {
  ^bb0(%5: !ttile.buffer<[8], f32>, %6: !ttile.buffer<[8], f32>):
    tsched.call @mul_234cbc75af(%5, %6) {flops = 9, bytes = 64, time = 5}
    tsched.tile %6 candidates = [32, 16, 64, 128] chosen = 32 {source = "default", knob = "map.tile"}
    tsched.yield
  }) : !ttile.buffer<[8], f32>
  %7 = tsched.alloc {output = 0} : !ttile.buffer<[8], f32>
  tsched.copy %2, %7
  tsched.free %1
  tsched.free %0
  tsched.return %7
}
ttile.kernel @max_lt_0b797ce033(%0: !ttile.buffer<[8], f32>, %1: !ttile.buffer<[], bool>) attributes {symbols = [], grid = [1], writes = [1], kind = "row"} {
  %2 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %3 = ttile.index {names = [], expr = 8} : () -> !ttile.index
  %4 = ttile.constant {value = 10.0} : () -> !ttile.tile<[], f32>
  %5 = ttile.constant {value = -inf} : () -> !ttile.tile<[128], f32>
  %6 = ttile.for %2, %3, %5 {step = 128} ({
  ^bb0(%7: !ttile.index, %8: !ttile.tile<[128], f32>):
    %9 = ttile.load %0, %7 {coords = ["_r"], axes = ["_r"], map = [_r], bounds = [8]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[128], f32>
    %10 = ttile.clip %9, %7 {coords = ["_r"], axes = ["_r"], axis = "_r", bound = 8, identity = -inf} : (!ttile.tile<[128], f32>, !ttile.index) -> !ttile.tile<[128], f32>
    %11 = ttile.elementwise %8, %10 {fn = "max"} : (!ttile.tile<[128], f32>, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
    ttile.yield %11 : (!ttile.tile<[128], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128], f32>) -> !ttile.tile<[128], f32>
  %12 = ttile.reduce %6 {kind = "max", axis = 0} : (!ttile.tile<[128], f32>) -> !ttile.tile<[], f32>
  %13 = ttile.elementwise %12, %4 {fn = "lt"} : (!ttile.tile<[], f32>, !ttile.tile<[], f32>) -> !ttile.tile<[], bool>
  ttile.store %13, %1 {coords = [], axes = [], map = [], bounds = []} : (!ttile.tile<[], bool>, !ttile.buffer<[], bool>) -> ()
  ttile.return
}
ttile.kernel @mul_234cbc75af(%0: !ttile.buffer<[8], f32>, %1: !ttile.buffer<[8], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %2 = ttile.program_id {axis = 0} : () -> !ttile.index
  %3 = ttile.index %2 {names = ["_p0"], expr = 4096*_p0} : (!ttile.index) -> !ttile.index
  %4 = ttile.index %2 {names = ["_p0"], expr = min(4096*_p0 + 4096, 8)} : (!ttile.index) -> !ttile.index
  ttile.for %3, %4 {step = 32} ({
  ^bb0(%5: !ttile.index):
    %6 = ttile.load %0, %5 {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [8]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[32], f32>
    %7 = ttile.constant {value = 2.0} : () -> !ttile.tile<[32], f32>
    %8 = ttile.elementwise %6, %7 {fn = "mul"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
    ttile.store %8, %1, %5 {coords = ["_p0"], axes = ["_p0"], map = [_p0], bounds = [8]} : (!ttile.tile<[32], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
