// RUN: tessera-opt %s -p graph-decompose | filecheck %s

// An index that is out of bounds is an error where that is asked, in every build: what uses it knows its line.
// CHECK-LABEL: tgraph.func @checked(
// CHECK-NOT:     tgraph.clamp
// CHECK:         tgraph.index_legal {{.*}}checked = {op = "embedding", location = {{.*}}, ends = true, mode = "error"}
tgraph.func @checked(%x: !tgraph.tensor<[9, 4], f32>, %i: !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32> {
  %0 = tgraph.embedding %x, %i {mode = "error"} : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[K], i64>) -> !tgraph.tensor<[K, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[K, 4], f32>) -> ()
}

// By default a write drops it: an index of the size of the axis, which nothing is written at.
// CHECK-LABEL: tgraph.func @dropped(
// CHECK:         tgraph.minimum
// CHECK:         tgraph.scatter_rows {{.*}} {mode = "set", drops = true}
tgraph.func @dropped(%x: !tgraph.tensor<[9, 4], f32>, %i: !tgraph.tensor<[K], i64>, %u: !tgraph.tensor<[K, 4], f32>) -> !tgraph.tensor<[9, 4], f32> {
  %0 = tgraph.scatter %x, %i, %u : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[K], i64>, !tgraph.tensor<[K, 4], f32>) -> !tgraph.tensor<[9, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[9, 4], f32>) -> ()
}

// Clipped, there is nothing to drop, unless the axis may have no elements.
// CHECK-LABEL: tgraph.func @clipped(
// CHECK:         tgraph.clamp
// CHECK:         tgraph.scatter_rows {{.*}} {mode = "add"}
// CHECK:         tgraph.scatter_rows {{.*}} {mode = "add", drops = true}
tgraph.func @clipped(%x: !tgraph.tensor<[9, 4], f32>, %y: !tgraph.tensor<[N, 4], f32>, %i: !tgraph.tensor<[K], i64>, %u: !tgraph.tensor<[K, 4], f32>) -> (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[N, 4], f32>) {
  %0 = tgraph.scatter_add %x, %i, %u {mode = "clip"} : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[K], i64>, !tgraph.tensor<[K, 4], f32>) -> !tgraph.tensor<[9, 4], f32>
  %1 = tgraph.scatter_add %y, %i, %u {mode = "clip"} : (!tgraph.tensor<[N, 4], f32>, !tgraph.tensor<[K], i64>, !tgraph.tensor<[K, 4], f32>) -> !tgraph.tensor<[N, 4], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[9, 4], f32>, !tgraph.tensor<[N, 4], f32>) -> ()
}
