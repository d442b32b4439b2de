// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows,nvptx-place-scratch,nvptx-unroll-loops,nvptx-insert-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels,nvptx-choose-vectors,nvptx-schedule-rows' | filecheck %s
// RUN: tessera-opt %s --split -p 'nvptx-plan-threads,nvptx-plan-rows,nvptx-place-scratch,nvptx-unroll-loops,nvptx-insert-barriers' | \
// RUN:   tessera-opt --split -p 'nvptx-lower-kernels{machine = "sm_80"},nvptx-choose-vectors,nvptx-schedule-rows{machine = "sm_80"}' | filecheck %s

// A program of 64 elements is one warp; two neighbours of f32 to a thread, and 16 bytes at a time where rows allow it.
// CHECK-LABEL: ttarget.kernel @doubled(
// CHECK-SAME:    lanes = 32, features = ["sm_80"], scratch = 0, threads = 32
// CHECK:         ttarget.load %{{.*}} offset = i, pattern = "contiguous", align = 16}
// CHECK-NEXT:    ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK-NEXT:    ttarget.store
ttile.kernel @doubled(%x: !ttile.buffer<[256], f32>, %y: !ttile.buffer<[256], f32>) attributes {symbols = [], grid = [4], writes = [1]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %v = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[256], f32>, !ttile.index) -> !ttile.tile<[64], f32>
  %s = ttile.elementwise %v, %v {fn = "add"} : (!ttile.tile<[64], f32>, !ttile.tile<[64], f32>) -> !ttile.tile<[64], f32>
  ttile.store %s, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[64], f32>, !ttile.buffer<[256], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// Lanes stay lanes, caps of the author are kept, and a swizzle goes where memory is shared.
// CHECK-LABEL: ttarget.kernel @lanes(
// CHECK-SAME:    threads = 32, {{.*}}max_registers = 40, max_shared = 4096
// CHECK:         ttarget.scratch {offset = 0, space = "shared", swizzle = 4}
// CHECK:         ttarget.shuffle %{{.*}} {mode = "down", by = 3, width = 16}
// CHECK-NEXT:    ttarget.shuffle %{{.*}} {mode = "xor", by = 5}
// CHECK:         ttarget.vote %{{.*}} {kind = "any"}
// CHECK-NEXT:    ttarget.select
// CHECK:         ttarget.barrier
ttile.kernel @lanes(%x: !ttile.buffer<[32], f32>, %y: !ttile.buffer<[32], f32>) attributes {symbols = [], grid = [1], writes = [1], schedule = {max_registers = 40, max_shared = 4096}} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %s = ttile.scratch {space = "shared", swizzle = 4} : () -> !ttile.buffer<[32], f32>
  %v = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[32], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  %a = ttile.shuffle %v {mode = "down", by = 3, width = 16} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %b = ttile.butterfly %a {by = 5} : (!ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  %c = ttile.elementwise %a, %b {fn = "gt"} : (!ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], bool>
  %d = ttile.vote %c {kind = "any"} : (!ttile.tile<[32], bool>) -> !ttile.tile<[32], bool>
  %e = ttile.select %d, %a, %b : (!ttile.tile<[32], bool>, !ttile.tile<[32], f32>, !ttile.tile<[32], f32>) -> !ttile.tile<[32], f32>
  ttile.store %e, %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[32], f32>, !ttile.index) -> ()
  ttile.barrier
  %w = ttile.load %s, %z {coords = ["i"], axes = ["i"], map = [-i + 31], bounds = [-1]} : (!ttile.buffer<[32], f32>, !ttile.index) -> !ttile.tile<[32], f32>
  ttile.store %w, %y, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[32], f32>, !ttile.buffer<[32], f32>, !ttile.index) -> ()
  ttile.return
}
// -----
// What is Target IR already is left alone.
// CHECK-LABEL: ttarget.kernel @done(
// CHECK-SAME:    lanes = 8
ttarget.kernel @done() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.return
}
