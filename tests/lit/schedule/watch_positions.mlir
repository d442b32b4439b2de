// RUN: tessera-opt %s -p schedule-watch-positions | filecheck %s

// A kernel that goes where numbers say runs after what looks at them; a kernel that does not runs as it did.
// CHECK-LABEL: tsched.module @main(
// CHECK-SAME:    tessera.effects = ["io", "random"]
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[B, 8], f32>
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.alloc : !ttile.buffer<[B, 4], i64>
// CHECK-NEXT:    tsched.call @rows_begin(%[[R]]) sizes = [V, B]
// CHECK-NEXT:    tsched.call @rows_watch(%i, %[[R]]) sizes = [V, B]
// CHECK-NEXT:    tsched.callback %[[R]], %i {call = "check_positions", text = "{{.*}}rows{{.*}}source{{.*}}0{{.*}}"}
// CHECK-NEXT:    tsched.free %[[R]]
// CHECK-NEXT:    tsched.call @rows(%x, %i, %[[T]]) sizes = [V, B]
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.alloc {output = 0}
// CHECK-NEXT:    tsched.call @twice(%[[T]], %[[Y]]) sizes = [B]
tsched.module @main(%x: !ttile.buffer<[V, 8], f32>, %i: !ttile.buffer<[B], i64>) -> !ttile.buffer<[B, 8], f32> attributes {tessera.effects = ["random"]} {
  %t = tsched.alloc : !ttile.buffer<[B, 8], f32>
  tsched.call @rows(%x, %i, %t) sizes = [V, B]
  %y = tsched.alloc {output = 0} : !ttile.buffer<[B, 8], f32>
  tsched.call @twice(%t, %y) sizes = [B]
  tsched.free %t
  tsched.return %y
}

// What looks has the part of the kernel that finds its positions, and neither the tensor they are of nor the result.
// CHECK-LABEL: ttile.kernel @rows_begin(
// CHECK-LABEL: ttile.kernel @rows_watch(%0: !ttile.buffer<[s1], i64>, %1: !ttile.buffer<[s1, 4], i64>)
// CHECK-SAME:    grid = [s1], writes = [1]
// CHECK:         ttile.load %0
// CHECK-NOT:     ttile.load
// CHECK:         mode = "atomic_min"
// CHECK:         mode = "atomic_max"
// CHECK:         mode = "atomic_max"
// CHECK-NOT:     ttile.store
// CHECK-LABEL: ttile.kernel @rows(
ttile.kernel @rows(%0: !ttile.buffer<[s0, 8], f32>, %1: !ttile.buffer<[s1], i64>, %2: !ttile.buffer<[s1, 8], f32>) attributes {symbols = ["s0", "s1"], grid = [s1], writes = [2]} {
  %3 = ttile.program_id {axis = 0} : () -> !ttile.index
  %4 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %5 = ttile.load %1, %3, %4 {coords = ["i", "j"], axes = ["j"], map = [i], bounds = [-1]} : (!ttile.buffer<[s1], i64>, !ttile.index, !ttile.index) -> !ttile.tile<[8], i64>
  %6 = ttile.load %0, %4, %5 {coords = ["j"], axes = ["j"], map = [t0, j], bounds = [-1], windows = [t0, s0], checked = {op = "take", ends = true}} : (!ttile.buffer<[s0, 8], f32>, !ttile.index, !ttile.tile<[8], i64>) -> !ttile.tile<[8], f32>
  ttile.store %6, %2, %3, %4 {coords = ["i", "j"], axes = ["j"], map = [i, j], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[s1, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// CHECK-NOT:     @twice_watch
// CHECK-LABEL: ttile.kernel @twice(
ttile.kernel @twice(%0: !ttile.buffer<[s0, 8], f32>, %1: !ttile.buffer<[s0, 8], f32>) attributes {symbols = ["s0"], grid = [s0], writes = [1]} {
  %2 = ttile.program_id {axis = 0} : () -> !ttile.index
  %3 = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %4 = ttile.load %0, %2, %3 {coords = ["i", "j"], axes = ["j"], map = [i, j], bounds = [-1]} : (!ttile.buffer<[s0, 8], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.store %4, %1, %2, %3 {coords = ["i", "j"], axes = ["j"], map = [i, j], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[s0, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
