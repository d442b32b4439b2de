// RUN: not tessera-opt %s --split -p schedule-check-policy 2>&1 | filecheck %s

// What a program keeps, its kernels carry.
// CHECK-NOT: `@carried`
tsched.module @carried(%x: !ttile.buffer<[N], f32>) -> !ttile.buffer<[N], f32> attributes {names = ["x"], workspace = 0, tessera.numerics.policy = {saturation = "saturate"}} {
  %0 = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
  tsched.call @work(%x, %0) sizes = [N]
  tsched.return %0
}
ttile.kernel @work(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = [1], tessera.numerics.policy = {saturation = "saturate"}} {
  ttile.return
}
// -----
// CHECK: error[T0107]: `@work` carries no policy, and `@dropped`, which calls it, keeps `saturate`
// CHECK-NEXT: check_policy.mlir:[[# @LINE + 4]]:3
// CHECK: = help: write `tessera.numerics.policy` on the kernel too
tsched.module @dropped(%x: !ttile.buffer<[N], f32>) -> !ttile.buffer<[N], f32> attributes {names = ["x"], workspace = 0, tessera.numerics.policy = {saturation = "saturate"}} {
  %0 = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
  tsched.call @work(%x, %0) sizes = [N]
  tsched.return %0
}
ttile.kernel @work(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = [1]} {
  ttile.return
}
