// RUN: tessera-opt %s -p schedule-form-groups | filecheck %s
// RUN: tessera-opt %s -p 'schedule-form-groups{fusion = false}' | filecheck %s --check-prefix=ALONE

// Bias and activation are the epilogue of their contraction.
// CHECK-LABEL: tsched.module @epilogue(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x, %w, %b) {kind = "contraction", flops = 2*K*M*N + 2*M*N, bytes = 4*K*M + 4*K*N + 4*M*N + 4*N}
// CHECK-NEXT:    tsched.return %[[Y]]
// CHECK:       tgraph.func @[[G]](
// CHECK-NEXT:    tgraph.matmul
// CHECK-NEXT:    tgraph.add
// CHECK-NEXT:    tgraph.relu
// CHECK-NEXT:    tgraph.return
// ALONE-LABEL: tsched.module @epilogue(
// ALONE-NEXT:    tsched.fuse @{{.*}} {kind = "contraction"
// ALONE-NEXT:    tsched.fuse @{{.*}} {kind = "map"
// ALONE-NEXT:    tsched.fuse @{{.*}} {kind = "map"
// ALONE-NEXT:    tsched.return
tgraph.func @epilogue(%x: !tgraph.tensor<[M, K], f32>, %w: !tgraph.tensor<[K, N], f32>, %b: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.add %0, %b : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  %2 = tgraph.relu %1 : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %2 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// Two reductions of one space, what is between them, and what comes before and after: one group, with two results.
// CHECK-LABEL: tsched.module @rows(
// CHECK-NEXT:    %[[H:[a-z0-9]+]], %[[Y:[a-z0-9]+]] = tsched.fuse @[[G:[a-z0-9]+]](%x, %r) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[Y]], %[[H]]
tgraph.func @rows(%x: !tgraph.tensor<[M, N], f32>, %r: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) {
  %h = tgraph.add %x, %r : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %0 = tgraph.max %h {axes = [1], keepdims = true, identity = true} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, 1], f32>
  %1 = tgraph.sub %h, %0 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, N], f32>
  %2 = tgraph.exp %1 : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %3 = tgraph.sum %2 {axes = [1], keepdims = true} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, 1], f32>
  %4 = tgraph.div %2, %3 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %4, %h : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, N], f32>) -> ()
}

// A reduction over other axes starts another group.
// CHECK-LABEL: tsched.module @axes(
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "row", axes = [0]
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[E]]) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[R]]
tgraph.func @axes(%x: !tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.sum %0 {axes = [0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N], f32>
  %2 = tgraph.div %0, %1 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[M, N], f32>
  %3 = tgraph.sum %2 {axes = [1]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M], f32>
  tgraph.return %3 : (!tgraph.tensor<[M], f32>) -> ()
}

// The difference reads operand and result of a matmul; it cannot be with the first, for which the matmul waits.
// CHECK-LABEL: tsched.module @cycle(
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x) {kind = "map"
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[E]], %w) {kind = "contraction"
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.fuse @{{.*}}(%[[E]], %[[P]]) {kind = "row", axes = [1]
// CHECK-NEXT:    tsched.return %[[R]]
tgraph.func @cycle(%x: !tgraph.tensor<[M, N], f32>, %w: !tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %1 = tgraph.matmul %0, %w : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[N, N], f32>) -> !tgraph.tensor<[M, N], f32>
  %2 = tgraph.max %1 {axes = [1], keepdims = true, identity = true} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M, 1], f32>
  %3 = tgraph.sub %0, %2 : (!tgraph.tensor<[M, N], f32>, !tgraph.tensor<[M, 1], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %3 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// A view that moves nothing is the same memory; one that does is written out, if it is a result.
// CHECK-LABEL: tsched.module @views(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @[[COPY:[a-z0-9]+]](%x) {kind = "map", flops = 0
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.alias %x : !tgraph.tensor<[M*N], f32>
// CHECK-NEXT:    tsched.return %[[B]], %[[A]]
tgraph.func @views(%x: !tgraph.tensor<[M, N], f32>) -> (!tgraph.tensor<[M*N], f32>, !tgraph.tensor<[N, M], f32>) {
  %0 = tgraph.reshape %x {shape = [M*N]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[M*N], f32>
  %1 = tgraph.transpose %x {axes = [1, 0]} : (!tgraph.tensor<[M, N], f32>) -> !tgraph.tensor<[N, M], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[M*N], f32>, !tgraph.tensor<[N, M], f32>) -> ()
}

// Control flow is a plan inside a plan.
// CHECK-LABEL: tsched.module @flow(
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.if %p ({
// CHECK-NEXT:      %[[A:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x)
// CHECK-NEXT:      tsched.yield %[[A]]
// CHECK-NEXT:    }, {
// CHECK-NEXT:      tsched.yield %x
// CHECK-NEXT:    }) : !tgraph.tensor<[B], f32>
// CHECK-NEXT:    tsched.return %[[R]]
tgraph.func @flow(%p: !tgraph.tensor<[], bool>, %x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.cond %p, %x ({
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    %1 = tgraph.exp %a : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    tgraph.yield %1 : (!tgraph.tensor<[B], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    tgraph.yield %a : (!tgraph.tensor<[B], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// A prefetched tensor is the same memory, and stays a view of it that says which memory it goes to.
// CHECK-LABEL: tsched.module @moved(
// CHECK-NEXT:    %[[W:[a-z0-9]+]] = tsched.alias %w {space = "shared"}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x, %[[W]]) {kind = "contraction"
// CHECK-NEXT:    tsched.return %[[Y]]
tgraph.func @moved(%x: !tgraph.tensor<[M, K], f32>, %w: !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32> {
  %0 = tgraph.prefetch %w {space = "shared"} : (!tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[K, N], f32>
  %1 = tgraph.matmul %x, %0 : (!tgraph.tensor<[M, K], f32>, !tgraph.tensor<[K, N], f32>) -> !tgraph.tensor<[M, N], f32>
  tgraph.return %1 : (!tgraph.tensor<[M, N], f32>) -> ()
}

// A constant is memory of the program, which groups read and results may be; it is in no group.
// CHECK-LABEL: tsched.module @constant(
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.constant {value = array<f32, [2], [1.0, 2.0]>} : !tgraph.tensor<[2], f32>
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @{{.*}}(%x, %[[C]])
// CHECK-NEXT:    tsched.return %[[Y]], %[[C]]
tgraph.func @constant(%x: !tgraph.tensor<[2], f32>) -> (!tgraph.tensor<[2], f32>, !tgraph.tensor<[2], f32>) {
  %c = tgraph.constant {value = array<f32, [2], [1.0, 2.0]>} : () -> !tgraph.tensor<[2], f32>
  %y = tgraph.add %x, %c : (!tgraph.tensor<[2], f32>, !tgraph.tensor<[2], f32>) -> !tgraph.tensor<[2], f32>
  tgraph.return %y, %c : (!tgraph.tensor<[2], f32>, !tgraph.tensor<[2], f32>) -> ()
}
