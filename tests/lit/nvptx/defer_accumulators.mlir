// RUN: tessera-opt %s --split -p nvptx-defer-accumulators | filecheck %s

// The second sum is chosen only where the first is infinite.
// CHECK-LABEL: ttarget.kernel @rare(
// CHECK:         ttarget.loop %{{.*}} {step = 32, unroll = 0, nvptx.deferred = [[1, 0]]}
ttarget.kernel @rare(%0: !ttile.buffer<[64, 8192], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, warps_per_row = 4} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 8192} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6, %7 = ttarget.loop %3, %4, %5, %5 {step = 32, unroll = 0} ({
    ^bb0(%8: !ttile.index, %9: !ttarget.vector<[32], f32>, %10: !ttarget.vector<[32], f32>):
      %11 = ttarget.load %0, %2, %8 {coords = ["p", "i"], axes = ["i"], offset = i + 8192*p, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 8192], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32], f32>
      %12 = ttarget.elementwise %9, %11 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %13 = ttarget.elementwise %10, %11 {fn = "sub"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      ttarget.yield %12, %13 : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>)
    %14 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    %15 = ttarget.reduce %7 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    %16 = ttarget.elementwise %14 {fn = "isinf"} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[], bool>
    %17 = ttarget.select %16, %15, %14 : (!ttarget.vector<[], bool>, !ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %17, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A NaN says nothing of how large the first sum was.
// CHECK-LABEL: ttarget.kernel @often(
// CHECK:         ttarget.loop %{{.*}} {step = 32, unroll = 0} ({
ttarget.kernel @often(%0: !ttile.buffer<[64, 8192], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, warps_per_row = 4} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 8192} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6, %7 = ttarget.loop %3, %4, %5, %5 {step = 32, unroll = 0} ({
    ^bb0(%8: !ttile.index, %9: !ttarget.vector<[32], f32>, %10: !ttarget.vector<[32], f32>):
      %11 = ttarget.load %0, %2, %8 {coords = ["p", "i"], axes = ["i"], offset = i + 8192*p, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 8192], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32], f32>
      %12 = ttarget.elementwise %9, %11 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %13 = ttarget.elementwise %10, %11 {fn = "sub"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      ttarget.yield %12, %13 : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>)
    %14 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    %15 = ttarget.reduce %7 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    %16 = ttarget.elementwise %14 {fn = "isnan"} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[], bool>
    %17 = ttarget.select %16, %15, %14 : (!ttarget.vector<[], bool>, !ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %17, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
