// RUN: tessera-opt %s --split -p nvptx-orient-operands | filecheck %s

// The B operand is loaded along memory, where k is contiguous, and transposed for the dot.
// CHECK-LABEL: ttile.kernel @across(
// CHECK:           %[[A:[a-z0-9_]+]] = ttile.load %{{.*}} {coords = ["m", "k"], axes = ["m", "k"]
// CHECK-NEXT:      %[[B:[a-z0-9_]+]] = ttile.load %{{.*}} {coords = ["n", "k"], axes = ["n", "k"], map = [n, k], bounds = [96, 40]} : {{.*}} -> !ttile.tile<[32, 16], f32>
// CHECK-NEXT:      %[[T:[a-z0-9_]+]] = ttile.transpose %[[B]]
// CHECK-NEXT:      %{{.*}} = ttile.dot %[[A]], %[[T]]
ttile.kernel @across(%x: !ttile.buffer<[64, 40], f32>, %w: !ttile.buffer<[96, 40], f32>, %y: !ttile.buffer<[64, 96], f32>) attributes {symbols = [], grid = [2, 3], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[32, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 40} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 16} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[32, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [64, 40]} : (!ttile.buffer<[64, 40], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 16], f32>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [40, 96]} : (!ttile.buffer<[96, 40], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[16, 32], f32>
    %c = ttile.dot %a, %b, %acc {unit = "multiply-adds"} : (!ttile.tile<[32, 16], f32>, !ttile.tile<[16, 32], f32>, !ttile.tile<[32, 32], f32>) -> !ttile.tile<[32, 32], f32>
    ttile.yield %c : (!ttile.tile<[32, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32, 32], f32>) -> !ttile.tile<[32, 32], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [64, 96]} : (!ttile.tile<[32, 32], f32>, !ttile.buffer<[64, 96], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Both operands are loaded along memory already.
// CHECK-LABEL: ttile.kernel @along(
// CHECK:         %{{.*}} = ttile.for %{{.*}}, %{{.*}}, %{{[a-z0-9_]+}} {step = 64}
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      %{{.*}} = ttile.load
// CHECK-NEXT:      %{{.*}} = ttile.load
// CHECK-NEXT:      %{{.*}} = ttile.dot
ttile.kernel @along(%x: !ttile.buffer<[64, 640], f32>, %w: !ttile.buffer<[640, 96], f32>, %y: !ttile.buffer<[64, 96], f32>) attributes {symbols = [], grid = [2, 3], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[32, 32], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 640} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[32, 32], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [64, 640]} : (!ttile.buffer<[64, 640], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32, 64], f32>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [k, n], bounds = [640, 96]} : (!ttile.buffer<[640, 96], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 32], f32>
    %c = ttile.dot %a, %b, %acc {unit = "multiply-adds"} : (!ttile.tile<[32, 64], f32>, !ttile.tile<[64, 32], f32>, !ttile.tile<[32, 32], f32>) -> !ttile.tile<[32, 32], f32>
    ttile.yield %c : (!ttile.tile<[32, 32], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[32, 32], f32>) -> !ttile.tile<[32, 32], f32>
  ttile.store %sum, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [64, 96]} : (!ttile.tile<[32, 32], f32>, !ttile.buffer<[64, 96], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
