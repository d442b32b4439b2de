// RUN: tessera-opt %s -p graph-state-accumulators | filecheck %s
// RUN: tessera-opt %s -p 'graph-state-accumulators,graph-check-numerics' --verify

// Floats are summed in f32, and in f64 beside f64; integers in 32 bits at least; what is stated stays.
// CHECK-LABEL: tgraph.func @products(
// CHECK:         tgraph.matmul %{{.*}} {accumulate = f32} : (!tgraph.tensor<[M, M], bf16>
// CHECK-NEXT:    tgraph.matmul %{{.*}} {accumulate = i32} : (!tgraph.tensor<[M, M], i8>
// CHECK-NEXT:    tgraph.sum %{{.*}} {axes = [1], accumulate = f32}
// CHECK-NEXT:    tgraph.sum %{{.*}} {axes = [1], accumulate = i64}
// CHECK-NEXT:    tgraph.sum %{{.*}} {axes = [1], accumulate = f64}
// CHECK-NEXT:    tgraph.return
tgraph.func @products(%a: !tgraph.tensor<[M, M], bf16>, %b: !tgraph.tensor<[M, M], i8>) -> !tgraph.tensor<[M], bf16> {
  %0 = tgraph.matmul %a, %a : (!tgraph.tensor<[M, M], bf16>, !tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M, M], bf16>
  %1 = tgraph.matmul %b, %b : (!tgraph.tensor<[M, M], i8>, !tgraph.tensor<[M, M], i8>) -> !tgraph.tensor<[M, M], i8>
  %2 = tgraph.sum %a {axes = [1]} : (!tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16>
  %3 = tgraph.sum %b {axes = [1]} : (!tgraph.tensor<[M, M], i8>) -> !tgraph.tensor<[M], i64>
  %4 = tgraph.sum %a {axes = [1], accumulate = f64} : (!tgraph.tensor<[M, M], bf16>) -> !tgraph.tensor<[M], bf16>
  tgraph.return %4 : (!tgraph.tensor<[M], bf16>) -> ()
}
