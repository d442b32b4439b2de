// RUN: tessera-opt %s -p graph-canonicalize | filecheck %s

// Two rotations merge, in the right order: a swap of them would give [2, 1, 0].
// CHECK-LABEL: tgraph.func @merge_transposes(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[A, B, C], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.transpose %[[X]] {axes = [0, 2, 1]}
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @merge_transposes(%x: !tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[A, C, B], f32> {
  %0 = tgraph.transpose %x {axes = [1, 2, 0]} : (!tgraph.tensor<[A, B, C], f32>) -> !tgraph.tensor<[B, C, A], f32>
  %1 = tgraph.transpose %0 {axes = [2, 1, 0]} : (!tgraph.tensor<[B, C, A], f32>) -> !tgraph.tensor<[A, C, B], f32>
  tgraph.return %1 : (!tgraph.tensor<[A, C, B], f32>) -> ()
}

// A chain folds to its argument, and what is then dead goes.
// CHECK-LABEL: tgraph.func @cancel(
// CHECK-SAME:    %[[X:[a-z0-9]+]]
// CHECK-NEXT:    tgraph.return %[[X]]
tgraph.func @cancel(%x: !tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[A, B], f32> {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32>
  %1 = tgraph.reshape %0 {shape = [B, A]} : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[B, A], f32>
  %2 = tgraph.transpose %1 {axes = [1, 0]} : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[A, B], f32>
  tgraph.return %2 : (!tgraph.tensor<[A, B], f32>) -> ()
}

// What cannot be simpler stays.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-NEXT:    tgraph.transpose
// CHECK-NEXT:    tgraph.exp
// CHECK-NEXT:    tgraph.return
tgraph.func @leave(%x: !tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32> {
  %0 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[B, A], f32>
  %1 = tgraph.exp %0 : (!tgraph.tensor<[B, A], f32>) -> !tgraph.tensor<[B, A], f32>
  tgraph.return %1 : (!tgraph.tensor<[B, A], f32>) -> ()
}
