// RUN: tessera-opt %s -p schedule-emit-tiles | filecheck %s

// The body of a group becomes a kernel, of the size that was chosen, once for all groups that name it.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @double(%x) {kind = "map", sizes = {{\[}}["s0", dim<B>]], kernels = ["double"]}
// CHECK-NEXT:    tsched.tile %[[A]]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @double(%[[A]]) {kind = "map", sizes = {{\[}}["s0", dim<B>]], kernels = ["double"]}
// CHECK-NEXT:    tsched.return %[[B]]
// CHECK-NOT:   tgraph.func
// CHECK:       ttile.kernel @double(%{{.*}}: !ttile.buffer<[s0], f32>, %{{.*}}: !ttile.buffer<[s0], f32>) attributes {symbols = ["s0"]
// CHECK:         ttile.load {{.*}} -> !ttile.tile<[32], f32>
// CHECK-NEXT:    ttile.elementwise %{{.*}}, %{{.*}} {fn = "add"}
// CHECK-NEXT:    ttile.store
// CHECK-NOT:   ttile.kernel
tsched.module @main(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %a = tsched.fuse @double(%x) {kind = "map", sizes = [["s0", dim<B>]]} : !tgraph.tensor<[B], f32>
  tsched.tile %a candidates = [16, 8, 32, 64] chosen = 32 {source = "override", knob = "map.tile"}
  %b = tsched.fuse @double(%a) {kind = "map", sizes = [["s0", dim<B>]]} : !tgraph.tensor<[B], f32>
  tsched.return %b
}
tgraph.func @double(%x: !tgraph.tensor<[s0], f32>) -> !tgraph.tensor<[s0], f32> {
  %0 = tgraph.add %x, %x : (!tgraph.tensor<[s0], f32>, !tgraph.tensor<[s0], f32>) -> !tgraph.tensor<[s0], f32>
  tgraph.return %0 : (!tgraph.tensor<[s0], f32>) -> ()
}

// Loads of a prefetched tensor carry the hint, and the loop around them copies one iteration ahead; others are left alone.
// CHECK-LABEL: tsched.module @moved(
// CHECK:       ttile.kernel @product(
// CHECK:         ttile.for {{.*}}prefetch = 1
// CHECK:         ttile.load %{{[a-z0-9]+}}, {{.*}}map = [_m, _k], bounds = [M, K]} :
// CHECK-NEXT:    ttile.load {{.*}}hints = {space = "shared"}} :
tsched.module @moved(%x: !tgraph.tensor<[M, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %near = tsched.alias %w {space = "shared"} : !tgraph.tensor<[K, N], f32>
  %y = tsched.fuse @product(%x, %near) {kind = "contraction", sizes = [["M", dim<M>], ["K", dim<K>], ["N", dim<N>]]} : !tgraph.tensor<[M, N], f32>
  tsched.return %y
}
tgraph.func @product(%x: !tgraph.tensor<[M, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, N], f32>) -> ()
}
