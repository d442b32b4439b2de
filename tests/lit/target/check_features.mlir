// RUN: not tessera-opt %s --split -p 'target-check-features{features = ["avx", "avx2", "fma"]}' 2>&1 | filecheck %s

// All that it needs is there.
// CHECK-NOT: `@narrow` needs
ttarget.kernel @narrow(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 8, features = ["avx2", "fma"], scratch = 0} {
  ttarget.return
}
// -----
// The features that are missing are named, and the first level of machines that has them.
// CHECK: error[T0602]: `@wide` needs avx512f, avx512bw, and the machine has avx, avx2, fma
// CHECK-NEXT: check_features.mlir:[[# @LINE + 2]]:1
// CHECK: help: avx512f comes with x86-64-v4; compile for what the machine has
ttarget.kernel @wide(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], writes = [], lanes = 16, features = ["avx2", "avx512f", "avx512bw"], scratch = 0} {
  ttarget.return
}
