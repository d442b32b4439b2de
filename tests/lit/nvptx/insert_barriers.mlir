// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-insert-barriers' | filecheck %s

// Threads read backwards what they stored forwards: they wait before each access of the scratch.
// CHECK-LABEL: ttile.kernel @through(
// CHECK:         ttile.load %x
// CHECK-NEXT:    ttile.barrier
// CHECK-NEXT:    ttile.store
// CHECK-NEXT:    ttile.barrier
// CHECK-NEXT:    ttile.load %s
// CHECK-NEXT:    ttile.store
ttile.kernel @through(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch : () -> !ttile.buffer<[64], f32>
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %v, %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  %w = ttile.load %s, %z {coords = ["i"], axes = ["i"], map = [-i + 63], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %w, %y, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Every thread reads what it stored: none waits.
// CHECK-LABEL: ttile.kernel @same(
// CHECK-NOT:     ttile.barrier
ttile.kernel @same(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch : () -> !ttile.buffer<[64], f32>
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %v, %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  %w = ttile.load %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[64], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  ttile.store %w, %y, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// One thread waits for nobody.
// CHECK-LABEL: ttile.kernel @one(
// CHECK-NOT:     ttile.barrier
ttile.kernel @one(%x: !ttile.buffer<[1], f32>, %y: !ttile.buffer<[1], f32>) attributes {symbols = [], grid = [1], writes = [1]} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %v = ttile.load %x, %z {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.buffer<[1], f32>, !ttile.index) -> !ttile.tile<[], f32>
  ttile.barrier
  ttile.store %v, %y, %z {coords = ["i"], axes = [], map = [i], bounds = []} : (!ttile.tile<[], f32>, !ttile.buffer<[1], f32>, !ttile.index) -> ()
  ttile.return
}
