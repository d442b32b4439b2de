// RUN: tessera-opt %s -p 'graph-decompose{checks = true}' | filecheck %s

// Indices are looked at before they are made legal, and the function says that it may end the run.
// CHECK-LABEL: tgraph.func @rows(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: {{.*}}, %[[I:[a-z0-9]+]]: {{.*}}tessera.effects = ["io"]
// CHECK-NEXT:    %[[SIZE:[a-z0-9]+]] = tgraph.dim_size {dims = [N]}
// CHECK-NEXT:    tgraph.check_index %[[I]], %[[SIZE]] {op = "index_get"}
// CHECK:         tgraph.clamp
// CHECK:         tgraph.index_legal %[[X]]
tgraph.func @rows(%x: !tgraph.tensor<[N, 4], f32>, %i: !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32> attributes {guards = [[dim<min(N, 1)>, dim<1>, "rows"]]} {
  %0 = tgraph.take %x, %i {axis = 0} : (!tgraph.tensor<[N, 4], f32>, !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[K, 4], f32>) -> ()
}

// A function without indices has nothing to say.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NOT:     tessera.effects
// CHECK-NOT:     check_index
tgraph.func @leave(%x: !tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.softmax %x {axis = 1} : (!tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}
