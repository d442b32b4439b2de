// RUN: tessera-opt %s --split -p nvptx-broadcast-loads | filecheck %s

// A vector of each step is read for every element of the tile that it is added to, along its own axis alone.
// CHECK-LABEL: ttile.kernel @steps(
// CHECK:         %[[WIDE:.*]] = ttile.load %x, %k, %z, %{{.*}} {coords = ["k", "i", "_of1"], axes = ["i", "_of1"], map = [k, i], bounds = [16, -1]} : {{.*}} -> !ttile.tile<[16, 8], f32>
// CHECK-NOT:     ttile.broadcast
// CHECK:         ttile.elementwise %s, %[[WIDE]] {fn = "add"}
ttile.kernel @steps(%x: !ttile.buffer<[4, 16], f32>, %y: !ttile.buffer<[16, 8], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %e = ttile.index {names = [], expr = 4} : () -> !ttile.index
  %0 = ttile.constant {value = 0.0} : () -> !ttile.tile<[16, 8], f32>
  %1 = ttile.for %z, %e, %0 {step = 1} ({
  ^bb0(%k: !ttile.index, %s: !ttile.tile<[16, 8], f32>):
    %v = ttile.load %x, %k, %z {coords = ["k", "i"], axes = ["i"], map = [k, i], bounds = [16]} : (!ttile.buffer<[4, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[16], f32>
    %w = ttile.broadcast %v {axes = [0]} : (!ttile.tile<[16], f32>) -> !ttile.tile<[16, 8], f32>
    %t = ttile.elementwise %s, %w {fn = "add"} : (!ttile.tile<[16, 8], f32>, !ttile.tile<[16, 8], f32>) -> !ttile.tile<[16, 8], f32>
    ttile.yield %t : (!ttile.tile<[16, 8], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[16, 8], f32>) -> !ttile.tile<[16, 8], f32>
  ttile.store %1, %y, %z, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [-1, -1]} : (!ttile.tile<[16, 8], f32>, !ttile.buffer<[16, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// -----
// What is read once, outside of a loop, is exchanged once.
// CHECK-LABEL: ttile.kernel @once(
// CHECK:         ttile.load %x{{.*}} -> !ttile.tile<[16], f32>
// CHECK-NEXT:    ttile.broadcast
ttile.kernel @once(%x: !ttile.buffer<[16], f32>, %y: !ttile.buffer<[16, 8], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[16], f32>, !ttile.index) -> !ttile.tile<[16], f32>
  %w = ttile.broadcast %v {axes = [0]} : (!ttile.tile<[16], f32>) -> !ttile.tile<[16, 8], f32>
  ttile.store %w, %y, %z, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [-1, -1]} : (!ttile.tile<[16, 8], f32>, !ttile.buffer<[16, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
