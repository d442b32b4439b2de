// RUN: not tessera-opt %s --split -p target-check-kernels 2>&1 | filecheck %s

// CHECK-NOT: `@fits`
ttarget.kernel @fits() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %0 = ttarget.constant {value = 1.5} : () -> !ttarget.vector<[32], f32>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0601]
ttarget.kernel @large() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0} {
  ttarget.programs {grid = []} ({
    %0 = ttarget.constant {value = 1.5} : () -> !ttarget.vector<[65536], f32>
    ttarget.yield
  })
  ttarget.return
}
