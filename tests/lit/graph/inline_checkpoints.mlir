// RUN: tessera-opt %s -p graph-inline-checkpoints | filecheck %s

// The body stands in the place of the op, inner bodies too; arguments are operands, what is yielded the results.
// CHECK-LABEL: tgraph.func @nested(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[B], f32>, %[[Y:[a-z0-9]+]]
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.sub %[[Y]], %[[X]]
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[S]]
// CHECK-NEXT:    tgraph.return %[[E]], %[[X]]
tgraph.func @nested(%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[B], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) {
  %0, %1 = tgraph.checkpoint %x, %y {policy = ["dots_saveable"]} ({
  ^bb0(%a: !tgraph.tensor<[B], f32>, %b: !tgraph.tensor<[B], f32>):
    %2 = tgraph.checkpoint %b, %a {policy = ["nothing_saveable"]} ({
    ^bb0(%c: !tgraph.tensor<[B], f32>, %d: !tgraph.tensor<[B], f32>):
      %3 = tgraph.sub %c, %d : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
      tgraph.yield %3 : (!tgraph.tensor<[B], f32>) -> ()
    }) : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    %4 = tgraph.exp %2 : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
    tgraph.yield %4, %a : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> ()
  }) : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>)
  tgraph.return %0, %1 : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> ()
}

// Other bodies stay where they are, and what is checkpointed inside of them goes.
// CHECK-LABEL: tgraph.func @in_branch(
// CHECK:         tgraph.cond
// CHECK-NOT:     tgraph.checkpoint
// CHECK:           tgraph.neg
tgraph.func @in_branch(%p: !tgraph.tensor<[], bool>, %x: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.cond %p, %x ({
  ^bb0(%v: !tgraph.tensor<[], f32>):
    %1 = tgraph.checkpoint %v ({
    ^bb0(%w: !tgraph.tensor<[], f32>):
      %2 = tgraph.neg %w : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
      tgraph.yield %2 : (!tgraph.tensor<[], f32>) -> ()
    }) : (!tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %1 : (!tgraph.tensor<[], f32>) -> ()
  }, {
  ^bb0(%u: !tgraph.tensor<[], f32>):
    tgraph.yield %u : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
