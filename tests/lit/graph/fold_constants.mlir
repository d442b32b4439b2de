// RUN: tessera-opt %s -p graph-fold-constants | filecheck %s
// RUN: tessera-opt %s -p 'graph-fold-constants{limit = 1}' | filecheck %s --check-prefix=SMALL

// What depends on constants alone is computed; -inf survives.
// CHECK-LABEL: tgraph.func @compute(
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.constant {value = array<f32, [2], [-1.0, -inf]>}
// CHECK-NEXT:    tgraph.return %[[C]]
// SMALL-LABEL: tgraph.func @compute(
// SMALL:         tgraph.neg
tgraph.func @compute() -> !tgraph.tensor<[2], f32> {
  %0 = tgraph.constant {value = array<f32, [2], [1.0, inf]>} : () -> !tgraph.tensor<[2], f32>
  %1 = tgraph.neg %0 : (!tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32>
  tgraph.return %1 : (!tgraph.tensor<[2], f32>) -> ()
}

// A size that is not known, or a result that is large, stays.
// CHECK-LABEL: tgraph.func @leave(
// CHECK-COUNT-2: tgraph.neg
tgraph.func @leave() -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[100], f32>) {
  %0 = tgraph.full {value = 1.0, shape = [B], dtype = f32} : () -> !tgraph.tensor<[B], f32>
  %1 = tgraph.neg %0 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  %2 = tgraph.full {value = 1.0, shape = [100], dtype = f32} : () -> !tgraph.tensor<[100], f32>
  %3 = tgraph.neg %2 : (!tgraph.tensor<[100], f32>) -> !tgraph.tensor<[100], f32>
  tgraph.return %1, %3 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[100], f32>) -> ()
}
