// RUN: not tessera-opt %s --split -p cpu-check-accesses 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split -p 'cpu-check-accesses{strict = true}' 2>&1 | filecheck %s --check-prefix STRICT

// Whole steps end at the size, so that nothing sticks out of them.
// CHECK-NOT: `@inside`
ttarget.kernel @inside(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [1], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %low = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %high = ttarget.index {names = [], expr = N} : () -> !ttile.index
    ttarget.loop %low, %high {step = 8} ({
    ^bb0(%i: !ttile.index):
      %0 = ttarget.load %x, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttarget.vector<[8], f32>
      ttarget.store %0, %y, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttarget.vector<[8], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// The same in a tail does stick out; the smallest sizes that show it are named.
// CHECK: error[T0502]: `@tail` has a load at `%e0 + %l1`, which leaves 0..N - 1
// CHECK: note: with N = 1
// STRICT: `@tail` has a load at `%e0 + %l1`, which leaves 0..N - 1
ttarget.kernel @tail(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [1], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %low = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %high = ttarget.index {names = [], expr = N} : () -> !ttile.index
    ttarget.loop %low, %high {step = 8} ({
    ^bb0(%i: !ttile.index):
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.tail %low, %high {step = 8} ({
    ^bb0(%i: !ttile.index):
      %0 = ttarget.load %x, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttarget.vector<[8], f32>
      ttarget.store %0, %y, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4, guarded = ["i"], bounds = [N]} : (!ttarget.vector<[8], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
      ttarget.yield
    }) : (!ttile.index, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A product that is one deeper than its operand.
// CHECK: error[T0502]: `@deep` has a lhs at `%e0*K + %e1`, which leaves 0..K*M - 1
ttarget.kernel @deep(%x: !ttile.buffer<[M, K], f32>, %w: !ttile.buffer<[K + 1, N], f32>, %y: !ttile.buffer<[M, N], f32>) attributes {symbols = ["M", "N", "K"], writes = [2], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.gemm %x, %w {batch = [], m = M, n = N, k = K + 1, lhs_offset = K*_m + _k, rhs_offset = N*_k + _n, lhs_dtype = f32, rhs_dtype = f32} ({
  ^bb0(%i: !ttile.index, %j: !ttile.index, %acc: !ttarget.vector<[1, 8], f32>):
    ttarget.store %acc, %y, %i, %j {coords = ["_m", "_n"], axes = ["_m", "_n"], offset = N*_m + _n, pattern = "contiguous", align = 4, guarded = ["_n"], bounds = [N]} : (!ttarget.vector<[1, 8], f32>, !ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index) -> ()
    ttarget.yield
  }) : (!ttile.buffer<[M, K], f32>, !ttile.buffer<[K + 1, N], f32>) -> ()
  ttarget.return
}
// -----
// An index that is read from memory may be anything: nothing refutes it, and nothing proves it.
// CHECK-NOT: `@gathered`
// STRICT: error[T0502]: `@gathered` has a load at `%t0`, and nothing proves that it stays in 0..N - 1
ttarget.kernel @gathered(%x: !ttile.buffer<[N], f32>, %at: !ttile.buffer<[8], i64>, %y: !ttile.buffer<[8], f32>) attributes {symbols = ["N"], writes = [2], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %t = ttarget.load %at, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 8} : (!ttile.buffer<[8], i64>, !ttile.index) -> !ttarget.vector<[8], i64>
    %0 = ttarget.load %x, %i, %t {coords = ["i"], axes = ["i"], offset = t0, pattern = "indexed", align = 4} : (!ttile.buffer<[N], f32>, !ttile.index, !ttarget.vector<[8], i64>) -> !ttarget.vector<[8], f32>
    ttarget.store %0, %y, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttarget.vector<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
