// RUN: tessera-opt %s --split -p nvptx-choose-vectors | filecheck %s

// Rows begin at 16 bytes, so that a thread has four neighbours of f32.
// CHECK-LABEL: ttarget.kernel @aligned(
// CHECK-SAME:    vector = 4
// CHECK:         ttarget.load %{{.*}} align = 16}
ttarget.kernel @aligned(%0: !ttile.buffer<[64, 1024], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 1024} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6 = ttarget.loop %3, %4, %5 {step = 32, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[32], f32>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + 1024*p, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 1024], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32], f32>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      ttarget.yield %10 : (!ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Rows of an odd number of elements begin anywhere.
// CHECK-LABEL: ttarget.kernel @odd(
// CHECK-NOT:     vector =
// CHECK:         ttarget.load %{{.*}} align = 4}
ttarget.kernel @odd(%0: !ttile.buffer<[64, 1001], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 1001} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6 = ttarget.loop %3, %4, %5 {step = 32, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[32], f32>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + 1001*p, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 1001], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32], f32>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      ttarget.yield %10 : (!ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// No more than the author asks for.
// CHECK-LABEL: ttarget.kernel @asked(
// CHECK-SAME:    vector = 2
ttarget.kernel @asked(%0: !ttile.buffer<[64, 1024], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, nvptx.most_neighbours = 2} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 1024} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6 = ttarget.loop %3, %4, %5 {step = 32, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[32], f32>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + 1024*p, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 1024], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32], f32>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      ttarget.yield %10 : (!ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[64], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A block begins at a row that is a multiple of 4, and has the rows behind it too: 2 elements further each.
// CHECK-LABEL: ttarget.kernel @rows(
// CHECK-SAME:    vector = 2
// CHECK:         ttarget.load %{{.*}} align = 8}
ttarget.kernel @rows(%0: !ttile.buffer<[64, 2], f32>) attributes {symbols = [], writes = [0], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16} {
  ttarget.programs {grid = [1]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index %2 {names = ["p"], expr = 4*p} : (!ttile.index) -> !ttile.index
    %9 = ttarget.load %0, %4, %3 {coords = ["i", "j"], axes = ["i", "j"], offset = 2*i + j, pattern = "contiguous", align = 4} : (!ttile.buffer<[64, 2], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[4, 2], f32>
    ttarget.store %9, %0, %4, %3 {coords = ["i", "j"], axes = ["i", "j"], offset = 2*i + j, pattern = "contiguous", align = 4} : (!ttarget.vector<[4, 2], f32>, !ttile.buffer<[64, 2], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
