// RUN: tessera-opt %s -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma{machine = "sm_80"},nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt -p 'nvptx-pipeline-copies{machine = "sm_80"},nvptx-schedule-programs{machine = "sm_80"},nvptx-specialize-warps,nvptx-overlap-mma{machine = "sm_80"}' | \
// RUN:   tessera-opt -p 'nvptx-lower-kernels{machine = "sm_80"},nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s
// RUN: tessera-opt %s -p 'nvptx-broadcast-scalars,nvptx-fit-steps,nvptx-select-mma{units = "mma.sync"},nvptx-use-exp2,nvptx-choose-spaces,nvptx-swizzle-tiles,nvptx-place-barriers' | \
// RUN:   tessera-opt -p 'nvptx-pipeline-copies,nvptx-schedule-programs,nvptx-specialize-warps,nvptx-overlap-mma' | \
// RUN:   tessera-opt -p 'nvptx-lower-kernels,nvptx-hoist-descriptors,nvptx-place-shared' | filecheck %s --check-prefix HOPPER

// A dot with dynamic dims: two stages that leave shared memory for a second CTA, warps two by two, copies one iteration ahead.
// CHECK:       ttarget.warp_kernel @product__matrix({{.*}}features = ["cp.async", "ldmatrix", "mma.sync"], consumers = 1, warps_n = 2, shared = 73728}
// CHECK-NEXT:    %[[X:.*]] = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[128, 64], bf16>
// CHECK-NEXT:    %[[W:.*]] = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 128], bf16>
// CHECK-NEXT:    %[[OUT:.*]] = ttarget.shared_tile {offset = 65536} : () -> !ttarget.shared_tile<[64, 64], bf16>
// CHECK-NEXT:    ttarget.tiles {grid = [{{.*}}], group = 16}
// CHECK:           ttarget.when %[[LOW:.*]], %[[HIGH:.*]] ({
// CHECK-NEXT:        ttarget.copy_async %[[X]], %[[FIRST:.*]], %{{.*}}, %{{.*}}, %[[LOW]] {coords = ["m", "k"], axes = ["m", "k"], map = [m, k], bounds = [M, K]}
// CHECK-NEXT:        ttarget.copy_async %[[W]], %[[FIRST]], %{{.*}}, %[[LOW]], %{{.*}} {coords = ["k", "n"], axes = ["k", "n"], map = [k, n], bounds = [K, N]}
// CHECK:           ttarget.commit_copies
// CHECK-NEXT:      ttarget.steps %[[LOW]], %[[HIGH]], %{{.*}}, %[[FIRST]] {step = 64}
// CHECK-NEXT:      ^bb0(%[[K:.*]]: !ttile.index, %[[ACC:.*]]: !ttarget.fragment<[128, 128], f32>, %[[AT:.*]]: !ttarget.cursor):
// CHECK-NEXT:        %[[NEXT:.*]] = ttarget.index %[[K]] {names = ["i"], expr = i + 64}
// CHECK-NEXT:        %[[TO:.*]] = ttarget.stage_after %[[AT]] {stages = 2}
// CHECK-NEXT:        ttarget.wait_copies{{$}}
// CHECK-NEXT:        ttarget.when %[[NEXT]], %[[HIGH]] ({
// CHECK-NEXT:          ttarget.copy_async %[[X]], %[[TO]]
// CHECK-NEXT:          ttarget.copy_async %[[W]], %[[TO]]
// CHECK:             ttarget.commit_copies
// CHECK-NEXT:        ttarget.mma_sync %[[ACC]], %[[X]], %[[W]], %[[AT]], %[[AT]] {rhs_major = "mn"}
// The epilogue stays on the fragment, and rows leave through shared memory of their warp.
// CHECK:           ttarget.fragment_load %{{.*}} -> !ttarget.column_vector<[128], f32>
// CHECK:           ttarget.elementwise %{{.*}} {fn = "add"}
// CHECK:           ttarget.store_rows %{{.*}}, %[[OUT]]
// What has no dots runs on plain threads.
// CHECK:       ttarget.kernel @map

// More shared memory fits one stage more, and copies are two iterations ahead.
// HOPPER:      ttarget.warp_kernel @product__matrix({{.*}}shared = 106496}
// HOPPER:        ttarget.wait_copies {left = 1}
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
