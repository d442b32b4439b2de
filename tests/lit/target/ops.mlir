// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s | tessera-opt | filecheck %s

// Attributes at their defaults are not printed; programs, loops and tails keep their bodies.
// CHECK-LABEL: ttarget.kernel @row(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !ttile.buffer<[M, N], bf16>, %[[Y:[a-z0-9]+]]: !ttile.buffer<[M], f32>) attributes {symbols = ["M", "N"], writes = [1], lanes = 8, features = ["avx2", "fma"], scratch = 64*((4*N + 63) floordiv 64)} {
// CHECK-NEXT:    ttarget.programs {grid = [M]} ({
// CHECK-NEXT:    ^{{[a-z0-9]+}}(%[[ROW:[a-z0-9]+]]: !ttile.index):
// CHECK-NEXT:      %[[S:[a-z0-9]+]] = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[N], f32>
// CHECK:           %[[ZERO:[a-z0-9]+]] = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[16], f32>
// CHECK-NEXT:      %[[WHOLE:[a-z0-9]+]] = ttarget.loop %[[LOW:[a-z0-9]+]], %[[HIGH:[a-z0-9]+]], %[[ZERO]] {step = 16} ({
// CHECK-NEXT:      ^{{[a-z0-9]+}}(%[[J:[a-z0-9]+]]: !ttile.index, %[[C:[a-z0-9]+]]: !ttarget.vector<[16], f32>):
// CHECK-NEXT:        %[[V:[a-z0-9]+]] = ttarget.load %[[X]], %[[ROW]], %[[J]] {coords = ["i", "j"], axes = ["j"], offset = N*i + j, pattern = "contiguous", align = 2} : (!ttile.buffer<[M, N], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[16], bf16>
// CHECK-NEXT:        %[[W:[a-z0-9]+]] = ttarget.cast %[[V]] : (!ttarget.vector<[16], bf16>) -> !ttarget.vector<[16], f32>
// CHECK-NEXT:        ttarget.store %[[W]], %[[S]], %[[J]] {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 64} :
// CHECK:           %[[ALL:[a-z0-9]+]] = ttarget.tail %[[LOW]], %[[HIGH]], %[[WHOLE]] {step = 16} ({
// CHECK:             ttarget.load %{{.*}}, guarded = ["j"], bounds = [N], pad = -1.0}
// CHECK:             ttarget.clip %{{.*}} {coords = ["j"], axes = ["j"], axis = "j", bound = N, identity = 0.0}
// CHECK:           ttarget.reduce %[[ALL]] {kind = "sum", axis = 0} : (!ttarget.vector<[16], f32>) -> !ttarget.vector<[], f32>
// CHECK:           ttarget.store %{{.*}}, %[[Y]], %[[ROW]] {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4, mode = "add"}
ttarget.kernel @row(%x: !ttile.buffer<[M, N], bf16>, %y: !ttile.buffer<[M], f32>) attributes {symbols = ["M", "N"], writes = [1], lanes = 8, features = ["avx2", "fma"], scratch = 64*((4*N + 63) floordiv 64)} {
  ttarget.programs {grid = [M]} ({
  ^bb0(%row: !ttile.index):
    %s = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[N], f32>
    %low = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %high = ttarget.index {names = [], expr = N} : () -> !ttile.index
    %zero = ttarget.constant {value = 0.0} : () -> !ttarget.vector<[16], f32>
    %whole = ttarget.loop %low, %high, %zero {step = 16} ({
    ^bb0(%j: !ttile.index, %c: !ttarget.vector<[16], f32>):
      %v = ttarget.load %x, %row, %j {coords = ["i", "j"], axes = ["j"], offset = N*i + j, pattern = "contiguous", align = 2, guarded = [], bounds = [], windows = [], pad = 0} : (!ttile.buffer<[M, N], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[16], bf16>
      %w = ttarget.cast %v : (!ttarget.vector<[16], bf16>) -> !ttarget.vector<[16], f32>
      ttarget.store %w, %s, %j {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 64} : (!ttarget.vector<[16], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
      %sum = ttarget.elementwise %c, %w {fn = "add"} : (!ttarget.vector<[16], f32>, !ttarget.vector<[16], f32>) -> !ttarget.vector<[16], f32>
      ttarget.yield %sum : (!ttarget.vector<[16], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[16], f32>) -> !ttarget.vector<[16], f32>
    %all = ttarget.tail %low, %high, %whole {step = 16} ({
    ^bb0(%j: !ttile.index, %c: !ttarget.vector<[16], f32>):
      %v = ttarget.load %x, %row, %j {coords = ["i", "j"], axes = ["j"], offset = N*i + j, pattern = "contiguous", align = 2, guarded = ["j"], bounds = [N], pad = -1.0} : (!ttile.buffer<[M, N], bf16>, !ttile.index, !ttile.index) -> !ttarget.vector<[16], bf16>
      %w = ttarget.cast %v : (!ttarget.vector<[16], bf16>) -> !ttarget.vector<[16], f32>
      %cut = ttarget.clip %w, %j {coords = ["j"], axes = ["j"], axis = "j", bound = N, identity = 0.0} : (!ttarget.vector<[16], f32>, !ttile.index) -> !ttarget.vector<[16], f32>
      %sum = ttarget.elementwise %c, %cut {fn = "add"} : (!ttarget.vector<[16], f32>, !ttarget.vector<[16], f32>) -> !ttarget.vector<[16], f32>
      ttarget.yield %sum : (!ttarget.vector<[16], f32>) -> ()
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[16], f32>) -> !ttarget.vector<[16], f32>
    %total = ttarget.reduce %all {kind = "sum", axis = 0} : (!ttarget.vector<[16], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %total, %y, %row {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4, mode = "add"} : (!ttarget.vector<[], f32>, !ttile.buffer<[M], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}

// Lanes by coordinate, selected, broadcast and bitcast; argmin and argmax.
// CHECK-LABEL: ttarget.kernel @lanes(
// CHECK:           %[[AT:[a-z0-9]+]] = ttarget.coordinate %[[Z:[a-z0-9]+]] {coords = ["j"], axes = ["j"], expr = 2*j + 1} : (!ttile.index) -> !ttarget.vector<[8], i64>
// CHECK-NEXT:      %[[V:[a-z0-9]+]] = ttarget.load %{{.*}}, %[[Z]], %[[AT]] {coords = ["j"], axes = ["j"], offset = t0, pattern = "indexed", align = 4, windows = [j - 1, N]} :
// CHECK-NEXT:      %[[SMALL:[a-z0-9]+]] = ttarget.elementwise %[[V]], %[[V]] {fn = "lt"} : (!ttarget.vector<[8], f32>, !ttarget.vector<[8], f32>) -> !ttarget.vector<[8], bool>
// CHECK-NEXT:      ttarget.select %[[SMALL]], %[[V]], %[[V]]
// CHECK-NEXT:      ttarget.arg_reduce %[[V]], %[[AT]] {kind = "argmax", axis = 0}
// CHECK-NEXT:      ttarget.broadcast %{{.*}} {axes = []} : (!ttarget.vector<[], i64>) -> !ttarget.vector<[8], i64>
// CHECK-NEXT:      ttarget.cast %{{.*}} {rounding = "nearest_even"} : (!ttarget.vector<[8], i64>) -> !ttarget.vector<[8], f32>
// CHECK-NEXT:      ttarget.bitcast %{{.*}} : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], i32>
ttarget.kernel @lanes(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[8], i32>) attributes {symbols = ["N"], writes = [1], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %z = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %at = ttarget.coordinate %z {coords = ["j"], axes = ["j"], expr = 2*j + 1} : (!ttile.index) -> !ttarget.vector<[8], i64>
    %v = ttarget.load %x, %z, %at {coords = ["j"], axes = ["j"], offset = t0, pattern = "indexed", align = 4, windows = [j - 1, N]} : (!ttile.buffer<[N], f32>, !ttile.index, !ttarget.vector<[8], i64>) -> !ttarget.vector<[8], f32>
    %small = ttarget.elementwise %v, %v {fn = "lt"} : (!ttarget.vector<[8], f32>, !ttarget.vector<[8], f32>) -> !ttarget.vector<[8], bool>
    %chosen = ttarget.select %small, %v, %v : (!ttarget.vector<[8], bool>, !ttarget.vector<[8], f32>, !ttarget.vector<[8], f32>) -> !ttarget.vector<[8], f32>
    %place = ttarget.arg_reduce %v, %at {kind = "argmax", axis = 0} : (!ttarget.vector<[8], f32>, !ttarget.vector<[8], i64>) -> !ttarget.vector<[], i64>
    %spread = ttarget.broadcast %place {axes = []} : (!ttarget.vector<[], i64>) -> !ttarget.vector<[8], i64>
    %float = ttarget.cast %spread {rounding = "nearest_even"} : (!ttarget.vector<[8], i64>) -> !ttarget.vector<[8], f32>
    %bits = ttarget.bitcast %float : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], i32>
    ttarget.store %bits, %y, %z {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 4} : (!ttarget.vector<[8], i32>, !ttile.buffer<[8], i32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}

// A dot with its epilogue; batch indices, row and column come before the accumulators.
// CHECK-LABEL: ttarget.kernel @product(
// CHECK-NEXT:    ttarget.gemm %{{.*}}, %{{.*}} {batch = [B], m = M, n = N, k = K, lhs_offset = K*M*_b0 + K*_m + _k, rhs_offset = N*_k + _n, lhs_dtype = f32, rhs_dtype = f32} ({
// CHECK-NEXT:    ^{{[a-z0-9]+}}(%[[B:[a-z0-9]+]]: !ttile.index, %[[I:[a-z0-9]+]]: !ttile.index, %[[J:[a-z0-9]+]]: !ttile.index, %[[ACC:[a-z0-9]+]]: !ttarget.vector<[1, 8], f32>):
// CHECK-NEXT:      ttarget.store %[[ACC]], %{{.*}}, %[[B]], %[[I]], %[[J]]
ttarget.kernel @product(%x: !ttile.buffer<[B, M, K], f32>, %w: !ttile.buffer<[K, N], f32>, %y: !ttile.buffer<[B, M, N], f32>) attributes {symbols = ["B", "M", "N", "K"], writes = [2], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.gemm %x, %w {batch = [B], m = M, n = N, k = K, lhs_offset = M*K*_b0 + K*_m + _k, rhs_offset = N*_k + _n, lhs_dtype = f32, rhs_dtype = f32} ({
  ^bb0(%b: !ttile.index, %i: !ttile.index, %j: !ttile.index, %acc: !ttarget.vector<[1, 8], f32>):
    ttarget.store %acc, %y, %b, %i, %j {coords = ["_b0", "_m", "_n"], axes = ["_m", "_n"], offset = M*N*_b0 + N*_m + _n, pattern = "contiguous", align = 4, guarded = ["_n"], bounds = [N]} : (!ttarget.vector<[1, 8], f32>, !ttile.buffer<[B, M, N], f32>, !ttile.index, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  }) : (!ttile.buffer<[B, M, K], f32>, !ttile.buffer<[K, N], f32>) -> ()
  ttarget.return
}

// What a program will read out of order, touched in order before, where the tensor is a large one.
// CHECK-LABEL: ttarget.kernel @touched(
// CHECK:         ttarget.prefetch %{{.*}}, %{{.*}} {coords = ["_i0"], offset = 1024*_i0, elements = 1024, ahead = 4096, least = 8388608}
ttarget.kernel @touched(%x: !ttile.buffer<[M, 1024], f32>) attributes {symbols = ["M"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = [M]} ({
  ^bb0(%i: !ttile.index):
    ttarget.prefetch %x, %i {coords = ["_i0"], offset = 1024*_i0, elements = 1024, ahead = 4096, least = 8388608} : (!ttile.buffer<[M, 1024], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
