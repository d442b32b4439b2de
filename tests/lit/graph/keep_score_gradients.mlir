// RUN: tessera-opt %s -p "graph-keep-score-gradients{most=4194304}" | filecheck %s

// Gradients of scores are computed once, and those of queries are a matmul of them in one accumulator.
// CHECK-LABEL: tgraph.func @kept(
// CHECK-NEXT:    %[[S:[a-z0-9]+]], %[[K:[a-z0-9]+]], %[[V:[a-z0-9]+]] = tgraph.attention_backward_keys %q, %k, %v, %g, %l, %d :
// CHECK-NEXT:    %[[T:[a-z0-9]+]] = tgraph.transpose %[[S]] {axes = [0, 1, 3, 2]} :
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.matmul %[[T]], %k {dtype = f32} :
// CHECK:         tgraph.full {value = 0.088388
// CHECK-NEXT:    %[[M:[a-z0-9]+]] = tgraph.mul %[[P]],
// CHECK-NEXT:    %[[Q:[a-z0-9]+]] = tgraph.cast %[[M]]
// CHECK-NEXT:    tgraph.return %[[Q]], %[[K]], %[[V]]
tgraph.func @kept(%q: !tgraph.tensor<[2, 2, 512, 128], bf16>, %k: !tgraph.tensor<[2, 2, 1024, 128], bf16>, %v: !tgraph.tensor<[2, 2, 1024, 128], bf16>, %g: !tgraph.tensor<[2, 2, 512, 128], bf16>, %l: !tgraph.tensor<[2, 2, 512], f32>, %d: !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>) {
  %0, %1, %2 = tgraph.attention_backward %q, %k, %v, %g, %l, %d : (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512], f32>, !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>) -> ()
}

// Twice as many scores are more bytes than there may be: the batch is cut, and the second chunk waits for the first.
// CHECK-LABEL: tgraph.func @large(
// CHECK:         tgraph.attention_backward_keys {{.*}} : (!tgraph.tensor<[1, 2, 1024, 128], bf16>
// CHECK:         %[[FIRST:[a-z0-9]+]] = tgraph.cast
// CHECK:         tgraph.optimization_barrier %{{[a-z0-9]+}}, %[[FIRST]] :
// CHECK-NEXT:    tgraph.attention_backward_keys
// CHECK:         %[[SECOND:[a-z0-9]+]] = tgraph.cast
// CHECK-NEXT:    tgraph.concat %[[FIRST]], %[[SECOND]] {axis = 0}
// CHECK-NEXT:    tgraph.concat
// CHECK-NEXT:    tgraph.concat
// CHECK-NEXT:    tgraph.return
tgraph.func @large(%q: !tgraph.tensor<[2, 2, 1024, 128], bf16>, %l: !tgraph.tensor<[2, 2, 1024], f32>) -> (!tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>) {
  %0, %1, %2 = tgraph.attention_backward %q, %q, %q, %q, %l, %l : (!tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024], f32>, !tgraph.tensor<[2, 2, 1024], f32>) -> (!tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>, !tgraph.tensor<[2, 2, 1024, 128], bf16>) -> ()
}

// One head has more than there may be.
// CHECK-LABEL: tgraph.func @larger(
// CHECK-NEXT:    tgraph.attention_backward %q
tgraph.func @larger(%q: !tgraph.tensor<[2, 2, 2048, 128], bf16>, %l: !tgraph.tensor<[2, 2, 2048], f32>) -> (!tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>) {
  %0, %1, %2 = tgraph.attention_backward %q, %q, %q, %q, %l, %l : (!tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048], f32>, !tgraph.tensor<[2, 2, 2048], f32>) -> (!tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>, !tgraph.tensor<[2, 2, 2048, 128], bf16>) -> ()
}

// Half of causal scores would be nothing.
// CHECK-LABEL: tgraph.func @causal(
// CHECK-NEXT:    tgraph.attention_backward %q
tgraph.func @causal(%q: !tgraph.tensor<[2, 2, 512, 128], bf16>, %l: !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>) {
  %0, %1, %2 = tgraph.attention_backward %q, %q, %q, %q, %l, %l {causal = true} : (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512], f32>, !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>, !tgraph.tensor<[2, 2, 512, 128], bf16>) -> ()
}

// Scores of small heads are computed twice in less time than they are written and read.
// CHECK-LABEL: tgraph.func @small(
// CHECK-NEXT:    tgraph.attention_backward %q
tgraph.func @small(%q: !tgraph.tensor<[2, 2, 512, 64], bf16>, %l: !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>) {
  %0, %1, %2 = tgraph.attention_backward %q, %q, %q, %q, %l, %l : (!tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512], f32>, !tgraph.tensor<[2, 2, 512], f32>) -> (!tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>)
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>, !tgraph.tensor<[2, 2, 512, 64], bf16>) -> ()
}
