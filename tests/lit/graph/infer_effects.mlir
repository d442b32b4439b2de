// RUN: tessera-opt %s -p graph-infer-effects | filecheck %s
// RUN: tessera-opt %s -p graph-infer-effects,graph-infer-effects,graph-check-effects | filecheck %s

// A function that draws is random; a chain of pure ops says nothing.
// CHECK-LABEL: tgraph.func @drawing(
// CHECK-SAME:    attributes {tessera.effects = ["random"]}
tgraph.func @drawing(%x: !tgraph.tensor<[B], f32>, %key: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.dropout %x, %key {rate = 0.5} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// CHECK-LABEL: tgraph.func @pure(
// CHECK-NOT:     tessera.effects
tgraph.func @pure(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> {
  %0 = tgraph.exp %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// What stands in a body of control flow counts, and what is declared already stays.
// CHECK-LABEL: tgraph.func @inside(
// CHECK-SAME:    tessera.effects = ["io", "random"]
tgraph.func @inside(%p: !tgraph.tensor<[], bool>, %x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {tessera.effects = ["random"]} {
  %0 = tgraph.cond %p, %x ({
  ^bb0(%a: !tgraph.tensor<[B], f32>):
    tgraph.debug_print %a {format = "x = {}"} : (!tgraph.tensor<[B], f32>) -> ()
    tgraph.yield %a : (!tgraph.tensor<[B], f32>) -> ()
  }, {
  ^bb0(%b: !tgraph.tensor<[B], f32>):
    tgraph.yield %b : (!tgraph.tensor<[B], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// A state goes by the name of the argument that it came in by.
// CHECK-LABEL: tgraph.func @growing(
// CHECK-SAME:    tessera.effects = ["state(cache)"]
tgraph.func @growing(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %v: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %new: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[], i64> attributes {names = ["cache.K", "cache.V", "cache.length", "new"]} {
  %0, %1, %2 = tgraph.kv_append %k, %v, %n, %new, %new : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>)
  %3, %4, %5 = tgraph.kv_prune %0, %1, %2 {keep = 4} : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>)
  tgraph.return %5 : (!tgraph.tensor<[], i64>) -> ()
}
