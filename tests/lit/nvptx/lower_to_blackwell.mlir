// RUN: tessera-opt %s -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma{machine = "sm_100a", units = "tcgen05"},nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt -p 'nvptx-pipeline-copies{machine = "sm_100a"},nvptx-schedule-programs{machine = "sm_100a"},nvptx-specialize-warps,nvptx-overlap-mma{machine = "sm_100a"}' | \
// RUN:   tessera-opt -p 'nvptx-lower-kernels{machine = "sm_100a"},nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s

// A dot with free sizes: a producer as on Hopper, and sums in 128 columns of tensor memory.
// CHECK:       ttarget.tensor_kernel @product__matrix({{.*}}features = ["tcgen05", "tma"], consumers = 1, shared = {{[0-9]+}}}
// CHECK:         %[[RING:.*]] = ttarget.ring %[[X:.*]], %[[W:.*]] {offset = {{[0-9]+}}, stages = 6}
// CHECK:         ttarget.roles ({
// CHECK:             ttarget.acquire %[[RING]]
// CHECK:             ttarget.copy %{{.*}}, %[[RING]], %{{.*}}, %[[X]]
// CHECK:             ttarget.copy %{{.*}}, %[[RING]], %{{.*}}, %[[W]]
// CHECK:         }, {
// CHECK:           %[[MEMORY:.*]] = ttarget.tensor_alloc {columns = 128, offset = {{[0-9]+}}} : () -> !ttarget.tensor_memory<[128, 128], f32>
// CHECK:             ttarget.steps %[[LOW:.*]], %{{.*}}, %{{.*}} {step = 64, is_nonempty = true}
// CHECK-NEXT:        ^bb0(%[[K:.*]]: !ttile.index, %[[AT:.*]]: !ttarget.cursor):
// CHECK-NEXT:          ttarget.await %[[RING]], %[[AT]]
// CHECK-NEXT:          ttarget.tensor_mma %[[MEMORY]], %[[X]], %[[W]], %[[AT]], %[[AT]], %[[LOW]], %[[K]] {rhs_major = "mn"}
// CHECK-NEXT:          ttarget.tensor_release %[[RING]], %[[AT]]
// The sum is waited for once, and the epilogue goes on with it in registers.
// CHECK:             ttarget.tensor_commit %[[MEMORY]]
// CHECK-NEXT:        ttarget.tensor_wait %[[MEMORY]]
// CHECK-NEXT:        ttarget.tensor_load %[[MEMORY]] {{.*}} -> !ttarget.fragment<[128, 128], f32>
// CHECK:             ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK:             ttarget.store_rows
// CHECK:           ttarget.tensor_dealloc %[[MEMORY]]
// What has no dots runs on plain threads.
// CHECK:       ttarget.kernel @map
builtin.module {
  ttile.kernel @product(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, N], bf16>, %b: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[M, N], bf16>) attributes {symbols = ["K", "M", "N"], grid = [((M + 127) floordiv 128), ((N + 127) floordiv 128)], writes = [3], kind = "contraction"} {
    %p = ttile.program_id {axis = 0} : () -> !ttile.index
    %m = ttile.index %p {names = ["p"], expr = 128*p} : (!ttile.index) -> !ttile.index
    %q = ttile.program_id {axis = 1} : () -> !ttile.index
    %n = ttile.index %q {names = ["q"], expr = 128*q} : (!ttile.index) -> !ttile.index
    %zero = ttile.constant {value = 0} : () -> !ttile.tile<[128, 128], f32>
    %low = ttile.index {names = [], expr = 0} : () -> !ttile.index
    %high = ttile.index {names = [], expr = K} : () -> !ttile.index
    %sum = ttile.for %low, %high, %zero {step = 64} ({
    ^bb0(%k: !ttile.index, %acc: !ttile.tile<[128, 128], f32>):
      %l = ttile.load %x, %m, %k {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]} : (!ttile.buffer<[M, K], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[128, 64], bf16>
      %r = ttile.load %w, %k, %n {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, N]} : (!ttile.buffer<[K, N], bf16>, !ttile.index, !ttile.index) -> !ttile.tile<[64, 128], bf16>
      %lw = ttile.cast %l : (!ttile.tile<[128, 64], bf16>) -> !ttile.tile<[128, 64], f32>
      %rw = ttile.cast %r : (!ttile.tile<[64, 128], bf16>) -> !ttile.tile<[64, 128], f32>
      %next = ttile.dot %lw, %rw, %acc : (!ttile.tile<[128, 64], f32>, !ttile.tile<[64, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
      ttile.yield %next : (!ttile.tile<[128, 128], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %bias = ttile.load %b, %n {coords = ["n"], axes = ["n"], map = [n], bounds = [N]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[128], f32>
    %wide = ttile.broadcast %bias {axes = [1]} : (!ttile.tile<[128], f32>) -> !ttile.tile<[128, 128], f32>
    %added = ttile.elementwise %sum, %wide {fn = "add"} : (!ttile.tile<[128, 128], f32>, !ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], f32>
    %out = ttile.cast %added {rounding = "nearest_even"} : (!ttile.tile<[128, 128], f32>) -> !ttile.tile<[128, 128], bf16>
    ttile.store %out, %y, %m, %n {coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N]} : (!ttile.tile<[128, 128], bf16>, !ttile.buffer<[M, N], bf16>, !ttile.index, !ttile.index) -> ()
    ttile.return
  }
  ttile.kernel @map(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [((N + 31) floordiv 32)], writes = [1]} {
    %p = ttile.program_id {axis = 0} : () -> !ttile.index
    %i = ttile.index %p {names = ["p"], expr = 32*p} : (!ttile.index) -> !ttile.index
    %t = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[32], f32>
    ttile.store %t, %y, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.tile<[32], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
    ttile.return
  }
}
