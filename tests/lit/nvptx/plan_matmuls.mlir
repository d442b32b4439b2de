// RUN: tessera-opt %s --split -p nvptx-plan-matmuls | filecheck %s

// Threads 16 by 8 have 4 x 8 accumulators each, and copy some steps ahead.
// CHECK-LABEL: ttarget.kernel @matmul(
// CHECK-SAME:    threads = 128
// CHECK-SAME:    nvptx.across = 8
// CHECK-SAME:    nvptx.stages = 7
ttarget.kernel @matmul(%0: !ttile.buffer<[256, 100], f32>, %1: !ttile.buffer<[256, 100], f32>, %2: !ttile.buffer<[256, 256], f32>) attributes {symbols = [], writes = [2], lanes = 32, features = ["sm_80"], scratch = 0, threads = 256, align = 16} {
  ttarget.programs {grid = [4, 4]} ({
  ^bb0(%3: !ttile.index, %4: !ttile.index):
    %5 = ttarget.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
    %6 = ttarget.index %4 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
    %7 = ttarget.constant {value = 0} : () -> !ttarget.vector<[64, 64], f32>
    %8 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %9 = ttarget.index {names = [], expr = 100} : () -> !ttile.index
    %10 = ttarget.loop %8, %9, %7 {step = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttarget.vector<[64, 64], f32>):
      %13 = ttarget.load %0, %5, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 100*_m, pattern = "contiguous", align = 4} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %14 = ttarget.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_n", "_k"], offset = _k + 100*_n, pattern = "contiguous", align = 4} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %15 = ttarget.transpose %14 : (!ttarget.vector<[64, 16], f32>) -> !ttarget.vector<[16, 64], f32>
      %16 = ttarget.dot %13, %15, %12 : (!ttarget.vector<[64, 16], f32>, !ttarget.vector<[16, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %16 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    %17 = ttarget.tail %8, %9, %10 {step = 16} ({
    ^bb0(%18: !ttile.index, %19: !ttarget.vector<[64, 64], f32>):
      %20 = ttarget.load %0, %5, %18 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 100*_m, pattern = "contiguous", align = 4, guarded = ["_k"], bounds = [100]} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %21 = ttarget.load %1, %6, %18 {coords = ["_n", "_k"], axes = ["_n", "_k"], offset = _k + 100*_n, pattern = "contiguous", align = 4, guarded = ["_k"], bounds = [100]} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %22 = ttarget.transpose %21 : (!ttarget.vector<[64, 16], f32>) -> !ttarget.vector<[16, 64], f32>
      %23 = ttarget.dot %20, %22, %19 : (!ttarget.vector<[64, 16], f32>, !ttarget.vector<[16, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %23 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    ttarget.store %17, %2, %5, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = 256*_m + _n, pattern = "contiguous", align = 4} : (!ttarget.vector<[64, 64], f32>, !ttile.buffer<[256, 256], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Its author says how many threads it has.
// CHECK-LABEL: ttarget.kernel @asked(
// CHECK-SAME:    threads = 128
// CHECK-NOT:     nvptx.stages
ttarget.kernel @asked(%0: !ttile.buffer<[256, 100], f32>, %1: !ttile.buffer<[256, 100], f32>, %2: !ttile.buffer<[256, 256], f32>) attributes {symbols = [], writes = [2], lanes = 32, features = ["sm_80"], scratch = 0, threads = 128, align = 16} {
  ttarget.programs {grid = [4, 4]} ({
  ^bb0(%3: !ttile.index, %4: !ttile.index):
    %5 = ttarget.index %3 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
    %6 = ttarget.index %4 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
    %7 = ttarget.constant {value = 0} : () -> !ttarget.vector<[64, 64], f32>
    %8 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %9 = ttarget.index {names = [], expr = 100} : () -> !ttile.index
    %10 = ttarget.loop %8, %9, %7 {step = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttarget.vector<[64, 64], f32>):
      %13 = ttarget.load %0, %5, %11 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 100*_m, pattern = "contiguous", align = 4} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %14 = ttarget.load %1, %6, %11 {coords = ["_n", "_k"], axes = ["_n", "_k"], offset = _k + 100*_n, pattern = "contiguous", align = 4} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %15 = ttarget.transpose %14 : (!ttarget.vector<[64, 16], f32>) -> !ttarget.vector<[16, 64], f32>
      %16 = ttarget.dot %13, %15, %12 : (!ttarget.vector<[64, 16], f32>, !ttarget.vector<[16, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %16 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    %17 = ttarget.tail %8, %9, %10 {step = 16} ({
    ^bb0(%18: !ttile.index, %19: !ttarget.vector<[64, 64], f32>):
      %20 = ttarget.load %0, %5, %18 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 100*_m, pattern = "contiguous", align = 4, guarded = ["_k"], bounds = [100]} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %21 = ttarget.load %1, %6, %18 {coords = ["_n", "_k"], axes = ["_n", "_k"], offset = _k + 100*_n, pattern = "contiguous", align = 4, guarded = ["_k"], bounds = [100]} : (!ttile.buffer<[256, 100], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 16], f32>
      %22 = ttarget.transpose %21 : (!ttarget.vector<[64, 16], f32>) -> !ttarget.vector<[16, 64], f32>
      %23 = ttarget.dot %20, %22, %19 : (!ttarget.vector<[64, 16], f32>, !ttarget.vector<[16, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %23 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    ttarget.store %17, %2, %5, %6 {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = 256*_m + _n, pattern = "contiguous", align = 4} : (!ttarget.vector<[64, 64], f32>, !ttile.buffer<[256, 256], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
