// RUN: tessera-opt %s --split -p 'nvptx-choose-vectors,nvptx-schedule-rows' | filecheck %s

// Programs of one warp are four to a block, one for each program.
// CHECK-LABEL: ttarget.kernel @row(
// CHECK-SAME:    align = 16, nvptx.programs = 4}
ttarget.kernel @row(%0: !ttile.buffer<[64, 1024], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16} {
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
// 32 iterations whose loads come first: a multiprocessor holds one block, with all of its registers.
// CHECK-LABEL: ttarget.kernel @deep(
// CHECK-SAME:    nvptx.programs = 4, nvptx.fetches_lines = true, nvptx.blocks = 1}
ttarget.kernel @deep(%0: !ttile.buffer<[64, 1024], f32>, %1: !ttile.buffer<[64], f32>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 1024} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %6 = ttarget.loop %3, %4, %5 {step = 32, unroll = 32} ({
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
// Eight warps share a row of a known width: a block has one row.
// CHECK-LABEL: ttarget.kernel @known(
// CHECK-SAME:    warps_per_row = 8, nvptx.leaves = 1}
ttarget.kernel @known(%0: !ttile.buffer<[64, 8192], bf16>, %1: !ttile.buffer<[64], bf16>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, warps_per_row = 8, nvptx.leaves = 1} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 8192} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[1024], bf16>
    %6 = ttarget.loop %3, %4, %5 {step = 1024, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[1024], bf16>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + 8192*p, pattern = "contiguous", align = 2} : (!ttile.buffer<[64, 8192], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[1024], bf16>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[1024], bf16>, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
      ttarget.yield %10 : (!ttarget.vector<[1024], bf16>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[1024], bf16>) -> !ttarget.vector<[], bf16>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 2} : (!ttarget.vector<[], bf16>, !ttile.buffer<[64], bf16>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A row takes all warps of a multiprocessor: its block stays, and copies the next row ahead.
// CHECK-LABEL: ttarget.kernel @ahead(
// CHECK-SAME:    warps_per_row = 32, nvptx.leaves = 1, nvptx.streamed = true, nvptx.launched = 1}
ttarget.kernel @ahead(%0: !ttile.buffer<[64, 32768], bf16>, %1: !ttile.buffer<[64], bf16>) attributes {symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, warps_per_row = 32, nvptx.leaves = 1} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = 32768} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[1024], bf16>
    %6 = ttarget.loop %3, %4, %5 {step = 1024, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[1024], bf16>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + 32768*p, pattern = "contiguous", align = 2} : (!ttile.buffer<[64, 32768], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[1024], bf16>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[1024], bf16>, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
      ttarget.yield %10 : (!ttarget.vector<[1024], bf16>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[1024], bf16>) -> !ttarget.vector<[], bf16>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 2} : (!ttarget.vector<[], bf16>, !ttile.buffer<[64], bf16>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// So it is where the width is symbolic.
// CHECK-LABEL: ttarget.kernel @any(
// CHECK-SAME:    warps_per_row = 16, nvptx.leaves = 1}
ttarget.kernel @any(%0: !ttile.buffer<[64, N], bf16>, %1: !ttile.buffer<[64], bf16>) attributes {symbols = ["N"], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 32, align = 16, warps_per_row = 16, nvptx.leaves = 1} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = N} : () -> !ttile.index
    %5 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[1024], bf16>
    %6 = ttarget.loop %3, %4, %5 {step = 1024, unroll = 0} ({
    ^bb0(%7: !ttile.index, %8: !ttarget.vector<[1024], bf16>):
      %9 = ttarget.load %0, %2, %7 {coords = ["p", "i"], axes = ["i"], offset = i + N*p, pattern = "contiguous", align = 2} : (!ttile.buffer<[64, N], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[1024], bf16>
      %10 = ttarget.elementwise %8, %9 {fn = "add"} : (!ttarget.vector<[1024], bf16>, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
      ttarget.yield %10 : (!ttarget.vector<[1024], bf16>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[1024], bf16>) -> !ttarget.vector<[1024], bf16>
    %11 = ttarget.reduce %6 {kind = "sum", axis = 0} : (!ttarget.vector<[1024], bf16>) -> !ttarget.vector<[], bf16>
    ttarget.store %11, %1, %2 {coords = ["p"], axes = [], offset = p, pattern = "contiguous", align = 2} : (!ttarget.vector<[], bf16>, !ttile.buffer<[64], bf16>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// Scratch in global memory is for as many programs as run at a time: 16 blocks on each of 132 multiprocessors.
// CHECK-LABEL: ttarget.kernel @scratch(
// CHECK-SAME:    nvptx.programs = 4, nvptx.slots = 8448}
ttarget.kernel @scratch(%0: !ttile.buffer<[64, 32], f32>) attributes {symbols = [], writes = [0], lanes = 32, features = ["sm_80"], scratch = 128, threads = 32, align = 16} {
  ttarget.programs {grid = [64]} ({
  ^bb0(%1: !ttile.index):
    %2 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %3 = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[32], f32>
    %4 = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[32], f32>
    ttarget.store %4, %3, %2 {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttarget.vector<[32], f32>, !ttile.buffer<[32], f32>, !ttile.index) -> ()
    %5 = ttarget.load %3, %2 {coords = ["i"], axes = ["i"], offset = -i + 31, pattern = "strided", align = 4} : (!ttile.buffer<[32], f32>, !ttile.index) -> !ttarget.vector<[32], f32>
    ttarget.store %5, %0, %1, %2 {coords = ["p", "i"], axes = ["i"], offset = 32*p + i, pattern = "contiguous", align = 4} : (!ttarget.vector<[32], f32>, !ttile.buffer<[64, 32], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
