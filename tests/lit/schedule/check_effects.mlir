// RUN: not tessera-opt %s --split -p schedule-check-effects 2>&1 | filecheck %s

// A program that declares what it prints and what its kernels draw; one that declares nothing promises nothing.
// CHECK-NOT: `@honest` declares
tsched.module @honest(%x: !ttile.buffer<[N], f32>) -> !ttile.buffer<[N], f32> attributes {names = ["x"], workspace = 0, tessera.effects = ["io", "random"]} {
  tsched.callback %x {call = "debug_print", text = "x = {}"}
  %0 = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
  tsched.call @drawing(%x, %0) sizes = [N]
  tsched.return %0
}
tsched.module @silent(%x: !ttile.buffer<[N], f32>) -> !ttile.buffer<[N], f32> {
  tsched.callback %x {call = "debug_print", text = "x = {}"}
  tsched.return %x
}
ttile.kernel @drawing(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = [1], tessera.effects = ["random"]} {
  ttile.return
}
// -----
// What a kernel declares, its program has.
// CHECK: error[T0108]: `tsched.call` has effect random, and `@hides` declares {io}
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 4]]:3
// CHECK: = help: declare it: `tessera.effects = ["io", "random"]`
tsched.module @hides(%x: !ttile.buffer<[N], f32>) -> !ttile.buffer<[N], f32> attributes {tessera.effects = ["io"]} {
  %0 = tsched.alloc {output = 0} : !ttile.buffer<[N], f32>
  tsched.call @drawing(%x, %0) sizes = [N]
  tsched.return %0
}
ttile.kernel @drawing(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [N], writes = [1], tessera.effects = ["random"]} {
  ttile.return
}
