// RUN: tessera-opt %s --split -p nvptx-broadcast-scalars | filecheck %s

// A scalar in memory is read for each element of what it is broadcast to, all at one address.
// CHECK-LABEL: ttile.kernel @scaled(
// CHECK:         %[[ZERO:.*]] = ttile.index {names = [], expr = 0}
// CHECK:         %[[SCALE:.*]] = ttile.load %s, %{{.*}}, %{{.*}} {coords = ["_of0", "_of1"], axes = ["_of0", "_of1"], map = [0], bounds = [-1, -1]} : {{.*}} -> !ttile.tile<[128, 256], f32>
// CHECK-NEXT:    ttile.elementwise %sum, %[[SCALE]] {fn = "mul"}
// CHECK-NOT:     ttile.tile<[],
ttile.kernel @scaled(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>, %s: !ttile.buffer<[2], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  %first = ttile.load %s {coords = [], axes = [], map = [0], bounds = []} : (!ttile.buffer<[2], f32>) -> !ttile.tile<[], f32>
  %whole = ttile.broadcast %first {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[128, 256], f32>
  %out = ttile.elementwise %sum, %whole {fn = "mul"} : (!ttile.tile<[128, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %out, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// So is what is computed from such scalars; the address of one may depend on the program.
// CHECK-LABEL: ttile.kernel @computed(
// CHECK:         %[[FIRST:.*]] = ttile.load %s, {{.*}} map = [0]
// CHECK:         %[[SECOND:.*]] = ttile.load %s, %i, {{.*}} {coords = ["m", "_of0", "_of1"], axes = ["_of0", "_of1"], map = [m]
// CHECK-NEXT:    %[[PRODUCT:.*]] = ttile.elementwise %[[FIRST]], %[[SECOND]] {fn = "mul"}
// CHECK-NEXT:    %[[HALF:.*]] = ttile.constant {value = 0.5} : () -> !ttile.tile<[128, 256], f32>
// CHECK-NEXT:    ttile.elementwise %[[PRODUCT]], %[[HALF]] {fn = "add"}
ttile.kernel @computed(%x: !ttile.buffer<[256, 192], bf16>, %w: !ttile.buffer<[512, 192], bf16>, %y: !ttile.buffer<[256, 512], f32>, %s: !ttile.buffer<[2], f32>) attributes {symbols = [], grid = [2, 2], writes = [2], kind = "contraction"} {
  %0 = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %0 {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
  %1 = ttile.program_id {axis = 1} : () -> !ttile.index
  %j = ttile.index %1 {names = ["p"], expr = 256*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 256], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = 192} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 256], f32>):
    %a = ttile.load %x, %i, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [256, 192]} : (!ttile.buffer<[256, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
    %b = ttile.load %w, %j, %k {coords = ["n", "k"], axes = ["k", "n"], map = [n, k], bounds = [192, 512]} : (!ttile.buffer<[512, 192], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 256], bf16>
    %c = ttile.cast %a : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
    %d = ttile.cast %b : (!ttile.tile<[64, 256], bf16>) -> !ttile.tile<[64, 256], f32>
    %e = ttile.dot %c, %d, %acc : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
    ttile.yield %e : (!ttile.tile<[128, 256], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  %first = ttile.load %s {coords = [], axes = [], map = [0], bounds = []} : (!ttile.buffer<[2], f32>) -> !ttile.tile<[], f32>
  %second = ttile.load %s, %i {coords = ["m"], axes = [], map = [m], bounds = []} : (!ttile.buffer<[2], f32>, !ttile.index) -> !ttile.tile<[], f32>
  %half = ttile.constant {value = 0.5} : () -> !ttile.tile<[], f32>
  %product = ttile.elementwise %first, %second {fn = "mul"} : (!ttile.tile<[], f32>, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
  %both = ttile.elementwise %product, %half {fn = "add"} : (!ttile.tile<[], f32>, !ttile.tile<[], f32>) -> !ttile.tile<[], f32>
  %whole = ttile.broadcast %both {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[128, 256], f32>
  %out = ttile.elementwise %sum, %whole {fn = "mul"} : (!ttile.tile<[128, 256], f32>, !ttile.tile<[128, 256], f32>) -> !ttile.tile<[128, 256], f32>
  ttile.store %out, %y, %i, %j {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [256, 512]} : (!ttile.tile<[128, 256], f32>, !ttile.buffer<[256, 512], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// A kernel without dots runs on threads, which have tiles of any kind.
// CHECK-LABEL: ttile.kernel @alone(
// CHECK:         ttile.load %s {{.*}} -> !ttile.tile<[], f32>
// CHECK-NEXT:    ttile.broadcast
ttile.kernel @alone(%s: !ttile.buffer<[2], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %zero = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %one = ttile.load %s {coords = [], axes = [], map = [0], bounds = []} : (!ttile.buffer<[2], f32>) -> !ttile.tile<[], f32>
  %whole = ttile.broadcast %one {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[64], f32>
  ttile.store %whole, %y, %zero {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
