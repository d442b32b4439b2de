// RUN: tessera-opt %s --split -p nvptx-place-shared | filecheck %s

// Tiles come first, as their alignment is the widest; then barriers, two of eight bytes for each stage.
// CHECK-LABEL: ttarget.matrix_kernel @plain(
// CHECK-SAME:    shared = 49184}
// CHECK:         %[[A:.*]] = ttarget.shared_tile {offset = 0, stages = 2}
// CHECK-NEXT:    %[[B:.*]] = ttarget.shared_tile {offset = 16384, stages = 2}
// CHECK-NEXT:    ttarget.shared_tile {offset = 32768, stages = 2}
// CHECK-NEXT:    ttarget.ring %[[A]], %[[B]] {offset = 49152, stages = 2}
ttarget.matrix_kernel @plain(%0: !ttile.buffer<[128, 128], bf16>, %1: !ttile.buffer<[128, 128], bf16>, %2: !ttile.buffer<[128, 128], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1} {
  %3 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 2], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[64, 64], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[128, 128], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// The next program's index is passed in a mailbox, at one offset for both roles, before the barriers.
// CHECK-LABEL: ttarget.matrix_kernel @handed(
// CHECK-SAME:    shared = 49224}
// CHECK:         ttarget.ring %{{.*}} {offset = 49192, stages = 2}
// CHECK:         ttarget.tiles %{{.*}} mailbox = 49152}
// CHECK:         ttarget.tiles %{{.*}} mailbox = 49152}
ttarget.matrix_kernel @handed(%0: !ttile.buffer<[128, 128], bf16>, %1: !ttile.buffer<[128, 128], bf16>, %2: !ttile.buffer<[128, 128], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1} {
  %3 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16, mailbox = -2} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 2], group = 16, mailbox = -2} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[64, 64], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[128, 128], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A given offset is kept, and the others are placed around it; so is the size that a kernel declares.
// CHECK-LABEL: ttarget.matrix_kernel @around(
// CHECK-SAME:    shared = 60000}
// CHECK:         %[[A:.*]] = ttarget.shared_tile {offset = 0, stages = 2}
// CHECK-NEXT:    %[[B:.*]] = ttarget.shared_tile {offset = 17408, stages = 2}
// CHECK-NEXT:    ttarget.shared_tile {offset = 33792, stages = 2}
// CHECK-NEXT:    ttarget.ring %[[A]], %[[B]] {offset = 16384, stages = 2}
ttarget.matrix_kernel @around(%0: !ttile.buffer<[128, 128], bf16>, %1: !ttile.buffer<[128, 128], bf16>, %2: !ttile.buffer<[128, 128], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 60000} {
  %3 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 16384, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 2], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[64, 64], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[128, 128], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Nothing is left to allocate.
// CHECK-LABEL: ttarget.matrix_kernel @placed(
// CHECK-SAME:    shared = 49184}
// CHECK:         ttarget.shared_tile {offset = 32768, stages = 2}
// CHECK-NEXT:    ttarget.shared_tile {offset = 16384, stages = 2}
// CHECK-NEXT:    ttarget.shared_tile {offset = 0, stages = 2}
ttarget.matrix_kernel @placed(%0: !ttile.buffer<[128, 128], bf16>, %1: !ttile.buffer<[128, 128], bf16>, %2: !ttile.buffer<[128, 128], bf16>) attributes {symbols = [], grid = [2, 2], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 49184} {
  %3 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 16384, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 49152, stages = 2} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[128, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [2, 2], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %18 = ttarget.steps %16, %17, %13 {step = 64} ({
      ^bb0(%19: !ttile.index, %20: !ttarget.cursor):
        ttarget.acquire %6, %20 : (!ttarget.ring, !ttarget.cursor) -> ()
        %21 = ttarget.index %14 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %6, %20, %3, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.index %15 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        %24 = ttarget.index %19 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %6, %20, %4, %23, %24 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %25 = ttarget.advance %6, %20 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %25 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %18 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %26 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %26 {grid = [2, 2], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      %35 = ttarget.mma_open %32 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %36, %37, %38 = ttarget.steps %33, %34, %35, %29, %29 {step = 64, is_nonempty = true} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.pending<[64, 64], f32>, %41: !ttarget.cursor, %42: !ttarget.cursor):
        ttarget.await %6, %41 : (!ttarget.ring, !ttarget.cursor) -> ()
        %43 = ttarget.mma_issue %40, %3, %4, %41, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %6, %42, %33, %39 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %6, %41 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %43, %44, %41 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %45 = ttarget.mma_wait %36 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %6, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
      %46 = ttarget.cast %45 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %46, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[128, 128], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
