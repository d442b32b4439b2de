// RUN: tessera-opt %s -p schedule-form-groups,schedule-deduplicate | filecheck %s

// Two groups that differ only in the names of sizes and values share one body; what differs in more does not.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @[[SUM:sum_[0-9a-f]+]](%x) {kind = "row", axes = [1], sizes = {{\[}}["s0", dim<A>], ["s1", dim<B>]]
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @[[SUM]](%y) {kind = "row", axes = [1], sizes = {{\[}}["s0", dim<C>], ["s1", dim<D>]]
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @[[MAX:max_[0-9a-f]+]](%y)
// CHECK-NEXT:    tsched.return %[[A]], %[[B]], %[[C]]
// CHECK:       tgraph.func @[[SUM]](%[[X:[a-z0-9]+]]: !tgraph.tensor<[s0, s1], f32>)
// CHECK:         tgraph.sum %[[X]]
// CHECK:       tgraph.func @[[MAX]](
// CHECK-NOT:   tgraph.func
tgraph.func @main(%x: !tgraph.tensor<[A, B], f32>, %y: !tgraph.tensor<[C, D], f32>) -> (!tgraph.tensor<[A], f32>, !tgraph.tensor<[C], f32>, !tgraph.tensor<[1, D], f32>) {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[A, B], f32>) -> !tgraph.tensor<[A], f32>
  %1 = tgraph.sum %y {axes = [1]} : (!tgraph.tensor<[C, D], f32>) -> !tgraph.tensor<[C], f32>
  %2 = tgraph.max %y {axes = [0], keepdims = true, identity = true} : (!tgraph.tensor<[C, D], f32>) -> !tgraph.tensor<[1, D], f32>
  tgraph.return %0, %1, %2 : (!tgraph.tensor<[A], f32>, !tgraph.tensor<[C], f32>, !tgraph.tensor<[1, D], f32>) -> ()
}
