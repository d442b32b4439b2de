// RUN: tessera-opt %s -p graph-rematerialize | filecheck %s
// RUN: tessera-opt %s -p graph-rematerialize{level=2} | filecheck %s --check-prefix=ROWS
// RUN: tessera-opt %s -p graph-rematerialize{level=3} | filecheck %s --check-prefix=ALL

// Of a chain of pointwise ops the last is kept where it is smallest; an argument costs nothing, so here nothing is.
// CHECK-LABEL: tgraph.func @chain(
// CHECK-SAME:    %[[X:[a-z0-9_]+]]: !tgraph.tensor<[64], f32>, %[[C:[a-z0-9_]+]]
// CHECK:         %[[S:[a-z0-9_]+]] = tgraph.sin %{{[a-z0-9_]+}}
// CHECK:         %[[Y:[a-z0-9_]+]] = tgraph.neg
// CHECK-NEXT:    %[[B:[a-z0-9_]+]] = tgraph.optimization_barrier %[[X]], %[[C]]
// CHECK-NEXT:    %[[F:[a-z0-9_]+]] = tgraph.exp %[[B]]
// CHECK-NEXT:    %[[T:[a-z0-9_]+]] = tgraph.sin %[[F]]
// CHECK-NEXT:    %[[M:[a-z0-9_]+]] = tgraph.mul %[[C]], %[[T]]
// CHECK-NEXT:    tgraph.return %[[Y]], %[[M]]
tgraph.func @chain(%x: !tgraph.tensor<[64], f32>, %c: !tgraph.tensor<[64], f32>) -> (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) {
  %e = tgraph.exp %x : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %s = tgraph.sin %e : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %t = tgraph.tanh %s : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %y = tgraph.neg %t : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %r = tgraph.saved_value %s, %c : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  %m = tgraph.mul %c, %r : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  tgraph.return %y, %m : (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) -> ()
}

// What a contraction computes is kept, and a row that is reduced from it; `level` lets more be computed again.
// CHECK-LABEL: tgraph.func @heavy(
// CHECK:         %[[P:[a-z0-9_]+]] = tgraph.matmul
// CHECK-NEXT:    %[[S:[a-z0-9_]+]] = tgraph.sum %[[P]]
// CHECK:         tgraph.mul %{{[a-z0-9_]+}}, %[[P]]
// CHECK:         tgraph.mul %{{[a-z0-9_]+}}, %[[S]]
// ROWS-LABEL:  tgraph.func @heavy(
// ROWS:          %[[P:[a-z0-9_]+]] = tgraph.matmul
// ROWS:          %[[B:[a-z0-9_]+]] = tgraph.optimization_barrier %[[P]]
// ROWS-NEXT:     tgraph.sum %[[B]]
// ALL-LABEL:   tgraph.func @heavy(
// ALL:           tgraph.matmul
// ALL:           tgraph.optimization_barrier
// ALL:           tgraph.matmul
tgraph.func @heavy(%x: !tgraph.tensor<[8, 8], f32>, %c: !tgraph.tensor<[8, 8], f32>, %d: !tgraph.tensor<[8], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8], f32>) {
  %p = tgraph.matmul %x, %x {accumulate = f32} : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %s = tgraph.sum %p {axes = [1], accumulate = f32} : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8], f32>
  %y = tgraph.neg %s : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %r = tgraph.saved_value %p, %c : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %m = tgraph.mul %c, %r : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %q = tgraph.saved_value %s, %d : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %n = tgraph.mul %d, %q : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %y, %m, %n : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8], f32>) -> ()
}
