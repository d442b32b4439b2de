// RUN: not tessera-opt %s --split -p target-check-policy 2>&1 | filecheck %s

// A kernel of two policies, one of which rounds plainly.
// CHECK-NOT: `@both`
ttarget.kernel @both() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0, tessera.numerics.policy = [{}, {rounding = "toward_zero"}]} {
  ttarget.programs {grid = []} ({
    %0 = ttarget.constant {value = 1.5} : () -> !ttarget.vector<[32], f32>
    %1 = ttarget.elementwise %0 {fn = "neg"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %2 = ttarget.cast %1 {rounding = "nearest_even"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], bf16>
    ttarget.yield
  })
  ttarget.return
}
// -----
// CHECK: error[T0107]: `ttarget.cast` makes bf16 of what `ttarget.elementwise` gives by the plain rounding, and kernel `@cuts` keeps `round_toward_zero`
ttarget.kernel @cuts() attributes {symbols = [], writes = [], lanes = 8, features = ["avx2"], scratch = 0, tessera.numerics.policy = {rounding = "toward_zero"}} {
  ttarget.programs {grid = []} ({
    %0 = ttarget.constant {value = 1.5} : () -> !ttarget.vector<[32], f32>
    %1 = ttarget.elementwise %0 {fn = "neg"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], f32>
    %2 = ttarget.cast %1 {rounding = "nearest_even"} : (!ttarget.vector<[32], f32>) -> !ttarget.vector<[32], bf16>
    ttarget.yield
  })
  ttarget.return
}
