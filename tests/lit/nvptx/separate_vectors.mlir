// RUN: tessera-opt %s --split -p nvptx-separate-vectors | filecheck %s

// A vector that is broadcast both ways is loaded for rows and for columns, and doubled for columns alone.
// CHECK-LABEL: ttile.kernel @both(
// CHECK:         %[[ROWS:.*]] = ttile.load %s, %i {{.*}} -> !ttile.tile<[64], f32>
// CHECK-NEXT:    %[[COLUMNS:.*]] = ttile.load %s, %i {{.*}} -> !ttile.tile<[64], f32>
// CHECK-NEXT:    ttile.broadcast %[[ROWS]] {axes = [0]}
// CHECK-NEXT:    %[[TWICE:.*]] = ttile.elementwise %[[COLUMNS]], %[[COLUMNS]] {fn = "add"}
// CHECK-NEXT:    ttile.broadcast %[[TWICE]] {axes = [1]}
ttile.kernel @both(%x: !ttile.buffer<[64, 64], bf16>, %y: !ttile.buffer<[64, 64], f32>, %s: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %a = ttile.load %x, %i, %i {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [-1, -1]} : (!ttile.buffer<[64, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
  %e = ttile.dot %a, %a, %zero : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %v = ttile.load %s, %i {coords = ["m"], axes = ["m"], map = [m], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  %r = ttile.broadcast %v {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
  %w = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
  %c = ttile.broadcast %w {axes = [1]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
  %f = ttile.elementwise %e, %r {fn = "add"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  %g = ttile.elementwise %f, %c {fn = "add"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %g, %y, %i, %i {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[64, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// A kernel without dots runs on threads, of which each has any element of a vector.
// CHECK-LABEL: ttile.kernel @alone(
// CHECK:         %[[ONE:.*]] = ttile.load %s
// CHECK-NEXT:    ttile.broadcast %[[ONE]] {axes = [0]}
// CHECK-NEXT:    ttile.broadcast %[[ONE]] {axes = [1]}
ttile.kernel @alone(%y: !ttile.buffer<[64, 64], f32>, %s: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [0]} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %v = ttile.load %s, %i {coords = ["m"], axes = ["m"], map = [m], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  %r = ttile.broadcast %v {axes = [0]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
  %c = ttile.broadcast %v {axes = [1]} : (!ttile.tile<[64], f32>) -> !ttile.tile<[64, 64], f32>
  %f = ttile.elementwise %r, %c {fn = "sub"} : (!ttile.tile<[64, 64], f32>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %f, %y, %i, %i {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[64, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
