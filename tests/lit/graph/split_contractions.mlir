// RUN: tessera-opt %s -p graph-split-contractions | filecheck %s

// Segments of K are partial results in the accumulator, added by neighbours; one that has none goes up as it is.
// CHECK-LABEL: tgraph.func @three(
// CHECK:         %[[P:[a-z0-9]+]] = tgraph.matmul %a, %b {accumulate = f32, dtype = f32, segment = 1024, partial = true} : (!tgraph.tensor<[M, 2600], bf16>, !tgraph.tensor<[2600, 8], bf16>) -> !tgraph.tensor<[3, M, 8], f32>
// CHECK-COUNT-3: tgraph.slice %[[P]]
// CHECK:         %[[L:[a-z0-9]+]] = tgraph.add
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.add %[[L]],
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tgraph.cast %[[S]] {dtype = bf16}
// CHECK-NEXT:    tgraph.return %[[C]]
tgraph.func @three(%a: !tgraph.tensor<[M, 2600], bf16>, %b: !tgraph.tensor<[2600, 8], bf16>) -> !tgraph.tensor<[M, 8], bf16> {
  %0 = tgraph.matmul %a, %b {accumulate = f32, segment = 1024} : (!tgraph.tensor<[M, 2600], bf16>, !tgraph.tensor<[2600, 8], bf16>) -> !tgraph.tensor<[M, 8], bf16>
  tgraph.return %0 : (!tgraph.tensor<[M, 8], bf16>) -> ()
}

// Many are joined by a loop.
// CHECK-LABEL: tgraph.func @many(
// CHECK:         %[[P:[a-z0-9]+]] = tgraph.dot_general {{.*}}segment = 1024, partial = true{{.*}} -> !tgraph.tensor<[20, 4, 2], f32>
// CHECK-NEXT:    tgraph.join_segments %[[P]] {dtype = f32}
tgraph.func @many(%a: !tgraph.tensor<[20000, 4], f32>, %b: !tgraph.tensor<[20000, 2], f32>) -> !tgraph.tensor<[4, 2], f32> {
  %0 = tgraph.dot_general %a, %b {lhs_contract = [0], rhs_contract = [0], accumulate = f32, segment = 1024} : (!tgraph.tensor<[20000, 4], f32>, !tgraph.tensor<[20000, 2], f32>) -> !tgraph.tensor<[4, 2], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 2], f32>) -> ()
}

// A K that is no longer than a segment is one.
// CHECK-LABEL: tgraph.func @one(
// CHECK-NEXT:    tgraph.matmul %a, %b {accumulate = f32} :
tgraph.func @one(%a: !tgraph.tensor<[M, 1024], f32>, %b: !tgraph.tensor<[1024, 8], f32>) -> !tgraph.tensor<[M, 8], f32> {
  %0 = tgraph.matmul %a, %b {accumulate = f32, segment = 1024} : (!tgraph.tensor<[M, 1024], f32>, !tgraph.tensor<[1024, 8], f32>) -> !tgraph.tensor<[M, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[M, 8], f32>) -> ()
}

// Sizes that are not known decide at run time, with what is computed in the kernel of the contraction.
// CHECK-LABEL: tgraph.func @symbolic(
// CHECK:         tgraph.size_cond %{{.*}} {size = 
// CHECK:         %[[T:[a-z0-9]+]] = tgraph.transpose
// CHECK-NEXT:    %[[M:[a-z0-9]+]] = tgraph.matmul %{{[a-z0-9]+}}, %[[T]] {accumulate = f32} :
// CHECK-NEXT:    tgraph.relu %[[M]]
// CHECK:         tgraph.matmul %{{.*}} {accumulate = f32, dtype = f32, segment = 256*((K + 1023) floordiv 1024), partial = true}
// CHECK-NEXT:    %[[J:[a-z0-9]+]] = tgraph.join_segments
// CHECK-NEXT:    tgraph.relu %[[J]]
tgraph.func @symbolic(%a: !tgraph.tensor<[M, K], f32>, %b: !tgraph.tensor<[8, K], f32>) -> !tgraph.tensor<[M, 8], f32> {
  %t = tgraph.transpose %b {axes = [1, 0]} : (!tgraph.tensor<[8, K], f32>) -> !tgraph.tensor<[K, 8], f32>
  %0 = tgraph.matmul %a, %t {accumulate = f32, segment = 256*((K + 1023) floordiv 1024)} : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, 8], f32>) -> !tgraph.tensor<[M, 8], f32>
  %1 = tgraph.relu %0 : (!tgraph.tensor<[M, 8], f32>) -> !tgraph.tensor<[M, 8], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, 8], f32>) -> ()
}
