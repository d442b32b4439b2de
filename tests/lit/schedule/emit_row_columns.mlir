// RUN: tessera-opt %s -p schedule-emit-tiles | filecheck %s

// A group of rows that also sums along columns is three kernels: rows, with a line of sums from each program; what is
// left of the tree over lanes; and the tree over leaves.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    tsched.fuse @group0(%x) {{.*}}kernels = ["group0_rows", "group0_lanes", "group0_join"]
builtin.module attributes {tessera.version = 4 : i64} {
  tsched.module @main(%x: !tgraph.tensor<[M, 2048], f32>) -> (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>) {
    %0, %1 = tsched.fuse @group0(%x) {kind = "row", axes = [1], flops = 6144*M, bytes = 16384*M + 8192} : (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>)
    tsched.return %0, %1
  }
  tgraph.func @group0(%x: !tgraph.tensor<[M, 2048], f32>) -> (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>) attributes {names = ["x"]} {
    %0 = tgraph.sum %x {axes = [1], keepdims = true} : (!tgraph.tensor<[M, 2048], f32>) -> !tgraph.tensor<[M, 1], f32>
    %1 = tgraph.sub %x, %0 : (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, 2048], f32>
    %2 = tgraph.sum %x {axes = [0]} : (!tgraph.tensor<[M, 2048], f32>) -> !tgraph.tensor<[2048], f32>
    tgraph.return %1, %2 : (!tgraph.tensor<[M, 2048], f32>, !tgraph.tensor<[2048], f32>) -> ()
  }
}

// A program of rows has the four of a lane; the loop around each runs once, or not at all where there is no such row.
// CHECK-LABEL: ttile.kernel @group0_rows(
// CHECK-SAME:    grid = [256*max(((M + 1023) floordiv 1024), 1)], writes = [1, 3]
// CHECK:         ttile.index %{{.*}} {names = ["_p", "_i"], expr = {{.*}}} : (!ttile.index, !ttile.index) -> !ttile.index
// CHECK:         ttile.store %{{.*}}, %3, {{.*}}map = [2048*_p + _r]

// CHECK-LABEL: ttile.kernel @group0_lanes(
// CHECK:         ttile.load %3, {{.*}} -> !ttile.tile<[256, 64], f32>
// CHECK-NEXT:    ttile.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttile.tile<[256, 64], f32>) -> !ttile.tile<[64], f32>

// CHECK-LABEL: ttile.kernel @group0_join(
// CHECK:         ttile.tree
// CHECK:         ttile.store %{{.*}}, %2
