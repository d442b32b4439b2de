// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// Programs of a pair are two along the last axis but one.
// CHECK: error[T0601]: clusters take two programs along the last axis but one, and the grid is ['3', '4']
ttarget.matrix_kernel @pair(%0: !ttile.buffer<[256, 512], bf16>, %1: !ttile.buffer<[512, 512], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [3, 4], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472, multicast = true} {
  %3 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %4 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [3, 4], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 {half = "rows"} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [3, 4], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[128, 128], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Half of a tile, and nobody to copy the other half.
// CHECK: error[T0601]: half of a tile is copied, and there is no other CTA to copy the other half
ttarget.matrix_kernel @pair(%0: !ttile.buffer<[256, 512], bf16>, %1: !ttile.buffer<[512, 512], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [2, 4], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472} {
  %3 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %4 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 4], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 {half = "rows"} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 4], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[128, 128], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Less is copied than the barrier counts.
// CHECK: error[T0601]: 24576 bytes are copied to a stage, and its barrier counts 32768
ttarget.matrix_kernel @pair(%0: !ttile.buffer<[256, 512], bf16>, %1: !ttile.buffer<[512, 512], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [2, 4], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472, multicast = true} {
  %3 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %4 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 4], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 4], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[128, 128], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// The second of two consumers may not wait for a stage that is filled when it has left the first.
// CHECK: error[T0601]: the last of 2 consumers waits for stage 4, and there are 4
ttarget.matrix_kernel @promoted(%0: !ttile.buffer<[256, 512], f8e4m3>, %1: !ttile.buffer<[512, 512], f8e4m3>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229440} {
  %3 = ttarget.shared_tile {offset = 0, stages = 4} : () -> !ttarget.shared_tile<[128, 128], f8e4m3>
  %4 = ttarget.shared_tile {offset = 65536, stages = 4} : () -> !ttarget.shared_tile<[256, 128], f8e4m3>
  %5 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 229376, stages = 4} : (!ttarget.shared_tile<[128, 128], f8e4m3>, !ttarget.shared_tile<[256, 128], f8e4m3>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [128, 128]} : (!ttile.buffer<[256, 512], f8e4m3>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [256, 128]} : (!ttile.buffer<[512, 512], f8e4m3>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 256*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 128} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], f8e4m3>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[256, 128], f8e4m3>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.lag %6, %26 {stages = 4} : (!ttarget.ring, !ttarget.cursor) -> ()
    ttarget.tiles %26 {grid = [2, 2], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 256*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 256], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %35, %36 = ttarget.steps %33, %34, %32, %29 {step = 128, is_nonempty = true} ({
      ^bb0(%37: !ttile.index, %38: !ttarget.fragment<[128, 256], f32>, %39: !ttarget.cursor):
        ttarget.await %6, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
        %40 = ttarget.mma_add %38, %3, %4, %39, %39 {parts = 2} : (!ttarget.fragment<[128, 256], f32>, !ttarget.shared_tile<[128, 128], f8e4m3>, !ttarget.shared_tile<[256, 128], f8e4m3>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.fragment<[128, 256], f32>
        ttarget.release %6, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
        %41 = ttarget.advance %6, %39 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %40, %41 : (!ttarget.fragment<[128, 256], f32>, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 256], f32>, !ttarget.cursor) -> (!ttarget.fragment<[128, 256], f32>, !ttarget.cursor)
      %42 = ttarget.cast %35 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 256], f32>) -> !ttarget.fragment<[128, 256], bf16>
      ttarget.store_tile %42, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 256], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %36 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Parts are whole eights of columns.
// CHECK: error[T0601]: 256 columns of a B operand along k are not 3 parts of whole eights
ttarget.matrix_kernel @promoted(%0: !ttile.buffer<[256, 512], f8e4m3>, %1: !ttile.buffer<[512, 512], f8e4m3>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229440} {
  %3 = ttarget.shared_tile {offset = 0, stages = 4} : () -> !ttarget.shared_tile<[128, 128], f8e4m3>
  %4 = ttarget.shared_tile {offset = 65536, stages = 4} : () -> !ttarget.shared_tile<[256, 128], f8e4m3>
  %5 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 229376, stages = 4} : (!ttarget.shared_tile<[128, 128], f8e4m3>, !ttarget.shared_tile<[256, 128], f8e4m3>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [128, 128]} : (!ttile.buffer<[256, 512], f8e4m3>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [256, 128]} : (!ttile.buffer<[512, 512], f8e4m3>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 256*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 128} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], f8e4m3>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[256, 128], f8e4m3>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.lag %6, %26 {stages = 2} : (!ttarget.ring, !ttarget.cursor) -> ()
    ttarget.tiles %26 {grid = [2, 2], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 256*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 256], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 512} : () -> !ttile.index
      %35, %36 = ttarget.steps %33, %34, %32, %29 {step = 128, is_nonempty = true} ({
      ^bb0(%37: !ttile.index, %38: !ttarget.fragment<[128, 256], f32>, %39: !ttarget.cursor):
        ttarget.await %6, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
        %40 = ttarget.mma_add %38, %3, %4, %39, %39 {parts = 3} : (!ttarget.fragment<[128, 256], f32>, !ttarget.shared_tile<[128, 128], f8e4m3>, !ttarget.shared_tile<[256, 128], f8e4m3>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.fragment<[128, 256], f32>
        ttarget.release %6, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
        %41 = ttarget.advance %6, %39 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %40, %41 : (!ttarget.fragment<[128, 256], f32>, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 256], f32>, !ttarget.cursor) -> (!ttarget.fragment<[128, 256], f32>, !ttarget.cursor)
      %42 = ttarget.cast %35 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 256], f32>) -> !ttarget.fragment<[128, 256], bf16>
      ttarget.store_tile %42, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 256], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %36 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// There is a step of dots for each part, and two more.
// CHECK: error[T0601]: 2 pieces run before the waits of as many steps, two others aside, got 3 steps
ttarget.matrix_kernel @rolled(%0: !ttile.buffer<[2048, 512], bf16>, %1: !ttile.buffer<[2560, 512], bf16>, %2: !ttile.buffer<[2560], bf16>, %3: !ttile.buffer<[2048, 2560], bf16>) attributes {symbols = [], grid = [16, 20], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472} {
  %4 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %6 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %7 = ttarget.ring %4, %5 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %8 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[2048, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %1 {box = [128, 64]} : (!ttile.buffer<[2560, 512], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.tensor_map %3 {box = [64, 64]} : (!ttile.buffer<[2048, 2560], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %11 {grid = [16, 20], group = 16} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor):
      %15 = ttarget.index %12 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index %13 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %18 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %19 = ttarget.steps %17, %18, %14 {step = 64} ({
      ^bb0(%20: !ttile.index, %21: !ttarget.cursor):
        ttarget.acquire %7, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
        %22 = ttarget.index %15 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %23 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %7, %21, %4, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %24 = ttarget.index %16 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %25 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %9, %7, %21, %5, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %7, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %19 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %27 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %27 {grid = [16, 20], group = 16} ({
    ^bb0(%28: !ttile.index, %29: !ttile.index, %30: !ttarget.cursor):
      %31 = ttarget.index %28 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %32 = ttarget.index %29 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %33 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %34 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %35 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %36 = ttarget.mma_open %33 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %37, %38, %39 = ttarget.steps %34, %35, %36, %30, %30 {step = 64, is_nonempty = true} ({
      ^bb0(%40: !ttile.index, %41: !ttarget.pending<[128, 128], f32>, %42: !ttarget.cursor, %43: !ttarget.cursor):
        ttarget.await %7, %42 : (!ttarget.ring, !ttarget.cursor) -> ()
        %44 = ttarget.mma_issue %41, %4, %5, %42, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %7, %43, %34, %40 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %45 = ttarget.advance %7, %42 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %45, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %37 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %7, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.epilogue %47 ({
      ^bb0(%48: !ttile.index, %49: !ttile.index, %50: !ttarget.fragment<[128, 128], bf16>):
        %51 = ttarget.index %48 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
        %52 = ttarget.index %49 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
        %53 = ttarget.cast %50 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %54 = ttarget.fragment_load %2, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [-1, -1]} : (!ttile.buffer<[2560], bf16>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], bf16>
        %55 = ttarget.cast %54 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %56 = ttarget.elementwise %53, %55 {fn = "add"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %57 = ttarget.cast %56 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        %58 = ttarget.cast %57 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %59 = ttarget.elementwise %58 {fn = "gelu_tanh"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %60 = ttarget.cast %59 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        ttarget.store_tile %60, %10, %6, %3, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[2048, 2560], bf16>, !ttile.index, !ttile.index) -> ()
        ttarget.yield
      }) : (!ttarget.fragment<[128, 128], bf16>) -> ()
      ttarget.yield %38 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A part is computed in pieces of whole eights of columns.
// CHECK: error[T0601]: pieces are of 16 columns, or of that doubled, and parts of 64 are not 3 of them
ttarget.matrix_kernel @rolled(%0: !ttile.buffer<[2048, 512], bf16>, %1: !ttile.buffer<[2560, 512], bf16>, %2: !ttile.buffer<[2560], bf16>, %3: !ttile.buffer<[2048, 2560], bf16>) attributes {symbols = [], grid = [16, 20], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472} {
  %4 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %6 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %7 = ttarget.ring %4, %5 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %8 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[2048, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %1 {box = [128, 64]} : (!ttile.buffer<[2560, 512], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.tensor_map %3 {box = [64, 64]} : (!ttile.buffer<[2048, 2560], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %11 {grid = [16, 20], group = 16} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor):
      %15 = ttarget.index %12 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index %13 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %18 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %19 = ttarget.steps %17, %18, %14 {step = 64} ({
      ^bb0(%20: !ttile.index, %21: !ttarget.cursor):
        ttarget.acquire %7, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
        %22 = ttarget.index %15 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %23 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %7, %21, %4, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %24 = ttarget.index %16 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %25 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %9, %7, %21, %5, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %7, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %19 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %27 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %27 {grid = [16, 20], group = 16} ({
    ^bb0(%28: !ttile.index, %29: !ttile.index, %30: !ttarget.cursor):
      %31 = ttarget.index %28 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %32 = ttarget.index %29 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %33 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %34 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %35 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %36 = ttarget.mma_open %33 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %37, %38, %39 = ttarget.steps %34, %35, %36, %30, %30 {step = 64, is_nonempty = true} ({
      ^bb0(%40: !ttile.index, %41: !ttarget.pending<[128, 128], f32>, %42: !ttarget.cursor, %43: !ttarget.cursor):
        ttarget.await %7, %42 : (!ttarget.ring, !ttarget.cursor) -> ()
        %44 = ttarget.mma_issue %41, %4, %5, %42, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %7, %43, %34, %40 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %45 = ttarget.advance %7, %42 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %45, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %37 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %7, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.epilogue %47 {pieces = 3} ({
      ^bb0(%48: !ttile.index, %49: !ttile.index, %50: !ttarget.fragment<[128, 128], bf16>):
        %51 = ttarget.index %48 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
        %52 = ttarget.index %49 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
        %53 = ttarget.cast %50 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %54 = ttarget.fragment_load %2, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [-1, -1]} : (!ttile.buffer<[2560], bf16>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], bf16>
        %55 = ttarget.cast %54 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %56 = ttarget.elementwise %53, %55 {fn = "add"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %57 = ttarget.cast %56 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        %58 = ttarget.cast %57 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %59 = ttarget.elementwise %58 {fn = "gelu_tanh"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %60 = ttarget.cast %59 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        ttarget.store_tile %60, %10, %6, %3, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[2048, 2560], bf16>, !ttile.index, !ttile.index) -> ()
        ttarget.yield
      }) : (!ttarget.fragment<[128, 128], bf16>) -> ()
      ttarget.yield %38 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// There is a step for each piece of a part.
// CHECK: error[T0601]: 4 pieces run before the waits of as many steps, two others aside, got 5 steps
ttarget.matrix_kernel @rolled(%0: !ttile.buffer<[2048, 512], bf16>, %1: !ttile.buffer<[2560, 512], bf16>, %2: !ttile.buffer<[2560], bf16>, %3: !ttile.buffer<[2048, 2560], bf16>) attributes {symbols = [], grid = [16, 20], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472} {
  %4 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %5 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %6 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %7 = ttarget.ring %4, %5 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>) -> !ttarget.ring
  %8 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[2048, 512], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %1 {box = [128, 64]} : (!ttile.buffer<[2560, 512], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.tensor_map %3 {box = [64, 64]} : (!ttile.buffer<[2048, 2560], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %11 {grid = [16, 20], group = 16} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor):
      %15 = ttarget.index %12 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index %13 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %18 = ttarget.index {names = [], expr = 320} : () -> !ttile.index
      %19 = ttarget.steps %17, %18, %14 {step = 64} ({
      ^bb0(%20: !ttile.index, %21: !ttarget.cursor):
        ttarget.acquire %7, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
        %22 = ttarget.index %15 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %23 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %7, %21, %4, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %24 = ttarget.index %16 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %25 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %9, %7, %21, %5, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %7, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %19 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %27 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %27 {grid = [16, 20], group = 16} ({
    ^bb0(%28: !ttile.index, %29: !ttile.index, %30: !ttarget.cursor):
      %31 = ttarget.index %28 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
      %32 = ttarget.index %29 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
      %33 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %34 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %35 = ttarget.index {names = [], expr = 320} : () -> !ttile.index
      %36 = ttarget.mma_open %33 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %37, %38, %39 = ttarget.steps %34, %35, %36, %30, %30 {step = 64, is_nonempty = true} ({
      ^bb0(%40: !ttile.index, %41: !ttarget.pending<[128, 128], f32>, %42: !ttarget.cursor, %43: !ttarget.cursor):
        ttarget.await %7, %42 : (!ttarget.ring, !ttarget.cursor) -> ()
        %44 = ttarget.mma_issue %41, %4, %5, %42, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %7, %43, %34, %40 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %45 = ttarget.advance %7, %42 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %45, %42 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %37 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %7, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.epilogue %47 {pieces = 2} ({
      ^bb0(%48: !ttile.index, %49: !ttile.index, %50: !ttarget.fragment<[128, 128], bf16>):
        %51 = ttarget.index %48 {names = ["_m"], expr = 128*_m} : (!ttile.index) -> !ttile.index
        %52 = ttarget.index %49 {names = ["_n"], expr = 128*_n} : (!ttile.index) -> !ttile.index
        %53 = ttarget.cast %50 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %54 = ttarget.fragment_load %2, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [-1, -1]} : (!ttile.buffer<[2560], bf16>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], bf16>
        %55 = ttarget.cast %54 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %56 = ttarget.elementwise %53, %55 {fn = "add"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %57 = ttarget.cast %56 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        %58 = ttarget.cast %57 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.fragment<[128, 128], f32>
        %59 = ttarget.elementwise %58 {fn = "gelu_tanh"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %60 = ttarget.cast %59 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        ttarget.store_tile %60, %10, %6, %3, %51, %52 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[2048, 2560], bf16>, !ttile.index, !ttile.index) -> ()
        ttarget.yield
      }) : (!ttarget.fragment<[128, 128], bf16>) -> ()
      ttarget.yield %38 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----

// Threads read bytes as they lie: rows of a stage along k are rows of the fragment.
// CHECK: is not !ttarget.shared_tile<[64, 128], i8> (mn), of elements of one byte
ttarget.matrix_kernel @wrong(%0: !ttile.buffer<[8, 256], bf16>, %1: !ttile.buffer<[128, 256], i8>, %2: !ttile.buffer<[128, 1, 2, 1], f32>, %3: !ttile.buffer<[8, 128], bf16>) attributes {symbols = [], grid = [1, 2], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 82048} {
  %4 = ttarget.shared_tile {offset = 0, stages = 8} : () -> !ttarget.shared_tile<[8, 128], bf16>
  %5 = ttarget.shared_tile {offset = 16384, stages = 8} : () -> !ttarget.shared_tile<[64, 128], i8>
  %6 = ttarget.ring %4, %5 {offset = 81920, stages = 8} : (!ttarget.shared_tile<[8, 128], bf16>, !ttarget.shared_tile<[64, 128], i8>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [8, 64]} : (!ttile.buffer<[8, 256], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 128]} : (!ttile.buffer<[128, 256], i8>) -> !ttarget.tensor_map
  ttarget.roles ({
    %9 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %9 {grid = [1, 2]} ({
    ^bb0(%10: !ttile.index, %11: !ttile.index, %12: !ttarget.cursor):
      %13 = ttarget.index %10 {names = ["_m"], expr = 8*_m} : (!ttile.index) -> !ttile.index
      %14 = ttarget.index %11 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 256} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %12 {step = 128} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        %21 = ttarget.index %19 {names = ["_k"], expr = ((_k + 128) mod 256)} : (!ttile.index) -> !ttile.index
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %22 = ttarget.index %13 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %23 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %4, %22, %23 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[8, 128], bf16>, !ttile.index, !ttile.index) -> ()
        %24 = ttarget.index %14 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %25 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %5, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 128], i8>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %27 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %27 {grid = [1, 2]} ({
    ^bb0(%28: !ttile.index, %29: !ttile.index, %30: !ttarget.cursor):
      %31 = ttarget.index %28 {names = ["_m"], expr = 8*_m} : (!ttile.index) -> !ttile.index
      %32 = ttarget.index %29 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %33 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 8], f32>
      %34 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %35 = ttarget.fragment_load %2, %32, %34 {coords = ["_n", "_k"], axes = ["_n"], map = [_n, 0, (_k floordiv 128), 0], bounds = [-1]} : (!ttile.buffer<[128, 1, 2, 1], f32>, !ttile.index, !ttile.index) -> !ttarget.row_vector<[64], f32>
      %36 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %37 = ttarget.index {names = [], expr = 256} : () -> !ttile.index
      %38 = ttarget.mma_open %33 : (!ttarget.fragment<[64, 8], f32>) -> !ttarget.pending<[64, 8], f32>
      %39, %40, %41, %42 = ttarget.steps %36, %37, %38, %35, %30, %30 {step = 128, is_nonempty = true, copies = 2} ({
      ^bb0(%43: !ttile.index, %44: !ttarget.pending<[64, 8], f32>, %45: !ttarget.row_vector<[64], f32>, %46: !ttarget.cursor, %47: !ttarget.cursor):
        %48 = ttarget.broadcast %45 {axes = [0]} : (!ttarget.row_vector<[64], f32>) -> !ttarget.fragment<[64, 128], f32>
        %49 = ttarget.index %43 {names = ["_k"], expr = ((_k + 128) mod 256)} : (!ttile.index) -> !ttile.index
        %50 = ttarget.fragment_load %2, %32, %49 {coords = ["_n", "_k"], axes = ["_n"], map = [_n, 0, (_k floordiv 128), 0], bounds = [-1]} : (!ttile.buffer<[128, 1, 2, 1], f32>, !ttile.index, !ttile.index) -> !ttarget.row_vector<[64], f32>
        ttarget.await %6, %46 : (!ttarget.ring, !ttarget.cursor) -> ()
        %51 = ttarget.fragment_read %5, %46 {major = "mn"} : (!ttarget.shared_tile<[64, 128], i8>, !ttarget.cursor) -> !ttarget.fragment<[64, 128], i8>
        %52 = ttarget.cast %51 : (!ttarget.fragment<[64, 128], i8>) -> !ttarget.fragment<[64, 128], f32>
        %53 = ttarget.elementwise %52, %48 {fn = "mul"} : (!ttarget.fragment<[64, 128], f32>, !ttarget.fragment<[64, 128], f32>) -> !ttarget.fragment<[64, 128], f32>
        %54 = ttarget.cast %53 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 128], f32>) -> !ttarget.fragment<[64, 128], bf16>
        %55 = ttarget.pack %54 : (!ttarget.fragment<[64, 128], bf16>) -> !ttarget.operand<[64, 128], bf16>
        ttarget.await %6, %46 : (!ttarget.ring, !ttarget.cursor) -> ()
        %56 = ttarget.mma_issue %44, %55, %4, %46, %46 : (!ttarget.pending<[64, 8], f32>, !ttarget.operand<[64, 128], bf16>, !ttarget.shared_tile<[8, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 8], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %47, %36, %43 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %57 = ttarget.advance %6, %46 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %56, %50, %57, %46 : (!ttarget.pending<[64, 8], f32>, !ttarget.row_vector<[64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 8], f32>, !ttarget.row_vector<[64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 8], f32>, !ttarget.row_vector<[64], f32>, !ttarget.cursor, !ttarget.cursor)
      %58 = ttarget.mma_wait %39 : (!ttarget.pending<[64, 8], f32>) -> !ttarget.fragment<[64, 8], f32>
      ttarget.release %6, %42 : (!ttarget.ring, !ttarget.cursor) -> ()
      %59 = ttarget.cast %58 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 8], f32>) -> !ttarget.fragment<[64, 8], bf16>
      ttarget.fragment_store %59, %3, %31, %32 {coords = ["_m", "_n"], axes = ["_n", "_m"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 8], bf16>, !ttile.buffer<[8, 128], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %41 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
