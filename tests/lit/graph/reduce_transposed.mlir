// RUN: tessera-opt %s --split -p graph-reduce-transposed | filecheck %s

// The sum of a transposed tensor is that of the tensor over its other axis; a conversion goes along.
// CHECK-LABEL: tgraph.func @sums(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[4, 5], bf16>
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.sum %[[X]] {axes = [0]}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.cast %[[X]] {dtype = f32}
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.max %[[C]] {axes = [0]}
// CHECK-NEXT:    tgraph.return %[[S]], %[[T]]
tgraph.func @sums(%x: !tgraph.tensor<[4, 5], bf16>) -> (!tgraph.tensor<[5], bf16>, !tgraph.tensor<[5], f32>) {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[4, 5], bf16>) -> !tgraph.tensor<[5, 4], bf16>
  %1 = tgraph.sum %0 {axes = [1]} : (!tgraph.tensor<[5, 4], bf16>) -> !tgraph.tensor<[5], bf16>
  %2 = tgraph.cast %0 {dtype = f32} : (!tgraph.tensor<[5, 4], bf16>) -> !tgraph.tensor<[5, 4], f32>
  %3 = tgraph.max %2 {axes = [1]} : (!tgraph.tensor<[5, 4], f32>) -> !tgraph.tensor<[5], f32>
  tgraph.return %1, %3 : (!tgraph.tensor<[5], bf16>, !tgraph.tensor<[5], f32>) -> ()
}
// -----
// What is left of three axes is transposed behind the sum, where it is small.
// CHECK-LABEL: tgraph.func @kept(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[A, B, C], f32>
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.sum %[[X]] {axes = [1]}
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.transpose %[[S]] {axes = [1, 0]} : {{.*}} -> !tgraph.tensor<[C, A], f32>
// CHECK-NEXT:    tgraph.return %[[T]]
tgraph.func @kept(%x: !tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[C, A], f32> {
  %0 = tgraph.transpose %x {axes = [2, 0, 1]} : (!tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[C, A, B], f32>
  %1 = tgraph.sum %0 {axes = [2]} : (!tgraph.tensor<[C, A, B], f32>) -> !tgraph.tensor<[C, A], f32>
  tgraph.return %1 : (!tgraph.tensor<[C, A], f32>) -> ()
}
// -----
// Axes in another order would add up in another order, and what others read too stays as it is.
// CHECK-LABEL: tgraph.func @other_order(
// CHECK-NEXT:    tgraph.transpose
// CHECK-NEXT:    tgraph.sum {{.*}} {axes = [0, 1]}
tgraph.func @other_order(%x: !tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[C], f32> {
  %0 = tgraph.transpose %x {axes = [1, 0, 2]} : (!tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[B, A, C], f32>
  %1 = tgraph.sum %0 {axes = [0, 1]} : (!tgraph.tensor<[B, A, C], f32>) -> !tgraph.tensor<[C], f32>
  tgraph.return %1 : (!tgraph.tensor<[C], f32>) -> ()
}
// -----
// CHECK-LABEL: tgraph.func @read_again(
// CHECK-NEXT:    tgraph.transpose
// CHECK-NEXT:    tgraph.max {{.*}} {axes = [1]}
tgraph.func @read_again(%x: !tgraph.tensor<[4, 5], f32>) -> (!tgraph.tensor<[5], f32>, !tgraph.tensor<[5, 4], f32>) {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[4, 5], f32>) -> !tgraph.tensor<[5, 4], f32>
  %1 = tgraph.max %0 {axes = [1]} : (!tgraph.tensor<[5, 4], f32>) -> !tgraph.tensor<[5], f32>
  %2 = tgraph.neg %0 : (!tgraph.tensor<[5, 4], f32>) -> !tgraph.tensor<[5, 4], f32>
  tgraph.return %1, %2 : (!tgraph.tensor<[5], f32>, !tgraph.tensor<[5, 4], f32>) -> ()
}
