// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// The one thread that copies would wait for a stage that its own warpgroup releases later.
// CHECK: error[T0601]: stage 2 is acquired before 0, which it replaces, is released: the thread that copies would wait for its own warpgroup for ever
ttarget.matrix_kernel @nt__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 49184} {
  %3 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 16384, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 49152, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.uniform ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10, %11 {grid = [4, 8], group = 10} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor, %15: !ttarget.cursor):
      %16 = ttarget.index %12 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index %13 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %18 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %19 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %20 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %21 = ttarget.when %19, %20, %15 ({
        ttarget.elect ({
          ttarget.acquire %6, %15 : (!ttarget.ring, !ttarget.cursor) -> ()
          %22 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
          %23 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %7, %6, %15, %3, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          %24 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
          %25 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %8, %6, %15, %4, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          ttarget.yield
        })
        %26 = ttarget.advance %6, %15 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      %27 = ttarget.mma_open %18 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %28, %29, %30, %31 = ttarget.steps %19, %20, %27, %14, %21, %14 {step = 64, is_nonempty = true} ({
      ^bb0(%32: !ttile.index, %33: !ttarget.pending<[64, 64], f32>, %34: !ttarget.cursor, %35: !ttarget.cursor, %36: !ttarget.cursor):
        ttarget.await %6, %34 : (!ttarget.ring, !ttarget.cursor) -> ()
        %37 = ttarget.mma_issue %33, %3, %4, %34, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        %38 = ttarget.index %32 {names = ["i"], expr = i + 64} : (!ttile.index) -> !ttile.index
        %39 = ttarget.when %38, %20, %35 ({
          ttarget.elect ({
            ttarget.acquire %6, %35 : (!ttarget.ring, !ttarget.cursor) -> ()
            %40 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
            %41 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %7, %6, %35, %3, %40, %41 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            %42 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
            %43 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %8, %6, %35, %4, %42, %43 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            ttarget.yield
          })
          %44 = ttarget.advance %6, %35 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          ttarget.yield %44 : (!ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
        ttarget.release %6, %36, %19, %32 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %45 = ttarget.advance %6, %34 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %37, %45, %39, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %28 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %31 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %47, %9, %5, %2, %16, %17 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %29, %30 : (!ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// The last stage of a program stays full, and the next program begins in another phase.
// CHECK: error[T0601]: a program copies 3 stages and leaves 1 unread: the next one is out of phase
ttarget.matrix_kernel @nt__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 49184} {
  %3 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 16384, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 49152, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.uniform ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10, %11 {grid = [4, 8], group = 10} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor, %15: !ttarget.cursor):
      %16 = ttarget.index %12 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index %13 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %18 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %19 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %20 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %21 = ttarget.when %19, %20, %15 ({
        ttarget.elect ({
          ttarget.acquire %6, %15 : (!ttarget.ring, !ttarget.cursor) -> ()
          %22 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
          %23 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %7, %6, %15, %3, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          %24 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
          %25 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %8, %6, %15, %4, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          ttarget.yield
        })
        %26 = ttarget.advance %6, %15 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      %27 = ttarget.mma_open %18 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %28, %29, %30, %31 = ttarget.steps %19, %20, %27, %14, %21, %14 {step = 64, is_nonempty = true} ({
      ^bb0(%32: !ttile.index, %33: !ttarget.pending<[64, 64], f32>, %34: !ttarget.cursor, %35: !ttarget.cursor, %36: !ttarget.cursor):
        ttarget.await %6, %34 : (!ttarget.ring, !ttarget.cursor) -> ()
        %37 = ttarget.mma_issue %33, %3, %4, %34, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %36, %19, %32 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %38 = ttarget.index %32 {names = ["i"], expr = i + 64} : (!ttile.index) -> !ttile.index
        %39 = ttarget.when %38, %20, %35 ({
          ttarget.elect ({
            ttarget.acquire %6, %35 : (!ttarget.ring, !ttarget.cursor) -> ()
            %40 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
            %41 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %7, %6, %35, %3, %40, %41 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            %42 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
            %43 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %8, %6, %35, %4, %42, %43 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            ttarget.yield
          })
          %44 = ttarget.advance %6, %35 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          ttarget.yield %44 : (!ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
        %45 = ttarget.advance %6, %34 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %37, %45, %39, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %28 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %47, %9, %5, %2, %16, %17 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %29, %30 : (!ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// All threads would wait, expect bytes and copy.
// CHECK: error[T0601]: `ttarget.acquire` is done by one thread, and all threads do this
ttarget.matrix_kernel @nt__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 49184} {
  %3 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 16384, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 49152, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.uniform ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10, %11 {grid = [4, 8], group = 10} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor, %15: !ttarget.cursor):
      %16 = ttarget.index %12 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index %13 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %18 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %19 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %20 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %21 = ttarget.when %19, %20, %15 ({
          ttarget.acquire %6, %15 : (!ttarget.ring, !ttarget.cursor) -> ()
          %22 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
          %23 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %7, %6, %15, %3, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          %24 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
          %25 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %8, %6, %15, %4, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %6, %15 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      %27 = ttarget.mma_open %18 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %28, %29, %30, %31 = ttarget.steps %19, %20, %27, %14, %21, %14 {step = 64, is_nonempty = true} ({
      ^bb0(%32: !ttile.index, %33: !ttarget.pending<[64, 64], f32>, %34: !ttarget.cursor, %35: !ttarget.cursor, %36: !ttarget.cursor):
        ttarget.await %6, %34 : (!ttarget.ring, !ttarget.cursor) -> ()
        %37 = ttarget.mma_issue %33, %3, %4, %34, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %36, %19, %32 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %38 = ttarget.index %32 {names = ["i"], expr = i + 64} : (!ttile.index) -> !ttile.index
        %39 = ttarget.when %38, %20, %35 ({
          ttarget.elect ({
            ttarget.acquire %6, %35 : (!ttarget.ring, !ttarget.cursor) -> ()
            %40 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
            %41 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %7, %6, %35, %3, %40, %41 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            %42 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
            %43 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %8, %6, %35, %4, %42, %43 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            ttarget.yield
          })
          %44 = ttarget.advance %6, %35 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          ttarget.yield %44 : (!ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
        %45 = ttarget.advance %6, %34 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %37, %45, %39, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %28 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %31 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %47, %9, %5, %2, %16, %17 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %29, %30 : (!ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Roles have registers of their own, and here are none.
// CHECK: error[T0601]: registers of roles and clusters are of kernels with a producer, and there is none
ttarget.matrix_kernel @nt__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, registers = [40, 232], shared = 49184} {
  %3 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 16384, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 49152, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.uniform ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10, %11 {grid = [4, 8], group = 10} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor, %15: !ttarget.cursor):
      %16 = ttarget.index %12 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index %13 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %18 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %19 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %20 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %21 = ttarget.when %19, %20, %15 ({
        ttarget.elect ({
          ttarget.acquire %6, %15 : (!ttarget.ring, !ttarget.cursor) -> ()
          %22 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
          %23 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %7, %6, %15, %3, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          %24 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
          %25 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
          ttarget.copy %8, %6, %15, %4, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
          ttarget.yield
        })
        %26 = ttarget.advance %6, %15 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      %27 = ttarget.mma_open %18 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %28, %29, %30, %31 = ttarget.steps %19, %20, %27, %14, %21, %14 {step = 64, is_nonempty = true} ({
      ^bb0(%32: !ttile.index, %33: !ttarget.pending<[64, 64], f32>, %34: !ttarget.cursor, %35: !ttarget.cursor, %36: !ttarget.cursor):
        ttarget.await %6, %34 : (!ttarget.ring, !ttarget.cursor) -> ()
        %37 = ttarget.mma_issue %33, %3, %4, %34, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %36, %19, %32 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %38 = ttarget.index %32 {names = ["i"], expr = i + 64} : (!ttile.index) -> !ttile.index
        %39 = ttarget.when %38, %20, %35 ({
          ttarget.elect ({
            ttarget.acquire %6, %35 : (!ttarget.ring, !ttarget.cursor) -> ()
            %40 = ttarget.index %16 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
            %41 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %7, %6, %35, %3, %40, %41 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            %42 = ttarget.index %17 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
            %43 = ttarget.index %38 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
            ttarget.copy %8, %6, %35, %4, %42, %43 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
            ttarget.yield
          })
          %44 = ttarget.advance %6, %35 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          ttarget.yield %44 : (!ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
        %45 = ttarget.advance %6, %34 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %37, %45, %39, %34 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %28 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %31 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %47, %9, %5, %2, %16, %17 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %29, %30 : (!ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
