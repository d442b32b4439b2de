// RUN: tessera-opt %s --split -p nvptx-prune-fallbacks | filecheck %s

// A call may have an empty tensor, for which TMA has no descriptor: such a launch multiplies nothing, and stores zeros.
// CHECK-LABEL: ttile.kernel @dynamic(
// CHECK:         ttile.dot
// CHECK-LABEL: ttile.kernel @dynamic__plain(
// CHECK-NOT:     ttile.for
// CHECK-NOT:     ttile.dot
// CHECK:         ttile.store
tsched.module @main(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>) -> !ttile.buffer<[M, 64], f32> attributes {workspace = 0} {
  %y = tsched.alloc {output = 0} : !ttile.buffer<[M, 64], f32>
  tsched.call @dynamic(%x, %w, %y) sizes = [K, M]
  tsched.return %y
}
ttile.kernel @dynamic(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K], space = "shared", layout = "rows"} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64], space = "shared", layout = "rows"} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "wgmma"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
ttile.kernel @dynamic__plain(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2], variant_of = "dynamic"} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64]} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// All sizes are known, and none is 0.
// CHECK-LABEL: ttile.kernel @fixed(
// CHECK-NOT:   ttile.kernel
tsched.module @main(%x: !ttile.buffer<[128, 64], bf16>, %w: !ttile.buffer<[64, 64], bf16>) -> !ttile.buffer<[128, 64], f32> attributes {workspace = 0} {
  %y = tsched.alloc {output = 0} : !ttile.buffer<[128, 64], f32>
  tsched.call @fixed(%x, %w, %y) sizes = [64, 128]
  tsched.return %y
}
ttile.kernel @fixed(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K], space = "shared", layout = "rows"} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64], space = "shared", layout = "rows"} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "wgmma"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
ttile.kernel @fixed__plain(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2], variant_of = "fixed"} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64]} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// Threads copy for `mma.sync`, and copy nothing of an empty tensor.
// CHECK-LABEL: ttile.kernel @threads(
// CHECK:         unit = "mma.sync"
// CHECK-NOT:   ttile.kernel
tsched.module @main(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>) -> !ttile.buffer<[M, 64], f32> attributes {workspace = 0} {
  %y = tsched.alloc {output = 0} : !ttile.buffer<[M, 64], f32>
  tsched.call @threads(%x, %w, %y) sizes = [K, M]
  tsched.return %y
}
ttile.kernel @threads(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K], space = "shared", layout = "rows"} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64], space = "shared", layout = "rows"} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "mma.sync"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
ttile.kernel @threads__plain(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2], variant_of = "threads"} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64]} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
// -----
// No tensor cores take the kernel: its fallback replaces it, with the reasons.
// CHECK-LABEL: ttile.kernel @refused(
// CHECK-SAME:    reasons = ["wgmma: why"]
// CHECK:         ttile.for
// CHECK-NOT:   ttile.kernel
tsched.module @main(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>) -> !ttile.buffer<[M, 64], f32> attributes {workspace = 0} {
  %y = tsched.alloc {output = 0} : !ttile.buffer<[M, 64], f32>
  tsched.call @refused(%x, %w, %y) sizes = [K, M]
  tsched.return %y
}
ttile.kernel @refused(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2], reasons = ["wgmma: why"]} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64]} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
ttile.kernel @refused__plain(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, 64], bf16>, %y: !ttile.buffer<[M, 64], f32>) attributes {symbols = ["K", "M"], grid = [((M + 63) floordiv 64)], writes = [2], variant_of = "refused"} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %m = ttile.index %p {names = ["p"], expr = 64*p} : (!ttile.index) -> !ttile.index
  %zero = ttile.constant {value = 0} : () -> !ttile.tile<[64, 64], f32>
  %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %high = ttile.index {names = [], expr = K} : () -> !ttile.index
  %sum = ttile.for %low, %high, %zero {step = 64} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[64, 64], f32>):
    %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %r = ttile.load %w, %k, %low {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, 64]} : (!ttile.buffer<[K, 64], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 64], bf16>
    %next = ttile.dot %l, %r, %acc {unit = "multiply-adds"} : (!ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], bf16>, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
    ttile.yield %next : (!ttile.tile<[64, 64], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[64, 64], f32>) -> !ttile.tile<[64, 64], f32>
  ttile.store %sum, %y, %m, %low {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, 64]} : (!ttile.tile<[64, 64], f32>, !ttile.buffer<[M, 64], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}
