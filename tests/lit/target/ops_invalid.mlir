// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A width of vectors comes with a feature.
// CHECK: error[T0601]: 16 lanes need the feature avx512f
// CHECK: help: lower for a machine with avx512f, or with fewer lanes
ttarget.kernel @wide() attributes {symbols = [], writes = [], lanes = 16, features = ["avx2"], scratch = 0} {
  ttarget.return
}
// -----
// The pattern of an access follows from its offset.
// CHECK: error[T0601]: lanes of i are 2 elements apart: the access pattern is strided, not contiguous
// CHECK-NEXT: ops_invalid.mlir:[[# @LINE + 4]]:5
ttarget.kernel @way(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %0 = ttarget.load %x, %i {coords = ["i"], axes = ["i"], offset = 2*i, pattern = "contiguous", align = 4} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// An argument that is not declared to be written is only read.
// CHECK: error[T0601]: `ttarget.store` writes argument 0 of `@reads`, which only writes []
ttarget.kernel @reads(%x: !ttile.buffer<[8], f32>) attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %0 = ttarget.constant {value = 0} : () -> !ttarget.vector<[8], f32>
    ttarget.store %0, %x, %i {coords = ["i"], axes = ["i"], offset = i, pattern = "contiguous", align = 4} : (!ttarget.vector<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A launch shows both signatures.
// CHECK: error[T0601]: `@k` takes (!ttile.buffer<[N], f32>) and 1 sizes, got (!ttile.buffer<[N], bf16>) and 2 sizes
ttarget.kernel @k(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.return
}
ttarget.kernel @host(%x: !ttile.buffer<[N], bf16>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    ttarget.launch %x {kernel = @k, types = ["!ttile.buffer<[N], bf16>"], arity = 2, sizes = [N, N]} : (!ttile.buffer<[N], bf16>) -> ()
    ttarget.yield
  })
  ttarget.return
}
// -----
// A narrowing names its rounding; what loses nothing names none.
// CHECK: error[T0601]: `ttarget.cast` from f32 to bf16 rounds `nearest_even`, got `nothing`
ttarget.kernel @rounds() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %0 = ttarget.constant {value = 0} : () -> !ttarget.vector<[8], f32>
    %1 = ttarget.cast %0 : (!ttarget.vector<[8], f32>) -> !ttarget.vector<[8], bf16>
    ttarget.yield
  })
  ttarget.return
}
// -----
// Narrow numbers are not summed in their own dtype.
// CHECK: error[T0601]: a dot of bf16 by bf16 cannot accumulate in bf16
ttarget.kernel @sums(%x: !ttile.buffer<[M, K], bf16>, %w: !ttile.buffer<[K, N], bf16>) attributes {symbols = ["M", "N", "K"], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.gemm %x, %w {batch = [], m = M, n = N, k = K, lhs_offset = K*_m + _k, rhs_offset = N*_k + _n, lhs_dtype = bf16, rhs_dtype = bf16} ({
  ^bb0(%i: !ttile.index, %j: !ttile.index, %acc: !ttarget.vector<[1, 8], bf16>):
    ttarget.yield
  }) : (!ttile.buffer<[M, K], bf16>, !ttile.buffer<[K, N], bf16>) -> ()
  ttarget.return
}
// -----
// What the body of a loop yields is what it carries.
// CHECK: error[T0601]: the body of a loop yields what it carries
ttarget.kernel @yields() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %i = ttarget.index {names = [], expr = 0} : () -> !ttile.index
    %0 = ttarget.constant {value = 0} : () -> !ttarget.vector<[8], f32>
    %1 = ttarget.loop %i, %i, %0 {step = 8} ({
    ^bb0(%j: !ttile.index, %c: !ttarget.vector<[8], f32>):
      ttarget.yield
    }) : (!ttile.index, !ttile.index, !ttarget.vector<[8], f32>) -> !ttarget.vector<[8], f32>
    ttarget.yield
  })
  ttarget.return
}
