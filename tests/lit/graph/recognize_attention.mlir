// RUN: tessera-opt %s -p 'graph-recognize-attention{rewrite = true}' | filecheck %s
// RUN: tessera-opt %s -p graph-recognize-attention | filecheck %s --check-prefix=NOTED

// Two products with a scaled softmax between them are one op, whose keys are not transposed.
// CHECK-LABEL: tgraph.func @plain(
// CHECK-SAME:    tessera.recognized = ["attention of [2, 4, 6, 8] f32 over [2, 4, 9, 8]
// CHECK-NEXT:    %[[OUT:[a-z0-9]+]] = tgraph.attention %q, %k, %v {scale = 0.125}
// CHECK-NEXT:    tgraph.return %[[OUT]]
// NOTED-LABEL: tgraph.func @plain(
// NOTED-SAME:    not rewritten, as its online softmax rounds otherwise
// NOTED-NEXT:    tgraph.transpose %k
// NOTED:         tgraph.softmax
// NOTED-NOT:     tgraph.attention
tgraph.func @plain(%q: !tgraph.tensor<[2, 4, 6, 8], f32>, %k: !tgraph.tensor<[2, 4, 9, 8], f32>, %v: !tgraph.tensor<[2, 4, 9, 8], f32>) -> !tgraph.tensor<[2, 4, 6, 8], f32> attributes {names = ["q", "k", "v"]} {
  %0 = tgraph.transpose %k {axes = [0, 1, 3, 2]} : (!tgraph.tensor<[2, 4, 9, 8], f32>) -> !tgraph.tensor<[2, 4, 8, 9], f32>
  %1 = tgraph.matmul %q, %0 : (!tgraph.tensor<[2, 4, 6, 8], f32>, !tgraph.tensor<[2, 4, 8, 9], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %2 = tgraph.full {value = 0.125, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  %3 = tgraph.mul %1, %2 : (!tgraph.tensor<[2, 4, 6, 9], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %4 = tgraph.softmax %3 {axis = 3} : (!tgraph.tensor<[2, 4, 6, 9], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %5 = tgraph.matmul %4, %v : (!tgraph.tensor<[2, 4, 6, 9], f32>, !tgraph.tensor<[2, 4, 9, 8], f32>) -> !tgraph.tensor<[2, 4, 6, 8], f32>
  tgraph.return %5 : (!tgraph.tensor<[2, 4, 6, 8], f32>) -> ()
}

// Heads behind positions, by einsum; a mask is added to the scores, and a factor of queries is one of the scores.
// CHECK-LABEL: tgraph.func @by_einsum(
// CHECK-DAG:     %[[Q:[a-z0-9]+]] = tgraph.transpose %q {axes = [0, 2, 1, 3]}
// CHECK-DAG:     %[[K:[a-z0-9]+]] = tgraph.transpose %k {axes = [0, 2, 1, 3]}
// CHECK-DAG:     %[[V:[a-z0-9]+]] = tgraph.transpose %v {axes = [0, 2, 1, 3]}
// CHECK:         %[[OUT:[a-z0-9]+]] = tgraph.attention %[[Q]], %[[K]], %[[V]], %mask {scale = 0.5}
// CHECK-NEXT:    tgraph.transpose %[[OUT]] {axes = [0, 2, 1, 3]}
tgraph.func @by_einsum(%q: !tgraph.tensor<[2, 6, 4, 8], f32>, %k: !tgraph.tensor<[2, 9, 4, 8], f32>, %v: !tgraph.tensor<[2, 9, 4, 8], f32>, %mask: !tgraph.tensor<[6, 9], f32>) -> !tgraph.tensor<[2, 6, 4, 8], f32> attributes {names = ["q", "k", "v", "mask"]} {
  %0 = tgraph.full {value = 0.5, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  %1 = tgraph.mul %q, %0 : (!tgraph.tensor<[2, 6, 4, 8], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[2, 6, 4, 8], f32>
  %2 = tgraph.einsum %1, %k {equation = "bqhd,bkhd->bhqk"} : (!tgraph.tensor<[2, 6, 4, 8], f32>, !tgraph.tensor<[2, 9, 4, 8], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %3 = tgraph.add %2, %mask : (!tgraph.tensor<[2, 4, 6, 9], f32>, !tgraph.tensor<[6, 9], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %4 = tgraph.softmax %3 {axis = 3} : (!tgraph.tensor<[2, 4, 6, 9], f32>) -> !tgraph.tensor<[2, 4, 6, 9], f32>
  %5 = tgraph.einsum %4, %v {equation = "bhqk,bkhd->bqhd"} : (!tgraph.tensor<[2, 4, 6, 9], f32>, !tgraph.tensor<[2, 9, 4, 8], f32>) -> !tgraph.tensor<[2, 6, 4, 8], f32>
  tgraph.return %5 : (!tgraph.tensor<[2, 6, 4, 8], f32>) -> ()
}

// The weights are normalized along queries: it is something else, and nothing is said of it.
// CHECK-LABEL: tgraph.func @over_queries(
// CHECK-NOT:     tessera.recognized
// CHECK:         tgraph.softmax
// CHECK-NOT:     tgraph.attention
tgraph.func @over_queries(%q: !tgraph.tensor<[6, 8], f32>, %k: !tgraph.tensor<[8, 6], f32>, %v: !tgraph.tensor<[6, 8], f32>) -> !tgraph.tensor<[6, 8], f32> attributes {names = ["q", "k", "v"]} {
  %0 = tgraph.matmul %q, %k : (!tgraph.tensor<[6, 8], f32>, !tgraph.tensor<[8, 6], f32>) -> !tgraph.tensor<[6, 6], f32>
  %1 = tgraph.softmax %0 {axis = 0} : (!tgraph.tensor<[6, 6], f32>) -> !tgraph.tensor<[6, 6], f32>
  %2 = tgraph.matmul %1, %v : (!tgraph.tensor<[6, 6], f32>, !tgraph.tensor<[6, 8], f32>) -> !tgraph.tensor<[6, 8], f32>
  tgraph.return %2 : (!tgraph.tensor<[6, 8], f32>) -> ()
}

// The weights are a result too.
// CHECK-LABEL: tgraph.func @weights_kept(
// CHECK-NOT:     tgraph.attention
tgraph.func @weights_kept(%q: !tgraph.tensor<[6, 8], f32>, %k: !tgraph.tensor<[8, 6], f32>, %v: !tgraph.tensor<[6, 8], f32>) -> (!tgraph.tensor<[6, 8], f32>, !tgraph.tensor<[6, 6], f32>) attributes {names = ["q", "k", "v"]} {
  %0 = tgraph.matmul %q, %k : (!tgraph.tensor<[6, 8], f32>, !tgraph.tensor<[8, 6], f32>) -> !tgraph.tensor<[6, 6], f32>
  %1 = tgraph.softmax %0 {axis = 1} : (!tgraph.tensor<[6, 6], f32>) -> !tgraph.tensor<[6, 6], f32>
  %2 = tgraph.matmul %1, %v : (!tgraph.tensor<[6, 6], f32>, !tgraph.tensor<[6, 8], f32>) -> !tgraph.tensor<[6, 8], f32>
  tgraph.return %2, %1 : (!tgraph.tensor<[6, 8], f32>, !tgraph.tensor<[6, 6], f32>) -> ()
}
