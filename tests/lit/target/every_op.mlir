// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
// CHECK-LABEL: ttarget.kernel @sort_rows_796451a427(
// CHECK: ttarget.barrier
// CHECK: ttarget.sort
ttarget.kernel @sort_rows_796451a427(%0: !ttile.buffer<[s0, s1], f32>, %1: !ttile.buffer<[s0, s1], f32>) attributes {symbols = ["s0", "s1"], writes = [1], lanes = 32, features = ["sm_80"], scratch = 128*((4*s1 + 63) floordiv 64) + 128*((8*s1 + 63) floordiv 64), threads = 256, align = 16} {
  ttarget.programs {grid = [s0]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %4 = ttarget.index {names = [], expr = s1} : () -> !ttile.index
    %5 = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[s1], f32>
    %6 = ttarget.scratch {offset = 64*((4*s1 + 63) floordiv 64)} : () -> !ttile.buffer<[s1], f32>
    %7 = ttarget.scratch {offset = 128*((4*s1 + 63) floordiv 64)} : () -> !ttile.buffer<[s1], i64>
    %8 = ttarget.scratch {offset = 128*((4*s1 + 63) floordiv 64) + 64*((8*s1 + 63) floordiv 64)} : () -> !ttile.buffer<[s1], i64>
    ttarget.loop %3, %4 {step = 64, unroll = 8} ({
    ^bb0(%9: !ttile.index):
      %10 = ttarget.load %0, %2, %9 {coords = ["_i", "_j"], axes = ["_j"], offset = _i*s1 + _j, pattern = "contiguous", align = 4} : (!ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %10, %5, %9 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16} : (!ttarget.vector<[64], f32>, !ttile.buffer<[s1], f32>, !ttile.index) -> ()
      %11 = ttarget.coordinate %9 {coords = ["_j"], axes = ["_j"], expr = _j} : (!ttile.index) -> !ttarget.vector<[64], i64>
      ttarget.store %11, %7, %9 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16} : (!ttarget.vector<[64], i64>, !ttile.buffer<[s1], i64>, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.tail %3, %4 {step = 64} ({
    ^bb0(%12: !ttile.index):
      %13 = ttarget.load %0, %2, %12 {coords = ["_i", "_j"], axes = ["_j"], offset = _i*s1 + _j, pattern = "contiguous", align = 4, guarded = ["_j"], bounds = [s1]} : (!ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %13, %5, %12 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16, guarded = ["_j"], bounds = [s1]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[s1], f32>, !ttile.index) -> ()
      %14 = ttarget.coordinate %12 {coords = ["_j"], axes = ["_j"], expr = _j} : (!ttile.index) -> !ttarget.vector<[64], i64>
      ttarget.store %14, %7, %12 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16, guarded = ["_j"], bounds = [s1]} : (!ttarget.vector<[64], i64>, !ttile.buffer<[s1], i64>, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.barrier
    ttarget.sort %5, %7, %6, %8, %4 : (!ttile.buffer<[s1], f32>, !ttile.buffer<[s1], i64>, !ttile.buffer<[s1], f32>, !ttile.buffer<[s1], i64>, !ttile.index) -> ()
    ttarget.barrier
    ttarget.loop %3, %4 {step = 64, unroll = 8} ({
    ^bb0(%15: !ttile.index):
      %16 = ttarget.load %5, %15 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16} : (!ttile.buffer<[s1], f32>, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %16, %1, %2, %15 {coords = ["_i", "_j"], axes = ["_j"], offset = _i*s1 + _j, pattern = "contiguous", align = 4} : (!ttarget.vector<[64], f32>, !ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.tail %3, %4 {step = 64} ({
    ^bb0(%17: !ttile.index):
      %18 = ttarget.load %5, %17 {coords = ["_j"], axes = ["_j"], offset = _j, pattern = "contiguous", align = 16, guarded = ["_j"], bounds = [s1]} : (!ttile.buffer<[s1], f32>, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %18, %1, %2, %17 {coords = ["_i", "_j"], axes = ["_j"], offset = _i*s1 + _j, pattern = "contiguous", align = 4, guarded = ["_j"], bounds = [s1]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[s0, s1], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @matmul_add_fused_fbe4013a45(
// CHECK: ttarget.dot
ttarget.kernel @matmul_add_fused_fbe4013a45(%0: !ttile.buffer<[4, 8], f32>, %1: !ttile.buffer<[8, 16], f32>, %2: !ttile.buffer<[16], f32>, %3: !ttile.buffer<[4, 16], f32>) attributes {symbols = [], writes = [3], lanes = 32, features = ["sm_80"], scratch = 0, threads = 256, vector = 4, align = 16} {
  ttarget.programs {grid = [1, 1]} ({
  ^bb0(%4: !ttile.index, %5: !ttile.index):
    %6 = ttarget.index %4 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
    %7 = ttarget.index %5 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
    %8 = ttarget.constant {value = 0} : () -> !ttarget.vector<[64, 64], f32>
    %9 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %10 = ttarget.index {names = [], expr = 8} : () -> !ttile.index
    %11 = ttarget.loop %9, %10, %8 {step = 64} ({
    ^bb0(%12: !ttile.index, %13: !ttarget.vector<[64, 64], f32>):
      %14 = ttarget.load %0, %6, %12 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 8*_m, pattern = "contiguous", align = 16, guarded = ["_m"], bounds = [4]} : (!ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 64], f32>
      %15 = ttarget.load %1, %7, %12 {coords = ["_n", "_k"], axes = ["_k", "_n"], offset = 16*_k + _n, pattern = "contiguous", align = 16, guarded = ["_n"], bounds = [16]} : (!ttile.buffer<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 64], f32>
      %16 = ttarget.dot %14, %15, %13 : (!ttarget.vector<[64, 64], f32>, !ttarget.vector<[64, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %16 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    %17 = ttarget.tail %9, %10, %11 {step = 64} ({
    ^bb0(%18: !ttile.index, %19: !ttarget.vector<[64, 64], f32>):
      %20 = ttarget.load %0, %6, %18 {coords = ["_m", "_k"], axes = ["_m", "_k"], offset = _k + 8*_m, pattern = "contiguous", align = 16, guarded = ["_m", "_k"], bounds = [4, 8]} : (!ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 64], f32>
      %21 = ttarget.load %1, %7, %18 {coords = ["_n", "_k"], axes = ["_k", "_n"], offset = 16*_k + _n, pattern = "contiguous", align = 16, guarded = ["_k", "_n"], bounds = [8, 16]} : (!ttile.buffer<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 64], f32>
      %22 = ttarget.dot %20, %21, %19 : (!ttarget.vector<[64, 64], f32>, !ttarget.vector<[64, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
      ttarget.yield %22 : (!ttarget.vector<[64, 64], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    %23 = ttarget.load %2, %6, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = _n, pattern = "contiguous", align = 16, guarded = ["_m", "_n"], bounds = [4, 16]} : (!ttile.buffer<[16], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[64, 64], f32>
    %24 = ttarget.elementwise %17, %23 {fn = "add"} : (!ttarget.vector<[64, 64], f32>, !ttarget.vector<[64, 64], f32>) -> !ttarget.vector<[64, 64], f32>
    ttarget.store %24, %3, %6, %7 {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = 16*_m + _n, pattern = "contiguous", align = 16, guarded = ["_m", "_n"], bounds = [4, 16]} : (!ttarget.vector<[64, 64], f32>, !ttile.buffer<[4, 16], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @attention_052ef2514b(
// CHECK: ttarget.transpose
ttarget.kernel @attention_052ef2514b(%0: !ttile.buffer<[s0, s1, s2, s3], f32>, %1: !ttile.buffer<[s0, s1, s2, s3], f32>, %2: !ttile.buffer<[s0, s1, s2, s3], f32>, %3: !ttile.buffer<[s0, s1, s2, s3], f32>) attributes {symbols = ["s0", "s1", "s2", "s3"], writes = [3], lanes = 32, features = ["sm_80"], scratch = 0, threads = 256, align = 16} {
  ttarget.programs {grid = [s0, s1, ((s2 + 31) floordiv 32), ((s3 + 63) floordiv 64)]} ({
  ^bb0(%4: !ttile.index, %5: !ttile.index, %6: !ttile.index, %7: !ttile.index):
    %8 = ttarget.index %6 {names = ["_p"], expr = 32*_p} : (!ttile.index) -> !ttile.index
    %9 = ttarget.index %7 {names = ["_p"], expr = 64*_p} : (!ttile.index) -> !ttile.index
    %10 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %11 = ttarget.load %0, %4, %5, %8, %10 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_i", "_d"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 64], f32>
    %12 = ttarget.coordinate %8 {coords = ["_i"], axes = ["_i"], expr = max(1, s3)} : (!ttile.index) -> !ttarget.vector<[32], i64>
    %13 = ttarget.cast %12 {rounding = "nearest_even"} : (!ttarget.vector<[32], i64>) -> !ttarget.vector<[32], f32>
    %14 = ttarget.elementwise %13 {fn = "sqrt"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %15 = ttarget.constant {value = 1.4426950408889634} : () -> !ttarget.vector<[32], f32>
    %16 = ttarget.elementwise %15, %14 {fn = "div"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %17 = ttarget.broadcast %16 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
    %18 = ttarget.elementwise %11, %17 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
    %19 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32, 64], f32>
    %20 = ttarget.constant {value = -inf} : () -> !ttarget.vector<[32], f32>
    %21 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %22 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %23 = ttarget.index {names = [], expr = s2} : () -> !ttile.index
    %24, %25, %26 = ttarget.loop %22, %23, %19, %20, %21 {step = 256} ({
    ^bb0(%27: !ttile.index, %28: !ttarget.vector<[32, 64], f32>, %29: !ttarget.vector<[32], f32>, %30: !ttarget.vector<[32], f32>):
      %31 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %32 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32, 256], f32>
      %33 = ttarget.load %1, %4, %5, %27, %31 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_d"], bounds = [s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
      %34 = ttarget.transpose %33 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
      %35 = ttarget.dot %18, %34, %32 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %36 = ttarget.index {names = [], expr = 64} : () -> !ttile.index
      %37 = ttarget.index {names = [], expr = s3} : () -> !ttile.index
      %38 = ttarget.loop %36, %37, %35 {step = 64} ({
      ^bb0(%39: !ttile.index, %40: !ttarget.vector<[32, 256], f32>):
        %41 = ttarget.load %0, %4, %5, %8, %39 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_i"], bounds = [s2]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 64], f32>
        %42 = ttarget.coordinate %8 {coords = ["_i"], axes = ["_i"], expr = max(1, s3)} : (!ttile.index) -> !ttarget.vector<[32], i64>
        %43 = ttarget.cast %42 {rounding = "nearest_even"} : (!ttarget.vector<[32], i64>) -> !ttarget.vector<[32], f32>
        %44 = ttarget.elementwise %43 {fn = "sqrt"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %45 = ttarget.constant {value = 1.4426950408889634} : () -> !ttarget.vector<[32], f32>
        %46 = ttarget.elementwise %45, %44 {fn = "div"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %47 = ttarget.broadcast %46 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
        %48 = ttarget.elementwise %41, %47 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
        %49 = ttarget.load %1, %4, %5, %27, %39 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
        %50 = ttarget.transpose %49 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
        %51 = ttarget.dot %48, %50, %40 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
        ttarget.yield %51 : (!ttarget.vector<[32, 256], f32>) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %52 = ttarget.tail %36, %37, %38 {step = 64} ({
      ^bb0(%53: !ttile.index, %54: !ttarget.vector<[32, 256], f32>):
        %55 = ttarget.load %0, %4, %5, %8, %53 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_i", "_d"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 64], f32>
        %56 = ttarget.coordinate %8 {coords = ["_i"], axes = ["_i"], expr = max(1, s3)} : (!ttile.index) -> !ttarget.vector<[32], i64>
        %57 = ttarget.cast %56 {rounding = "nearest_even"} : (!ttarget.vector<[32], i64>) -> !ttarget.vector<[32], f32>
        %58 = ttarget.elementwise %57 {fn = "sqrt"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %59 = ttarget.constant {value = 1.4426950408889634} : () -> !ttarget.vector<[32], f32>
        %60 = ttarget.elementwise %59, %58 {fn = "div"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %61 = ttarget.broadcast %60 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
        %62 = ttarget.elementwise %55, %61 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
        %63 = ttarget.load %1, %4, %5, %27, %53 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_d"], bounds = [s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
        %64 = ttarget.transpose %63 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
        %65 = ttarget.dot %62, %64, %54 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
        ttarget.yield %65 : (!ttarget.vector<[32, 256], f32>) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %66 = ttarget.reduce %52 {kind = "max", axis = 1} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32], f32>
      %67 = ttarget.elementwise %29, %66 {fn = "max"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %68 = ttarget.constant {value = -inf} : () -> !ttarget.vector<[32], f32>
      %69 = ttarget.elementwise %67, %68 {fn = "eq"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], bool>
      %70 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
      %71 = ttarget.select %69, %70, %67 : (!ttarget.vector<[32], bool>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %72 = ttarget.broadcast %71 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 256], f32>
      %73 = ttarget.elementwise %52, %72 {fn = "sub"} : (!ttarget.vector<[32, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %74 = ttarget.elementwise %73 {fn = "exp2"} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %75 = ttarget.elementwise %29, %71 {fn = "sub"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %76 = ttarget.elementwise %75 {fn = "exp2"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %77 = ttarget.elementwise %30, %76 {fn = "mul"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %78 = ttarget.reduce %74 {kind = "sum", axis = 1} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32], f32>
      %79 = ttarget.elementwise %77, %78 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %80 = ttarget.broadcast %76 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
      %81 = ttarget.elementwise %28, %80 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
      %82 = ttarget.load %2, %4, %5, %9, %27 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _e, pattern = "contiguous", align = 4, guarded = ["_e"], bounds = [s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
      %83 = ttarget.dot %74, %82, %81 : (!ttarget.vector<[32, 256], f32>, !ttarget.vector<[256, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
      ttarget.yield %83, %67, %79 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>)
    %84, %85, %86 = ttarget.tail %22, %23, %24, %25, %26 {step = 256} ({
    ^bb0(%87: !ttile.index, %88: !ttarget.vector<[32, 64], f32>, %89: !ttarget.vector<[32], f32>, %90: !ttarget.vector<[32], f32>):
      %91 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %92 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32, 256], f32>
      %93 = ttarget.load %1, %4, %5, %87, %91 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_j", "_d"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
      %94 = ttarget.transpose %93 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
      %95 = ttarget.dot %18, %94, %92 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %96 = ttarget.index {names = [], expr = 64} : () -> !ttile.index
      %97 = ttarget.index {names = [], expr = s3} : () -> !ttile.index
      %98 = ttarget.loop %96, %97, %95 {step = 64} ({
      ^bb0(%99: !ttile.index, %100: !ttarget.vector<[32, 256], f32>):
        %101 = ttarget.load %0, %4, %5, %8, %99 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_i"], bounds = [s2]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 64], f32>
        %102 = ttarget.coordinate %8 {coords = ["_i"], axes = ["_i"], expr = max(1, s3)} : (!ttile.index) -> !ttarget.vector<[32], i64>
        %103 = ttarget.cast %102 {rounding = "nearest_even"} : (!ttarget.vector<[32], i64>) -> !ttarget.vector<[32], f32>
        %104 = ttarget.elementwise %103 {fn = "sqrt"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %105 = ttarget.constant {value = 1.4426950408889634} : () -> !ttarget.vector<[32], f32>
        %106 = ttarget.elementwise %105, %104 {fn = "div"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %107 = ttarget.broadcast %106 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
        %108 = ttarget.elementwise %101, %107 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
        %109 = ttarget.load %1, %4, %5, %87, %99 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_j"], bounds = [s2]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
        %110 = ttarget.transpose %109 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
        %111 = ttarget.dot %108, %110, %100 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
        ttarget.yield %111 : (!ttarget.vector<[32, 256], f32>) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %112 = ttarget.tail %96, %97, %98 {step = 64} ({
      ^bb0(%113: !ttile.index, %114: !ttarget.vector<[32, 256], f32>):
        %115 = ttarget.load %0, %4, %5, %8, %113 {coords = ["_b", "_h", "_i", "_d"], axes = ["_i", "_d"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_i", "_d"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 64], f32>
        %116 = ttarget.coordinate %8 {coords = ["_i"], axes = ["_i"], expr = max(1, s3)} : (!ttile.index) -> !ttarget.vector<[32], i64>
        %117 = ttarget.cast %116 {rounding = "nearest_even"} : (!ttarget.vector<[32], i64>) -> !ttarget.vector<[32], f32>
        %118 = ttarget.elementwise %117 {fn = "sqrt"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %119 = ttarget.constant {value = 1.4426950408889634} : () -> !ttarget.vector<[32], f32>
        %120 = ttarget.elementwise %119, %118 {fn = "div"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
        %121 = ttarget.broadcast %120 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
        %122 = ttarget.elementwise %115, %121 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
        %123 = ttarget.load %1, %4, %5, %87, %113 {coords = ["_b", "_g", "_j", "_d"], axes = ["_j", "_d"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _d, pattern = "contiguous", align = 4, guarded = ["_j", "_d"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
        %124 = ttarget.transpose %123 : (!ttarget.vector<[256, 64], f32>) -> !ttarget.vector<[64, 256], f32>
        %125 = ttarget.dot %122, %124, %114 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[64, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
        ttarget.yield %125 : (!ttarget.vector<[32, 256], f32>) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %126 = ttarget.clip %112, %8, %87 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = s2, identity = -inf} : (!ttarget.vector<[32, 256], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[32, 256], f32>
      %127 = ttarget.reduce %126 {kind = "max", axis = 1} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32], f32>
      %128 = ttarget.elementwise %89, %127 {fn = "max"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %129 = ttarget.constant {value = -inf} : () -> !ttarget.vector<[32], f32>
      %130 = ttarget.elementwise %128, %129 {fn = "eq"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], bool>
      %131 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
      %132 = ttarget.select %130, %131, %128 : (!ttarget.vector<[32], bool>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %133 = ttarget.broadcast %132 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 256], f32>
      %134 = ttarget.elementwise %126, %133 {fn = "sub"} : (!ttarget.vector<[32, 256], f32>, !ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %135 = ttarget.elementwise %134 {fn = "exp2"} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32, 256], f32>
      %136 = ttarget.elementwise %89, %132 {fn = "sub"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %137 = ttarget.elementwise %136 {fn = "exp2"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %138 = ttarget.elementwise %90, %137 {fn = "mul"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %139 = ttarget.reduce %135 {kind = "sum", axis = 1} : (!ttarget.vector<[32, 256], f32>) -> !ttarget.vector<[32], f32>
      %140 = ttarget.elementwise %138, %139 {fn = "add"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
      %141 = ttarget.broadcast %137 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
      %142 = ttarget.elementwise %88, %141 {fn = "mul"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
      %143 = ttarget.load %2, %4, %5, %9, %87 {coords = ["_b", "_g", "_e", "_j"], axes = ["_j", "_e"], offset = _b*s1*s2*s3 + _g*s2*s3 + _j*s3 + _e, pattern = "contiguous", align = 4, guarded = ["_j", "_e"], bounds = [s2, s3]} : (!ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[256, 64], f32>
      %144 = ttarget.dot %135, %143, %142 : (!ttarget.vector<[32, 256], f32>, !ttarget.vector<[256, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
      ttarget.yield %144, %128, %140 : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>)
    %145 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[32], f32>
    %146 = ttarget.elementwise %86, %145 {fn = "eq"} : (!ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], bool>
    %147 = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[32], f32>
    %148 = ttarget.select %146, %147, %86 : (!ttarget.vector<[32], bool>, !ttarget.vector<[32], f32>, !ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %149 = ttarget.broadcast %148 {axes = [0]} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32, 64], f32>
    %150 = ttarget.elementwise %84, %149 {fn = "div"} : (!ttarget.vector<[32, 64], f32>, !ttarget.vector<[32, 64], f32>) -> !ttarget.vector<[32, 64], f32>
    ttarget.store %150, %3, %4, %5, %8, %9 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], offset = _b*s1*s2*s3 + _h*s2*s3 + _i*s3 + _e, pattern = "contiguous", align = 4, guarded = ["_i", "_e"], bounds = [s2, s3]} : (!ttarget.vector<[32, 64], f32>, !ttile.buffer<[s0, s1, s2, s3], f32>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @matmul_relu_ba2a423537__matrix(
// CHECK: ttarget.shared_tile{{.*}} {offset = 0, stages = 8}
// CHECK: ttarget.ring{{.*}} {offset = 147456, stages = 8}
// CHECK: ttarget.tensor_map{{.*}} {box = [64, 64]}
// CHECK: ttarget.roles
// CHECK: ttarget.cursor
// CHECK: ttarget.tiles{{.*}} {grid = [4, 8], group = 16}
// CHECK: ttarget.steps{{.*}} {step = 64}
// CHECK: ttarget.acquire
// CHECK: ttarget.copy
// CHECK: ttarget.advance
// CHECK: ttarget.mma_open
// CHECK: ttarget.await
// CHECK: ttarget.mma_issue
// CHECK: ttarget.mma_wait{{.*}} {left = 1}
// CHECK: ttarget.release
// CHECK: ttarget.store_tile{{.*}} {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]}
ttarget.matrix_kernel @matmul_relu_ba2a423537__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[512, 192], bf16>, %2: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 147584} {
  %3 = ttarget.shared_tile {offset = 0, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 65536, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 131072, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.ring %3, %4 {offset = 147456, stages = 8} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %7 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %8 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[512, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %2 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %10 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %10 {grid = [4, 8], group = 16} ({
    ^bb0(%11: !ttile.index, %12: !ttile.index, %13: !ttarget.cursor):
      %14 = ttarget.index %11 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %15 = ttarget.index %12 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %17 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
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
    ttarget.tiles %26 {grid = [4, 8], group = 16} ({
    ^bb0(%27: !ttile.index, %28: !ttile.index, %29: !ttarget.cursor):
      %30 = ttarget.index %27 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %31 = ttarget.index %28 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %32 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
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
      %47 = ttarget.cast %46 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %48 = ttarget.elementwise %47 {fn = "relu"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      %49 = ttarget.cast %48 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %49, %9, %5, %2, %30, %31 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %37 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @attention_c4f4f15f86__matrix(
// CHECK: ttarget.when
// CHECK: ttarget.reduce_rows{{.*}} {kind = "max"}
// CHECK: ttarget.pack
// CHECK: ttarget.pingpong{{.*}} {mode = "take"}
ttarget.matrix_kernel @attention_c4f4f15f86__matrix(%0: !ttile.buffer<[1, 1, 256, 128], bf16>, %1: !ttile.buffer<[1, 1, 256, 128], bf16>, %2: !ttile.buffer<[1, 1, 256, 128], bf16>, %3: !ttile.buffer<[1, 1, 256, 128], bf16>) attributes {symbols = [], grid = [1, 1, 2], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [24, 240], shared = 196728} {
  %4 = ttarget.shared_tile {offset = 0} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %5 = ttarget.shared_tile {offset = 32768, stages = 2} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %6 = ttarget.shared_tile {offset = 98304, stages = 2} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %7 = ttarget.shared_tile {offset = 163840, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %8 = ttarget.ring %4 {offset = 196648, stages = 1} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %9 = ttarget.tensor_map %0 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.ring %5 {offset = 196664, stages = 2} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %11 = ttarget.tensor_map %1 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %12 = ttarget.ring %6 {offset = 196696, stages = 2} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %13 = ttarget.tensor_map %2 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %14 = ttarget.tensor_map %3 {box = [1, 1, 64, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %15 = ttarget.cursor : () -> !ttarget.cursor
    %16 = ttarget.cursor : () -> !ttarget.cursor
    %17 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %15, %16, %17 {grid = [1, 1, 2], group = 16, is_descending = true, mailbox = 196608} ({
    ^bb0(%18: !ttile.index, %19: !ttile.index, %20: !ttile.index, %21: !ttarget.cursor, %22: !ttarget.cursor, %23: !ttarget.cursor):
      %24 = ttarget.index %20 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
      %25 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %26 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      ttarget.acquire %8, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
      %27 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
      %28 = ttarget.index %19 {names = ["_h"], expr = _h} : (!ttile.index) -> !ttile.index
      %29 = ttarget.index %24 {names = ["_i"], expr = _i} : (!ttile.index) -> !ttile.index
      %30 = ttarget.index %26 {names = ["_d"], expr = _d} : (!ttile.index) -> !ttile.index
      ttarget.copy %9, %8, %21, %4, %27, %28, %29, %30 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      %31 = ttarget.advance %8, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
      %32 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %33 = ttarget.index %24 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
      %34, %35 = ttarget.steps %32, %33, %22, %23 {step = 128} ({
      ^bb0(%36: !ttile.index, %37: !ttarget.cursor, %38: !ttarget.cursor):
        %39 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.acquire %10, %37 : (!ttarget.ring, !ttarget.cursor) -> ()
        %40 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
        %41 = ttarget.index %19 {names = ["_g"], expr = _g} : (!ttile.index) -> !ttile.index
        %42 = ttarget.index %36 {names = ["_j"], expr = _j} : (!ttile.index) -> !ttile.index
        %43 = ttarget.index %39 {names = ["_d"], expr = _d} : (!ttile.index) -> !ttile.index
        ttarget.copy %11, %10, %37, %5, %40, %41, %42, %43 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %10, %37 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        %45 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.acquire %12, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
        %46 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
        %47 = ttarget.index %19 {names = ["_g"], expr = _g} : (!ttile.index) -> !ttile.index
        %48 = ttarget.index %36 {names = ["_j"], expr = _j} : (!ttile.index) -> !ttile.index
        %49 = ttarget.index %25 {names = ["_e"], expr = _e} : (!ttile.index) -> !ttile.index
        ttarget.copy %13, %12, %38, %6, %46, %47, %48, %49 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
        %50 = ttarget.advance %12, %38 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %50 : (!ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.cursor, !ttarget.cursor)
      ttarget.yield %31, %34, %35 : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %51 = ttarget.cursor : () -> !ttarget.cursor
    %52 = ttarget.cursor : () -> !ttarget.cursor
    %53 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %51, %52, %53 {grid = [1, 1, 2], group = 16, is_descending = true, mailbox = 196608} ({
    ^bb0(%54: !ttile.index, %55: !ttile.index, %56: !ttile.index, %57: !ttarget.cursor, %58: !ttarget.cursor, %59: !ttarget.cursor):
      %60 = ttarget.index %56 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
      %61 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %62 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %63 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
      %64 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
      %65 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
      %66 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %67 = ttarget.index %60 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
      ttarget.await %8, %57 : (!ttarget.ring, !ttarget.cursor) -> ()
      %68, %69, %70, %71, %72 = ttarget.when %66, %67, %63, %64, %65, %58, %59 ({
        %73 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %74 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
        %75 = ttarget.mma_open %74 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
        ttarget.await %10, %58 : (!ttarget.ring, !ttarget.cursor) -> ()
        %76 = ttarget.mma_issue %75, %4, %5, %57, %58 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        %77 = ttarget.mma_wait %76 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        ttarget.release %10, %58 : (!ttarget.ring, !ttarget.cursor) -> ()
        %78 = ttarget.advance %10, %58 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        %79 = ttarget.clip %77, %60, %66 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttarget.fragment<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], f32>
        %80 = ttarget.reduce_rows %79 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
        %81 = ttarget.elementwise %64, %80 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %82 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
        %83 = ttarget.elementwise %81, %82 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
        %84 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
        %85 = ttarget.select %83, %84, %81 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %86 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
        %87 = ttarget.elementwise %85, %86 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %88 = ttarget.elementwise %87 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %89 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %90 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
        %91 = ttarget.broadcast %88 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %92 = ttarget.elementwise %79, %90, %91 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %93 = ttarget.elementwise %92 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %94 = ttarget.elementwise %64, %86, %88 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %95 = ttarget.elementwise %94 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %96 = ttarget.elementwise %65, %95 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %97 = ttarget.reduce_rows %93 {kind = "sum"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
        %98 = ttarget.elementwise %96, %97 {fn = "add"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %99 = ttarget.broadcast %95 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %100 = ttarget.elementwise %63, %99 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %101 = ttarget.cast %93 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        %102 = ttarget.pack %101 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
        %103 = ttarget.index %66 {names = ["_l"], expr = _l + 128} : (!ttile.index) -> !ttile.index
        %104 = ttarget.index %103, %67, %60 {names = ["_begin", "_high", "_i"], expr = max(_begin, min(128*((-_begin + min(256, _i + 1)) floordiv 128) + _begin, _high))} : (!ttile.index, !ttile.index, !ttile.index) -> !ttile.index
        %105, %106, %107, %108, %109, %110 = ttarget.steps %103, %104, %100, %81, %98, %102, %78, %59 {step = 128} ({
        ^bb0(%111: !ttile.index, %112: !ttarget.fragment<[128, 128], f32>, %113: !ttarget.row_vector<[128], f32>, %114: !ttarget.row_vector<[128], f32>, %115: !ttarget.operand<[128, 128], bf16>, %116: !ttarget.cursor, %117: !ttarget.cursor):
          %118 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %119 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
          %120 = ttarget.mma_open %119 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %10, %116 : (!ttarget.ring, !ttarget.cursor) -> ()
          ttarget.pingpong {mode = "take"}
          %121 = ttarget.mma_issue %120, %4, %5, %57, %116 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %12, %117 : (!ttarget.ring, !ttarget.cursor) -> ()
          %122 = ttarget.mma_open %112 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          %123 = ttarget.mma_issue %122, %115, %6, %57, %117 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.pingpong {mode = "pass"}
          %124 = ttarget.mma_wait %121 {left = 1} : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %10, %116 : (!ttarget.ring, !ttarget.cursor) -> ()
          %125 = ttarget.advance %10, %116 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %126 = ttarget.reduce_rows %124 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %127 = ttarget.elementwise %113, %126 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %128 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
          %129 = ttarget.elementwise %127, %128 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
          %130 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
          %131 = ttarget.select %129, %130, %127 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %132 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
          %133 = ttarget.elementwise %131, %132 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %134 = ttarget.elementwise %133 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %135 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %136 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
          %137 = ttarget.broadcast %134 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %138 = ttarget.elementwise %124, %136, %137 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %139 = ttarget.elementwise %138 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %140 = ttarget.elementwise %113, %132, %134 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %141 = ttarget.elementwise %140 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %142 = ttarget.elementwise %114, %141 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %143 = ttarget.reduce_rows %139 {kind = "sum"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %144 = ttarget.elementwise %142, %143 {fn = "add"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %145 = ttarget.broadcast %141 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %146 = ttarget.mma_wait %123 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %12, %117 : (!ttarget.ring, !ttarget.cursor) -> ()
          %147 = ttarget.advance %12, %117 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %148 = ttarget.elementwise %146, %145 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %149 = ttarget.cast %139 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
          %150 = ttarget.pack %149 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
          ttarget.yield %148, %127, %144, %150, %125, %147 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor)
        %151, %152, %153, %154, %155, %156 = ttarget.steps %104, %67, %105, %106, %107, %108, %109, %110 {step = 128} ({
        ^bb0(%157: !ttile.index, %158: !ttarget.fragment<[128, 128], f32>, %159: !ttarget.row_vector<[128], f32>, %160: !ttarget.row_vector<[128], f32>, %161: !ttarget.operand<[128, 128], bf16>, %162: !ttarget.cursor, %163: !ttarget.cursor):
          %164 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %165 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
          %166 = ttarget.mma_open %165 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %10, %162 : (!ttarget.ring, !ttarget.cursor) -> ()
          ttarget.pingpong {mode = "take"}
          %167 = ttarget.mma_issue %166, %4, %5, %57, %162 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %12, %163 : (!ttarget.ring, !ttarget.cursor) -> ()
          %168 = ttarget.mma_open %158 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          %169 = ttarget.mma_issue %168, %161, %6, %57, %163 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.pingpong {mode = "pass"}
          %170 = ttarget.mma_wait %167 {left = 1} : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %10, %162 : (!ttarget.ring, !ttarget.cursor) -> ()
          %171 = ttarget.advance %10, %162 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %172 = ttarget.clip %170, %60, %157 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttarget.fragment<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], f32>
          %173 = ttarget.reduce_rows %172 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %174 = ttarget.elementwise %159, %173 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %175 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
          %176 = ttarget.elementwise %174, %175 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
          %177 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
          %178 = ttarget.select %176, %177, %174 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %179 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
          %180 = ttarget.elementwise %178, %179 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %181 = ttarget.elementwise %180 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %182 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %183 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
          %184 = ttarget.broadcast %181 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %185 = ttarget.elementwise %172, %183, %184 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %186 = ttarget.elementwise %185 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %187 = ttarget.elementwise %159, %179, %181 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %188 = ttarget.elementwise %187 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %189 = ttarget.elementwise %160, %188 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %190 = ttarget.reduce_rows %186 {kind = "sum"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %191 = ttarget.elementwise %189, %190 {fn = "add"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %192 = ttarget.broadcast %188 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %193 = ttarget.mma_wait %169 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %12, %163 : (!ttarget.ring, !ttarget.cursor) -> ()
          %194 = ttarget.advance %12, %163 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %195 = ttarget.elementwise %193, %192 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %196 = ttarget.cast %186 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
          %197 = ttarget.pack %196 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
          ttarget.yield %195, %174, %191, %197, %171, %194 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor)
        ttarget.await %12, %156 : (!ttarget.ring, !ttarget.cursor) -> ()
        %198 = ttarget.mma_open %151 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
        %199 = ttarget.mma_issue %198, %154, %6, %57, %156 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        %200 = ttarget.mma_wait %199 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        ttarget.release %12, %156 : (!ttarget.ring, !ttarget.cursor) -> ()
        %201 = ttarget.advance %12, %156 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %200, %152, %153, %155, %201 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor)
      ttarget.release %8, %57 : (!ttarget.ring, !ttarget.cursor) -> ()
      %202 = ttarget.advance %8, %57 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
      %203 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
      %204 = ttarget.elementwise %70, %203 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
      %205 = ttarget.constant {value = 1.0} : () -> !ttarget.row_vector<[128], f32>
      %206 = ttarget.select %204, %205, %70 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
      %207 = ttarget.broadcast %206 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
      %208 = ttarget.elementwise %68, %207 {fn = "div"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      %209 = ttarget.cast %208 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %209, %14, %7, %3, %54, %55, %60, %61 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield %202, %71, %72 : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @matmul_add_gelu_acd72395a0__matrix(
// CHECK: ttarget.fragment_load{{.*}} {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [-1, -1]}
ttarget.matrix_kernel @matmul_add_gelu_acd72395a0__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[192, 512], bf16>, %2: !ttile.buffer<[512], bf16>, %3: !ttile.buffer<[256, 512], bf16>) attributes {symbols = [], grid = [4, 8], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 147584} {
  %4 = ttarget.shared_tile {offset = 0, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.shared_tile {offset = 65536, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %6 = ttarget.shared_tile {offset = 131072, stages = 2} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %7 = ttarget.ring %4, %5 {offset = 147456, stages = 8} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %8 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %9 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[192, 512], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.tensor_map %3 {box = [64, 64]} : (!ttile.buffer<[256, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %11 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %11 {grid = [4, 8], group = 16} ({
    ^bb0(%12: !ttile.index, %13: !ttile.index, %14: !ttarget.cursor):
      %15 = ttarget.index %12 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %16 = ttarget.index %13 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %17 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %18 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %19 = ttarget.steps %17, %18, %14 {step = 64} ({
      ^bb0(%20: !ttile.index, %21: !ttarget.cursor):
        ttarget.acquire %7, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
        %22 = ttarget.index %15 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %23 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %8, %7, %21, %4, %22, %23 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %24 = ttarget.index %20 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        %25 = ttarget.index %16 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        ttarget.copy %9, %7, %21, %5, %24, %25 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %26 = ttarget.advance %7, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %26 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %19 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %27 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %27 {grid = [4, 8], group = 16} ({
    ^bb0(%28: !ttile.index, %29: !ttile.index, %30: !ttarget.cursor):
      %31 = ttarget.index %28 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %32 = ttarget.index %29 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %33 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %34 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %35 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %36 = ttarget.mma_open %33 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %37, %38, %39 = ttarget.steps %34, %35, %36, %30, %30 {step = 64, is_nonempty = true} ({
      ^bb0(%40: !ttile.index, %41: !ttarget.pending<[64, 64], f32>, %42: !ttarget.cursor, %43: !ttarget.cursor):
        ttarget.await %7, %42 : (!ttarget.ring, !ttarget.cursor) -> ()
        %44 = ttarget.mma_issue %41, %4, %5, %42, %42 {rhs_major = "mn"} : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %7, %43, %34, %40 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %45 = ttarget.advance %7, %42 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %45, %42 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %46 = ttarget.mma_wait %37 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %7, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      %48 = ttarget.cast %47 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %49 = ttarget.fragment_load %2, %31, %32 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_n], bounds = [-1, -1]} : (!ttile.buffer<[512], bf16>, !ttile.index, !ttile.index) -> !ttarget.fragment<[64, 64], bf16>
      %50 = ttarget.cast %49 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %51 = ttarget.elementwise %48, %50 {fn = "add"} : (!ttarget.fragment<[64, 64], f32>, !ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      %52 = ttarget.cast %51 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      %53 = ttarget.cast %52 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %54 = ttarget.elementwise %53 {fn = "gelu_tanh"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      %55 = ttarget.cast %54 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      ttarget.store_tile %55, %10, %6, %3, %31, %32 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[256, 512], bf16>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %38 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @matmul_gt_695f8e7a99__matrix(
// CHECK: ttarget.fragment_store{{.*}} {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]}
ttarget.matrix_kernel @matmul_gt_695f8e7a99__matrix(%0: !ttile.buffer<[256, 192], bf16>, %1: !ttile.buffer<[192, 512], bf16>, %2: !ttile.buffer<[256, 512], bool>) attributes {symbols = [], grid = [4, 8], writes = [2], features = ["wgmma", "tma", "setmaxnreg"], consumers = 1, shared = 131200} {
  %3 = ttarget.shared_tile {offset = 0, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %4 = ttarget.shared_tile {offset = 65536, stages = 8} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %5 = ttarget.ring %3, %4 {offset = 131072, stages = 8} : (!ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>) -> !ttarget.ring
  %6 = ttarget.tensor_map %0 {box = [64, 64]} : (!ttile.buffer<[256, 192], bf16>) -> !ttarget.tensor_map
  %7 = ttarget.tensor_map %1 {box = [64, 64]} : (!ttile.buffer<[192, 512], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %8 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %8 {grid = [4, 8], group = 16} ({
    ^bb0(%9: !ttile.index, %10: !ttile.index, %11: !ttarget.cursor):
      %12 = ttarget.index %9 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %13 = ttarget.index %10 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %14 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %15 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %16 = ttarget.steps %14, %15, %11 {step = 64} ({
      ^bb0(%17: !ttile.index, %18: !ttarget.cursor):
        ttarget.acquire %5, %18 : (!ttarget.ring, !ttarget.cursor) -> ()
        %19 = ttarget.index %12 {names = ["_m"], expr = _m} : (!ttile.index) -> !ttile.index
        %20 = ttarget.index %17 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %6, %5, %18, %3, %19, %20 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %21 = ttarget.index %17 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        %22 = ttarget.index %13 {names = ["_n"], expr = _n} : (!ttile.index) -> !ttile.index
        ttarget.copy %7, %5, %18, %4, %21, %22 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %23 = ttarget.advance %5, %18 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %23 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %16 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %24 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %24 {grid = [4, 8], group = 16} ({
    ^bb0(%25: !ttile.index, %26: !ttile.index, %27: !ttarget.cursor):
      %28 = ttarget.index %25 {names = ["_m"], expr = 64*_m} : (!ttile.index) -> !ttile.index
      %29 = ttarget.index %26 {names = ["_n"], expr = 64*_n} : (!ttile.index) -> !ttile.index
      %30 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[64, 64], f32>
      %31 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %32 = ttarget.index {names = [], expr = 192} : () -> !ttile.index
      %33 = ttarget.mma_open %30 : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.pending<[64, 64], f32>
      %34, %35, %36 = ttarget.steps %31, %32, %33, %27, %27 {step = 64, is_nonempty = true} ({
      ^bb0(%37: !ttile.index, %38: !ttarget.pending<[64, 64], f32>, %39: !ttarget.cursor, %40: !ttarget.cursor):
        ttarget.await %5, %39 : (!ttarget.ring, !ttarget.cursor) -> ()
        %41 = ttarget.mma_issue %38, %3, %4, %39, %39 {rhs_major = "mn"} : (!ttarget.pending<[64, 64], f32>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.shared_tile<[64, 64], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[64, 64], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %5, %40, %31, %37 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %42 = ttarget.advance %5, %39 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %41, %42, %39 : (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[64, 64], f32>, !ttarget.cursor, !ttarget.cursor)
      %43 = ttarget.mma_wait %34 : (!ttarget.pending<[64, 64], f32>) -> !ttarget.fragment<[64, 64], f32>
      ttarget.release %5, %36 : (!ttarget.ring, !ttarget.cursor) -> ()
      %44 = ttarget.cast %43 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      %45 = ttarget.cast %44 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %46 = ttarget.constant {value = 1.0} : () -> !ttarget.fragment<[64, 64], f32>
      %47 = ttarget.cast %46 {rounding = "nearest_even"} : (!ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bf16>
      %48 = ttarget.cast %47 : (!ttarget.fragment<[64, 64], bf16>) -> !ttarget.fragment<[64, 64], f32>
      %49 = ttarget.elementwise %45, %48 {fn = "gt"} : (!ttarget.fragment<[64, 64], f32>, !ttarget.fragment<[64, 64], f32>) -> !ttarget.fragment<[64, 64], bool>
      ttarget.fragment_store %49, %2, %28, %29 {coords = ["_m", "_n"], axes = ["_m", "_n"], map = [_m, _n], bounds = [-1, -1]} : (!ttarget.fragment<[64, 64], bool>, !ttile.buffer<[256, 512], bool>, !ttile.index, !ttile.index) -> ()
      ttarget.yield %35 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @attention_c4f4f15f86(
// CHECK: ttarget.block_dot
ttarget.kernel @attention_c4f4f15f86(%0: !ttile.buffer<[1, 1, 256, 128], bf16>, %1: !ttile.buffer<[1, 1, 256, 128], bf16>, %2: !ttile.buffer<[1, 1, 256, 128], bf16>, %3: !ttile.buffer<[1, 1, 256, 128], bf16>) attributes {symbols = [], writes = [3], lanes = 16, features = ["avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"], scratch = 1185024} {
  ttarget.programs {grid = [1, 1, 2]} ({
  ^bb0(%4: !ttile.index, %5: !ttile.index, %6: !ttile.index):
    %7 = ttarget.index %6 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
    %8 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %9 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %10 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %11 = ttarget.index %7 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
    %12 = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[128, 128], f32>
    %13 = ttarget.scratch {offset = 65536} : () -> !ttile.buffer<[128, 128], f32>
    %14 = ttarget.scratch {offset = 131072} : () -> !ttile.buffer<[128], f32>
    %15 = ttarget.scratch {offset = 131584} : () -> !ttile.buffer<[128], f32>
    %16 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %17 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
    ttarget.loop %16, %17 {step = 1} ({
    ^bb0(%18: !ttile.index):
      %19 = ttarget.index %7, %18 {names = ["_i", "_row"], expr = _i + _row} : (!ttile.index, !ttile.index) -> !ttile.index
      %20 = ttarget.load %0, %4, %5, %19, %9 {coords = ["_b", "_h", "_i", "_d"], axes = ["_d"], offset = 32768*_b + _d + 32768*_h + 128*_i, pattern = "contiguous", align = 2} : (!ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[128], bf16>
      %21 = ttarget.cast %20 : (!ttarget.vector<[128], bf16>) -> !ttarget.vector<[128], f32>
      %22 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.vector<[128], f32>
      %23 = ttarget.elementwise %21, %22 {fn = "mul"} : (!ttarget.vector<[128], f32>, !ttarget.vector<[128], f32>) -> !ttarget.vector<[128], f32>
      %24 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[128], f32>
      %25 = ttarget.constant {value = -inf} : () -> !ttarget.vector<[], f32>
      %26 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[], f32>
      %27 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      ttarget.store %23, %12, %18, %27 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 128*_row, pattern = "contiguous", align = 64} : (!ttarget.vector<[128], f32>, !ttile.buffer<[128, 128], f32>, !ttile.index, !ttile.index) -> ()
      %28 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      ttarget.store %24, %13, %18, %28 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 128*_row, pattern = "contiguous", align = 64} : (!ttarget.vector<[128], f32>, !ttile.buffer<[128, 128], f32>, !ttile.index, !ttile.index) -> ()
      ttarget.store %25, %14, %18 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
      ttarget.store %26, %15, %18 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.loop %10, %11 {step = 256, is_partial = true} ({
    ^bb0(%29: !ttile.index):
      %30 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %31 = ttarget.scratch {offset = 132096} : () -> !ttile.buffer<[128, 256], f32>
      %32 = ttarget.scratch {offset = 263168} : () -> !ttile.buffer<[395392], u8>
      ttarget.block_dot %12, %1, %31, %32, %4, %7, %5, %29, %30 {names = ["_b", "_i", "_g", "_j", "_d"], m = 128, n = min(-_j + max(0, min(256, _i + 128)), 256), k = 128, max_rows = 128, max_k = 128, lhs_offset = _inner_k + 128*_row, rhs_offset = 32768*_b + 128*_col + _d + _inner_k + 32768*_g + 128*_j, out_stride = 256, is_fresh = true} : (!ttile.buffer<[128, 128], f32>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.buffer<[128, 256], f32>, !ttile.buffer<[395392], u8>, !ttile.index, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      %33 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %34 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
      ttarget.loop %33, %34 {step = 1} ({
      ^bb0(%35: !ttile.index):
        %36 = ttarget.index %7, %35 {names = ["_i", "_row"], expr = _i + _row} : (!ttile.index, !ttile.index) -> !ttile.index
        %37 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %38 = ttarget.load %31, %35, %37 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 256*_row, pattern = "contiguous", align = 64} : (!ttile.buffer<[128, 256], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[256], f32>
        %39 = ttarget.clip %38, %36, %29 {coords = ["_i", "_j"], axes = ["_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttarget.vector<[256], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[256], f32>
        %40 = ttarget.reduce %39 {kind = "max", axis = 0} : (!ttarget.vector<[256], f32>) -> !ttarget.vector<[], f32>
        %41 = ttarget.load %14, %35 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttile.buffer<[128], f32>, !ttile.index) -> !ttarget.vector<[], f32>
        %42 = ttarget.elementwise %41, %40 {fn = "max"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %43 = ttarget.constant {value = -inf} : () -> !ttarget.vector<[], f32>
        %44 = ttarget.elementwise %42, %43 {fn = "eq"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], bool>
        %45 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[], f32>
        %46 = ttarget.select %44, %45, %42 : (!ttarget.vector<[], bool>, !ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %47 = ttarget.broadcast %46 {axes = []} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[256], f32>
        %48 = ttarget.elementwise %39, %47 {fn = "sub"} : (!ttarget.vector<[256], f32>, !ttarget.vector<[256], f32>) -> !ttarget.vector<[256], f32>
        %49 = ttarget.elementwise %48 {fn = "exp2"} : (!ttarget.vector<[256], f32>) -> !ttarget.vector<[256], f32>
        %50 = ttarget.elementwise %41, %46 {fn = "sub"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %51 = ttarget.elementwise %50 {fn = "exp2"} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %52 = ttarget.load %15, %35 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttile.buffer<[128], f32>, !ttile.index) -> !ttarget.vector<[], f32>
        %53 = ttarget.elementwise %52, %51 {fn = "mul"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %54 = ttarget.reduce %49 {kind = "sum", axis = 0} : (!ttarget.vector<[256], f32>) -> !ttarget.vector<[], f32>
        %55 = ttarget.elementwise %53, %54 {fn = "add"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
        %56 = ttarget.broadcast %51 {axes = []} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[128], f32>
        %57 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %58 = ttarget.load %13, %35, %57 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 128*_row, pattern = "contiguous", align = 64} : (!ttile.buffer<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[128], f32>
        %59 = ttarget.elementwise %58, %56 {fn = "mul"} : (!ttarget.vector<[128], f32>, !ttarget.vector<[128], f32>) -> !ttarget.vector<[128], f32>
        ttarget.store %42, %14, %35 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
        %60 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.store %49, %31, %35, %60 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 256*_row, pattern = "contiguous", align = 64} : (!ttarget.vector<[256], f32>, !ttile.buffer<[128, 256], f32>, !ttile.index, !ttile.index) -> ()
        ttarget.store %55, %15, %35 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttarget.vector<[], f32>, !ttile.buffer<[128], f32>, !ttile.index) -> ()
        %61 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.store %59, %13, %35, %61 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 128*_row, pattern = "contiguous", align = 64} : (!ttarget.vector<[128], f32>, !ttile.buffer<[128, 128], f32>, !ttile.index, !ttile.index) -> ()
        ttarget.yield
      }) : (!ttile.index, !ttile.index) -> ()
      %62 = ttarget.scratch {offset = 658560} : () -> !ttile.buffer<[526464], u8>
      ttarget.block_dot %31, %2, %13, %62, %4, %7, %5, %8, %29 {names = ["_b", "_i", "_g", "_e", "_j"], m = 128, n = 128, k = min(-_j + max(0, min(256, _i + 128)), 256), max_rows = 128, max_k = 256, lhs_offset = _inner_k + 256*_row, rhs_offset = 32768*_b + _col + 128*_inner_k + _e + 32768*_g + 128*_j, out_stride = 128} : (!ttile.buffer<[128, 256], f32>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.buffer<[128, 128], f32>, !ttile.buffer<[526464], u8>, !ttile.index, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    %63 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %64 = ttarget.index {names = [], expr = 128} : () -> !ttile.index
    ttarget.loop %63, %64 {step = 1} ({
    ^bb0(%65: !ttile.index):
      %66 = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[], f32>
      %67 = ttarget.load %15, %65 {coords = ["_row"], axes = [], offset = _row, pattern = "contiguous", align = 4} : (!ttile.buffer<[128], f32>, !ttile.index) -> !ttarget.vector<[], f32>
      %68 = ttarget.elementwise %67, %66 {fn = "eq"} : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], bool>
      %69 = ttarget.constant {value = 1.0} : () -> !ttarget.vector<[], f32>
      %70 = ttarget.select %68, %69, %67 : (!ttarget.vector<[], bool>, !ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
      %71 = ttarget.broadcast %70 {axes = []} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[128], f32>
      %72 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %73 = ttarget.load %13, %65, %72 {coords = ["_row", "_col"], axes = ["_col"], offset = _col + 128*_row, pattern = "contiguous", align = 64} : (!ttile.buffer<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.vector<[128], f32>
      %74 = ttarget.elementwise %73, %71 {fn = "div"} : (!ttarget.vector<[128], f32>, !ttarget.vector<[128], f32>) -> !ttarget.vector<[128], f32>
      %75 = ttarget.cast %74 {rounding = "nearest_even"} : (!ttarget.vector<[128], f32>) -> !ttarget.vector<[128], bf16>
      %76 = ttarget.index %7, %65 {names = ["_i", "_row"], expr = _i + _row} : (!ttile.index, !ttile.index) -> !ttile.index
      ttarget.store %75, %3, %4, %5, %76, %8 {coords = ["_b", "_h", "_i", "_e"], axes = ["_e"], offset = 32768*_b + _e + 32768*_h + 128*_i, pattern = "contiguous", align = 2} : (!ttarget.vector<[128], bf16>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @scatter_rows_0398b55f68(
// CHECK: ttarget.fetch{{.*}} {coords = ["_n"], offset = _n}
ttarget.kernel @scatter_rows_0398b55f68(%0: !ttile.buffer<[1, s0, s1], f32>, %1: !ttile.buffer<[s2], i64>, %2: !ttile.buffer<[1, s2, s1], f32>, %3: !ttile.buffer<[1, s0, s1], f32>) attributes {symbols = ["s0", "s1", "s2"], writes = [3], lanes = 16, features = ["avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"], scratch = 0} {
  ttarget.programs {grid = [1, ((s1 + 63) floordiv 64)]} ({
  ^bb0(%4: !ttile.index, %5: !ttile.index):
    %6 = ttarget.index %5 {names = ["_p"], expr = 64*_p} : (!ttile.index) -> !ttile.index
    %7 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %8 = ttarget.index {names = [], expr = s2} : () -> !ttile.index
    ttarget.loop %7, %8 {step = 1} ({
    ^bb0(%9: !ttile.index):
      %10 = ttarget.fetch %1, %9 {coords = ["_n"], offset = _n} : (!ttile.buffer<[s2], i64>, !ttile.index) -> !ttile.index
      %11 = ttarget.load %2, %4, %6, %9 {coords = ["_o", "_j", "_n"], axes = ["_j"], offset = _o*s1*s2 + _n*s1 + _j, pattern = "contiguous", align = 4, guarded = ["_j"], bounds = [s1]} : (!ttile.buffer<[1, s2, s1], f32>, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.vector<[64], f32>
      ttarget.store %11, %3, %4, %6, %10 {coords = ["_o", "_j", "_r"], axes = ["_j"], offset = _o*s0*s1 + _r*s1 + _j, pattern = "contiguous", align = 4, guarded = ["_j"], bounds = [s1]} : (!ttarget.vector<[64], f32>, !ttile.buffer<[1, s0, s1], f32>, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.kernel @round_to_f4f2a3cc8b(
// CHECK: ttarget.round{{.*}} {format = "bf16"}
ttarget.kernel @round_to_f4f2a3cc8b(%0: !ttile.buffer<[], f32>, %1: !ttile.buffer<[], bf16>) attributes {symbols = [], writes = [1], lanes = 16, features = ["avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"], scratch = 0} {
  ttarget.programs {grid = [1]} ({
  ^bb0(%2: !ttile.index):
    %3 = ttarget.load %0 {coords = [], axes = [], offset = 0, pattern = "contiguous", align = 4} : (!ttile.buffer<[], f32>) -> !ttarget.vector<[], f32>
    %4 = ttarget.round %3 {format = "bf16"} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
    %5 = ttarget.cast %4 {rounding = "nearest_even"} : (!ttarget.vector<[], f32>) -> !ttarget.vector<[], bf16>
    ttarget.store %5, %1 {coords = [], axes = [], offset = 0, pattern = "contiguous", align = 2} : (!ttarget.vector<[], bf16>, !ttile.buffer<[], bf16>) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @attention_c4f4f15f86__matrix(
// CHECK: ttarget.partial_rows
// CHECK: ttarget.grow_rows
// CHECK: ttarget.join_rows
ttarget.matrix_kernel @attention_c4f4f15f86__matrix(%0: !ttile.buffer<[1, 1, 256, 128], bf16>, %1: !ttile.buffer<[1, 1, 256, 128], bf16>, %2: !ttile.buffer<[1, 1, 256, 128], bf16>, %3: !ttile.buffer<[1, 1, 256, 128], bf16>) attributes {symbols = [], grid = [1, 1, 2], writes = [3], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [24, 240], shared = 229512} {
  %4 = ttarget.shared_tile {offset = 0, stages = 2} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %5 = ttarget.shared_tile {offset = 65536, stages = 2} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %6 = ttarget.shared_tile {offset = 131072, stages = 2} : () -> !ttarget.shared_tile<[128, 128], bf16>
  %7 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %8 = ttarget.ring %4 {offset = 229416, stages = 2} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %9 = ttarget.tensor_map %0 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %10 = ttarget.ring %5 {offset = 229448, stages = 2} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %11 = ttarget.tensor_map %1 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %12 = ttarget.ring %6 {offset = 229480, stages = 2} : (!ttarget.shared_tile<[128, 128], bf16>) -> !ttarget.ring
  %13 = ttarget.tensor_map %2 {box = [1, 1, 128, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  %14 = ttarget.tensor_map %3 {box = [1, 1, 64, 64]} : (!ttile.buffer<[1, 1, 256, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %15 = ttarget.cursor : () -> !ttarget.cursor
    %16 = ttarget.cursor : () -> !ttarget.cursor
    %17 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %15, %16, %17 {grid = [1, 1, 2], group = 16, is_descending = true, mailbox = 229376} ({
    ^bb0(%18: !ttile.index, %19: !ttile.index, %20: !ttile.index, %21: !ttarget.cursor, %22: !ttarget.cursor, %23: !ttarget.cursor):
      %24 = ttarget.index %20 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
      %25 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %26 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      ttarget.acquire %8, %21 : (!ttarget.ring, !ttarget.cursor) -> ()
      %27 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
      %28 = ttarget.index %19 {names = ["_h"], expr = _h} : (!ttile.index) -> !ttile.index
      %29 = ttarget.index %24 {names = ["_i"], expr = _i} : (!ttile.index) -> !ttile.index
      %30 = ttarget.index %26 {names = ["_d"], expr = _d} : (!ttile.index) -> !ttile.index
      ttarget.copy %9, %8, %21, %4, %27, %28, %29, %30 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      %31 = ttarget.advance %8, %21 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
      %32 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %33 = ttarget.index %24 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
      %34, %35 = ttarget.steps %32, %33, %22, %23 {step = 128} ({
      ^bb0(%36: !ttile.index, %37: !ttarget.cursor, %38: !ttarget.cursor):
        %39 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.acquire %10, %37 : (!ttarget.ring, !ttarget.cursor) -> ()
        %40 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
        %41 = ttarget.index %19 {names = ["_g"], expr = _g} : (!ttile.index) -> !ttile.index
        %42 = ttarget.index %36 {names = ["_j"], expr = _j} : (!ttile.index) -> !ttile.index
        %43 = ttarget.index %39 {names = ["_d"], expr = _d} : (!ttile.index) -> !ttile.index
        ttarget.copy %11, %10, %37, %5, %40, %41, %42, %43 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
        %44 = ttarget.advance %10, %37 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        %45 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        ttarget.acquire %12, %38 : (!ttarget.ring, !ttarget.cursor) -> ()
        %46 = ttarget.index %18 {names = ["_b"], expr = _b} : (!ttile.index) -> !ttile.index
        %47 = ttarget.index %19 {names = ["_g"], expr = _g} : (!ttile.index) -> !ttile.index
        %48 = ttarget.index %36 {names = ["_j"], expr = _j} : (!ttile.index) -> !ttile.index
        %49 = ttarget.index %25 {names = ["_e"], expr = _e} : (!ttile.index) -> !ttile.index
        ttarget.copy %13, %12, %38, %6, %46, %47, %48, %49 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
        %50 = ttarget.advance %12, %38 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %44, %50 : (!ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.cursor, !ttarget.cursor)
      ttarget.yield %31, %34, %35 : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %51 = ttarget.cursor : () -> !ttarget.cursor
    %52 = ttarget.cursor : () -> !ttarget.cursor
    %53 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %51, %52, %53 {grid = [1, 1, 2], group = 16, is_descending = true, mailbox = 229376} ({
    ^bb0(%54: !ttile.index, %55: !ttile.index, %56: !ttile.index, %57: !ttarget.cursor, %58: !ttarget.cursor, %59: !ttarget.cursor):
      %60 = ttarget.index %56 {names = ["_p"], expr = 128*_p} : (!ttile.index) -> !ttile.index
      %61 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %62 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %63 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
      %64 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
      %65 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
      %66 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %67 = ttarget.index %60 {names = ["_i"], expr = max(0, min(256, _i + 128))} : (!ttile.index) -> !ttile.index
      ttarget.await %8, %57 : (!ttarget.ring, !ttarget.cursor) -> ()
      %68, %69, %70, %71, %72 = ttarget.when %66, %67, %63, %64, %65, %58, %59 ({
        %73 = ttarget.partial_rows : () -> !ttarget.partial_rows<[128], f32>
        %74 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %75 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
        %76 = ttarget.mma_open %75 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
        ttarget.await %10, %58 : (!ttarget.ring, !ttarget.cursor) -> ()
        %77 = ttarget.mma_issue %76, %4, %5, %57, %58 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        %78 = ttarget.mma_wait %77 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        ttarget.release %10, %58 : (!ttarget.ring, !ttarget.cursor) -> ()
        %79 = ttarget.advance %10, %58 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        %80 = ttarget.index %60 {names = ["_i"], expr = min(256, _i + 1) - 128} : (!ttile.index) -> !ttile.index
        %81 = ttarget.when %80, %66, %78 ({
          %82 = ttarget.clip %78, %60, %66 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttarget.fragment<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], f32>
          ttarget.yield %82 : (!ttarget.fragment<[128, 128], f32>) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %83 = ttarget.reduce_rows %81 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
        %84 = ttarget.elementwise %64, %83 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %85 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
        %86 = ttarget.elementwise %84, %85 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
        %87 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
        %88 = ttarget.select %86, %87, %84 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %89 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
        %90 = ttarget.elementwise %88, %89 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %91 = ttarget.elementwise %90 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %92 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
        %93 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
        %94 = ttarget.broadcast %91 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %95 = ttarget.elementwise %81, %93, %94 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %96 = ttarget.elementwise %95 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %97 = ttarget.elementwise %64, %89, %91 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %98 = ttarget.elementwise %97 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
        %99 = ttarget.grow_rows %73, %98, %96 : (!ttarget.partial_rows<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.partial_rows<[128], f32>
        %100 = ttarget.broadcast %98 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %101 = ttarget.elementwise %63, %100 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        %102 = ttarget.cast %96 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
        %103 = ttarget.pack %102 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
        %104 = ttarget.index %66 {names = ["_l"], expr = _l + 128} : (!ttile.index) -> !ttile.index
        %105 = ttarget.index %104, %67, %60 {names = ["_begin", "_high", "_i"], expr = max(_begin, min(128*((-_begin + min(256, _i + 1)) floordiv 128) + _begin, _high))} : (!ttile.index, !ttile.index, !ttile.index) -> !ttile.index
        %106, %107, %108, %109, %110, %111, %112 = ttarget.steps %104, %105, %63, %84, %99, %101, %103, %79, %59 {step = 128} ({
        ^bb0(%113: !ttile.index, %114: !ttarget.fragment<[128, 128], f32>, %115: !ttarget.row_vector<[128], f32>, %116: !ttarget.partial_rows<[128], f32>, %117: !ttarget.fragment<[128, 128], f32>, %118: !ttarget.operand<[128, 128], bf16>, %119: !ttarget.cursor, %120: !ttarget.cursor):
          %121 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %122 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
          %123 = ttarget.mma_open %122 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %10, %119 : (!ttarget.ring, !ttarget.cursor) -> ()
          ttarget.pingpong {mode = "take"}
          %124 = ttarget.mma_issue %123, %4, %5, %57, %119 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %12, %120 : (!ttarget.ring, !ttarget.cursor) -> ()
          %125 = ttarget.mma_open %117 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          %126 = ttarget.mma_issue %125, %118, %6, %57, %120 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.pingpong {mode = "pass"}
          %127 = ttarget.mma_wait %124 {left = 1} : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %10, %119 : (!ttarget.ring, !ttarget.cursor) -> ()
          %128 = ttarget.advance %10, %119 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %129 = ttarget.reduce_rows %127 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %130 = ttarget.elementwise %115, %129 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %131 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
          %132 = ttarget.elementwise %130, %131 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
          %133 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
          %134 = ttarget.select %132, %133, %130 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %135 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
          %136 = ttarget.elementwise %134, %135 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %137 = ttarget.elementwise %136 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %138 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %139 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
          %140 = ttarget.broadcast %137 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %141 = ttarget.elementwise %127, %139, %140 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %142 = ttarget.elementwise %141 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %143 = ttarget.elementwise %115, %135, %137 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %144 = ttarget.elementwise %143 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %145 = ttarget.grow_rows %116, %144, %142 : (!ttarget.partial_rows<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.partial_rows<[128], f32>
          %146 = ttarget.broadcast %144 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %147 = ttarget.mma_wait %126 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %12, %120 : (!ttarget.ring, !ttarget.cursor) -> ()
          %148 = ttarget.advance %12, %120 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %149 = ttarget.elementwise %147, %146 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %150 = ttarget.cast %142 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
          %151 = ttarget.pack %150 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
          ttarget.yield %147, %130, %145, %149, %151, %128, %148 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor)
        %152, %153, %154, %155, %156, %157, %158 = ttarget.steps %105, %67, %106, %107, %108, %109, %110, %111, %112 {step = 128} ({
        ^bb0(%159: !ttile.index, %160: !ttarget.fragment<[128, 128], f32>, %161: !ttarget.row_vector<[128], f32>, %162: !ttarget.partial_rows<[128], f32>, %163: !ttarget.fragment<[128, 128], f32>, %164: !ttarget.operand<[128, 128], bf16>, %165: !ttarget.cursor, %166: !ttarget.cursor):
          %167 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %168 = ttarget.constant {value = 0.0} : () -> !ttarget.fragment<[128, 128], f32>
          %169 = ttarget.mma_open %168 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %10, %165 : (!ttarget.ring, !ttarget.cursor) -> ()
          ttarget.pingpong {mode = "take"}
          %170 = ttarget.mma_issue %169, %4, %5, %57, %165 : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.await %12, %166 : (!ttarget.ring, !ttarget.cursor) -> ()
          %171 = ttarget.mma_open %163 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
          %172 = ttarget.mma_issue %171, %164, %6, %57, %166 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
          ttarget.pingpong {mode = "pass"}
          %173 = ttarget.mma_wait %170 {left = 1} : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %10, %165 : (!ttarget.ring, !ttarget.cursor) -> ()
          %174 = ttarget.advance %10, %165 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %175 = ttarget.clip %173, %60, %159 {coords = ["_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = min(256, _i + 1), identity = -inf} : (!ttarget.fragment<[128, 128], f32>, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], f32>
          %176 = ttarget.reduce_rows %175 {kind = "max"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.row_vector<[128], f32>
          %177 = ttarget.elementwise %161, %176 {fn = "max"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %178 = ttarget.constant {value = -inf} : () -> !ttarget.row_vector<[128], f32>
          %179 = ttarget.elementwise %177, %178 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
          %180 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
          %181 = ttarget.select %179, %180, %177 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %182 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.row_vector<[128], f32>
          %183 = ttarget.elementwise %181, %182 {fn = "mul"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %184 = ttarget.elementwise %183 {fn = "neg"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %185 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
          %186 = ttarget.constant {value = 0.12751743082459868} : () -> !ttarget.fragment<[128, 128], f32>
          %187 = ttarget.broadcast %184 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %188 = ttarget.elementwise %175, %186, %187 {fn = "fma"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %189 = ttarget.elementwise %188 {fn = "exp2"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %190 = ttarget.elementwise %161, %182, %184 {fn = "fma"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %191 = ttarget.elementwise %190 {fn = "exp2"} : (!ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
          %192 = ttarget.grow_rows %162, %191, %189 : (!ttarget.partial_rows<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.partial_rows<[128], f32>
          %193 = ttarget.broadcast %191 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %194 = ttarget.mma_wait %172 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          ttarget.release %12, %166 : (!ttarget.ring, !ttarget.cursor) -> ()
          %195 = ttarget.advance %12, %166 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
          %196 = ttarget.elementwise %194, %193 {fn = "mul"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
          %197 = ttarget.cast %189 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
          %198 = ttarget.pack %197 : (!ttarget.fragment<[128, 128], bf16>) -> !ttarget.operand<[128, 128], bf16>
          ttarget.yield %194, %177, %192, %196, %198, %174, %195 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> ()
        }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.partial_rows<[128], f32>, !ttarget.fragment<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor)
        ttarget.await %12, %158 : (!ttarget.ring, !ttarget.cursor) -> ()
        %199 = ttarget.mma_open %155 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
        %200 = ttarget.mma_issue %199, %156, %6, %57, %158 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.operand<[128, 128], bf16>, !ttarget.shared_tile<[128, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        %201 = ttarget.mma_wait %200 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
        ttarget.release %12, %158 : (!ttarget.ring, !ttarget.cursor) -> ()
        %202 = ttarget.advance %12, %158 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        %203 = ttarget.join_rows %154 : (!ttarget.partial_rows<[128], f32>) -> !ttarget.row_vector<[128], f32>
        ttarget.yield %201, %153, %203, %157, %202 : (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.fragment<[128, 128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>, !ttarget.cursor, !ttarget.cursor)
      ttarget.release %8, %57 : (!ttarget.ring, !ttarget.cursor) -> ()
      %204 = ttarget.advance %8, %57 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
      %205 = ttarget.constant {value = 0.0} : () -> !ttarget.row_vector<[128], f32>
      %206 = ttarget.elementwise %70, %205 {fn = "eq"} : (!ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], bool>
      %207 = ttarget.constant {value = 1.0} : () -> !ttarget.row_vector<[128], f32>
      %208 = ttarget.select %206, %207, %70 : (!ttarget.row_vector<[128], bool>, !ttarget.row_vector<[128], f32>, !ttarget.row_vector<[128], f32>) -> !ttarget.row_vector<[128], f32>
      %209 = ttarget.broadcast %208 {axes = [0]} : (!ttarget.row_vector<[128], f32>) -> !ttarget.fragment<[128, 128], f32>
      %210 = ttarget.elementwise %68, %209 {fn = "div"} : (!ttarget.fragment<[128, 128], f32>, !ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      %211 = ttarget.cast %210 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %211, %14, %7, %3, %54, %55, %60, %61 {coords = ["_b", "_h", "_i", "_e"], axes = ["_i", "_e"], map = [_b, _h, _i, _e], bounds = [-1, -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[1, 1, 256, 128], bf16>, !ttile.index, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield %204, %71, %72 : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    }) : (!ttarget.cursor, !ttarget.cursor, !ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK-LABEL: ttarget.matrix_kernel @ragged_blocks_c214954b5d__matrix(
// CHECK: ttarget.skip
ttarget.matrix_kernel @ragged_blocks_c214954b5d__matrix(%0: !ttile.buffer<[300, 64], bf16>, %1: !ttile.buffer<[3, 64, 128], bf16>, %2: !ttile.buffer<[6], i64>, %3: !ttile.buffer<[6], i64>, %4: !ttile.buffer<[6], i64>, %5: !ttile.buffer<[300, 128], bf16>) attributes {symbols = [], grid = [6, 1], writes = [5], features = ["wgmma", "tma", "setmaxnreg"], consumers = 2, registers = [40, 232], shared = 229472} {
  %6 = ttarget.shared_tile {offset = 0, stages = 6} : () -> !ttarget.shared_tile<[128, 64], bf16>
  %7 = ttarget.shared_tile {offset = 98304, stages = 6} : () -> !ttarget.shared_tile<[64, 128], bf16>
  %8 = ttarget.shared_tile {offset = 196608, stages = 4} : () -> !ttarget.shared_tile<[64, 64], bf16>
  %9 = ttarget.ring %6, %7 {offset = 229376, stages = 6} : (!ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[64, 128], bf16>) -> !ttarget.ring
  %10 = ttarget.tensor_map %0 {box = [128, 64]} : (!ttile.buffer<[300, 64], bf16>) -> !ttarget.tensor_map
  %11 = ttarget.tensor_map %1 {box = [1, 64, 64]} : (!ttile.buffer<[3, 64, 128], bf16>) -> !ttarget.tensor_map
  %12 = ttarget.tensor_map %5 {box = [64, 64], cut = 0} : (!ttile.buffer<[300, 128], bf16>) -> !ttarget.tensor_map
  ttarget.roles ({
    %13 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %13 {grid = [6, 1], group = 10} ({
    ^bb0(%14: !ttile.index, %15: !ttile.index, %16: !ttarget.cursor):
      %17 = ttarget.fetch %3, %14 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %18 = ttarget.fetch %4, %14 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %19 = ttarget.index %18 {names = ["_end"], expr = min(300, _end)} : (!ttile.index) -> !ttile.index
      ttarget.skip %17, %19 : (!ttile.index, !ttile.index) -> ()
      %20 = ttarget.fetch %2, %14 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %21 = ttarget.index %20 {names = ["_matrix"], expr = max(0, _matrix)} : (!ttile.index) -> !ttile.index
      %22 = ttarget.index %15 {names = ["_j"], expr = 128*_j} : (!ttile.index) -> !ttile.index
      %23 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %24 = ttarget.index {names = [], expr = 64} : () -> !ttile.index
      %25 = ttarget.steps %23, %24, %16 {step = 64} ({
      ^bb0(%26: !ttile.index, %27: !ttarget.cursor):
        ttarget.acquire %9, %27 : (!ttarget.ring, !ttarget.cursor) -> ()
        %28 = ttarget.index %17 {names = ["_i"], expr = _i} : (!ttile.index) -> !ttile.index
        %29 = ttarget.index %26 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        ttarget.copy %10, %9, %27, %6, %28, %29 : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[128, 64], bf16>, !ttile.index, !ttile.index) -> ()
        %30 = ttarget.index %21 {names = ["_g"], expr = _g} : (!ttile.index) -> !ttile.index
        %31 = ttarget.index %26 {names = ["_k"], expr = _k} : (!ttile.index) -> !ttile.index
        %32 = ttarget.index %22 {names = ["_j"], expr = _j} : (!ttile.index) -> !ttile.index
        ttarget.copy %11, %9, %27, %7, %30, %31, %32 {pieces = 2} : (!ttarget.tensor_map, !ttarget.ring, !ttarget.cursor, !ttarget.shared_tile<[64, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> ()
        %33 = ttarget.advance %9, %27 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %33 : (!ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.cursor) -> !ttarget.cursor
      ttarget.yield %25 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  }, {
    %34 = ttarget.cursor : () -> !ttarget.cursor
    ttarget.tiles %34 {grid = [6, 1], group = 10} ({
    ^bb0(%35: !ttile.index, %36: !ttile.index, %37: !ttarget.cursor):
      %38 = ttarget.fetch %3, %35 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %39 = ttarget.fetch %4, %35 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %40 = ttarget.index %39 {names = ["_end"], expr = min(300, _end)} : (!ttile.index) -> !ttile.index
      ttarget.skip %38, %40 : (!ttile.index, !ttile.index) -> ()
      %41 = ttarget.fetch %2, %35 {coords = ["_p"], offset = _p} : (!ttile.buffer<[6], i64>, !ttile.index) -> !ttile.index
      %42 = ttarget.index %41 {names = ["_matrix"], expr = max(0, _matrix)} : (!ttile.index) -> !ttile.index
      %43 = ttarget.index %36 {names = ["_j"], expr = 128*_j} : (!ttile.index) -> !ttile.index
      %44 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %45 = ttarget.index {names = [], expr = 64} : () -> !ttile.index
      %46 = ttarget.constant {value = 0} : () -> !ttarget.fragment<[128, 128], f32>
      %47 = ttarget.mma_open %46 : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.pending<[128, 128], f32>
      %48, %49, %50 = ttarget.steps %44, %45, %47, %37, %37 {step = 64, is_nonempty = true} ({
      ^bb0(%51: !ttile.index, %52: !ttarget.pending<[128, 128], f32>, %53: !ttarget.cursor, %54: !ttarget.cursor):
        ttarget.await %9, %53 : (!ttarget.ring, !ttarget.cursor) -> ()
        %55 = ttarget.mma_issue %52, %6, %7, %53, %53 {rhs_major = "mn"} : (!ttarget.pending<[128, 128], f32>, !ttarget.shared_tile<[128, 64], bf16>, !ttarget.shared_tile<[64, 128], bf16>, !ttarget.cursor, !ttarget.cursor) -> !ttarget.pending<[128, 128], f32>
        ttarget.mma_wait {left = 1}
        ttarget.release %9, %54, %44, %51 : (!ttarget.ring, !ttarget.cursor, !ttile.index, !ttile.index) -> ()
        %56 = ttarget.advance %9, %53 : (!ttarget.ring, !ttarget.cursor) -> !ttarget.cursor
        ttarget.yield %55, %56, %53 : (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> ()
      }) : (!ttile.index, !ttile.index, !ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor) -> (!ttarget.pending<[128, 128], f32>, !ttarget.cursor, !ttarget.cursor)
      %57 = ttarget.mma_wait %48 : (!ttarget.pending<[128, 128], f32>) -> !ttarget.fragment<[128, 128], f32>
      ttarget.release %9, %50 : (!ttarget.ring, !ttarget.cursor) -> ()
      %58 = ttarget.cast %57 {rounding = "nearest_even"} : (!ttarget.fragment<[128, 128], f32>) -> !ttarget.fragment<[128, 128], bf16>
      %59 = ttarget.clip %58, %41, %38, %43 {coords = ["_matrix", "_i", "_j"], axes = ["_i", "_j"], axis = "_j", bound = 128*min(1, _matrix + 1), identity = 0} : (!ttarget.fragment<[128, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> !ttarget.fragment<[128, 128], bf16>
      ttarget.store_tile %59, %12, %8, %5, %38, %39, %43 {coords = ["_i", "_end", "_j"], axes = ["_i", "_j"], map = [_i, _j], bounds = [min(300, _end), -1]} : (!ttarget.fragment<[128, 128], bf16>, !ttarget.tensor_map, !ttarget.shared_tile<[64, 64], bf16>, !ttile.buffer<[300, 128], bf16>, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttarget.yield %49 : (!ttarget.cursor) -> ()
    }) : (!ttarget.cursor) -> ()
    ttarget.yield
  })
  ttarget.return
}
