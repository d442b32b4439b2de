// RUN: tessera-opt %s -p graph-decompose | filecheck %s

// Blocks of 128 rows that each lie in one group: as many as any sizes of groups need, 300 / 128 + 2 + 1.
// CHECK-LABEL: tgraph.func @groups(
// CHECK:         %[[Y:.*]] = tgraph.ragged_blocks %x, %w, %{{.*}}, %{{.*}} : {{.*}}!tgraph.tensor<[5], i64>{{.*}} -> !tgraph.tensor<[300, 32], bf16>
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @groups(%x: !tgraph.tensor<[300, 64], bf16>, %w: !tgraph.tensor<[2, 64, 32], bf16>, %offsets: !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[300, 32], bf16> {
  %0 = tgraph.ragged_dot %x, %w, %offsets : (!tgraph.tensor<[300, 64], bf16>, !tgraph.tensor<[2, 64, 32], bf16>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[300, 32], bf16>
  tgraph.return %0 : (!tgraph.tensor<[300, 32], bf16>) -> ()
}

// Outer products have a kernel of their own, and stay.
// CHECK-LABEL: tgraph.func @outer(
// CHECK-NEXT:    tgraph.ragged_outer %x, %y, %offsets
tgraph.func @outer(%x: !tgraph.tensor<[300, 64], bf16>, %y: !tgraph.tensor<[300, 32], bf16>, %offsets: !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[2, 64, 32], bf16> {
  %0 = tgraph.ragged_outer %x, %y, %offsets : (!tgraph.tensor<[300, 64], bf16>, !tgraph.tensor<[300, 32], bf16>, !tgraph.tensor<[3], i64>) -> !tgraph.tensor<[2, 64, 32], bf16>
  tgraph.return %0 : (!tgraph.tensor<[2, 64, 32], bf16>) -> ()
}
