// RUN: not tessera-opt %s --split -pm-v1_1-verify 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split -p graph-check-effects 2>&1 | filecheck %s

// An effect that the function does not declare.
// CHECK: error[T0108]: `tgraph.dropout` has effect random, and `@hidden` declares {io}
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 5]]:3
// CHECK-NEXT: |
// CHECK-NEXT: tgraph.dropout
// CHECK:      = help: declare it: `tessera.effects = ["io", "random"]`
tgraph.func @hidden(%x: !tgraph.tensor<[B], f32>, %key: !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[B], f32> attributes {tessera.effects = ["io"]} {
  %0 = tgraph.dropout %x, %key {rate = 0.5} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// -----
// CHECK: error[T0108]: `tessera.effects` is a list of effects, such as ["random"]: `noise` is no effect
tgraph.func @unknown(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {tessera.effects = ["noise"]} {
  tgraph.return %x : (!tgraph.tensor<[B], f32>) -> ()
}

// -----
// Runs of a deterministic function must be the same: a key without a seed is refused, one that is given is not.
// CHECK: error[T0208]: runs of `fresh_key` may differ, and its scope is `tessera.deterministic`: its key has no seed
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 2]]:3
tgraph.func @unseeded(%x: !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32> attributes {tessera.deterministic = true} {
  %key = tgraph.fresh_key : () -> !tgraph.tensor<[2], u64>
  %0 = tgraph.dropout %x, %key {rate = 0.5} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2], u64>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// -----
// Sums in any order, in a region that is deterministic inside a function that is not.
// CHECK: error[T0208]: runs of `scatter_add` may differ
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 5]]:5
// CHECK:      = help: leave `ordered=False` out, or call it within `with tessera.effects.ordered():`
tgraph.func @atomic(%p: !tgraph.tensor<[], bool>, %x: !tgraph.tensor<[4], f32>, %i: !tgraph.tensor<[N], i64>, %u: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = tgraph.cond %p, %x, %i, %u {tessera.deterministic = true} ({
  ^bb0(%a: !tgraph.tensor<[4], f32>, %b: !tgraph.tensor<[N], i64>, %c: !tgraph.tensor<[N], f32>):
    %1 = tgraph.scatter_add %a, %b, %c {ordered = false} : (!tgraph.tensor<[4], f32>, !tgraph.tensor<[N], i64>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[4], f32>
    tgraph.yield %1 : (!tgraph.tensor<[4], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[4], f32>, %b: !tgraph.tensor<[N], i64>, %c: !tgraph.tensor<[N], f32>):
    tgraph.yield %a : (!tgraph.tensor<[4], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[N], i64>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}

// -----
// Rank 0 alone would come to the collective, and wait for ever.
// CHECK: error[T0302]: ranks of `dp` could reach `all_reduce` in different orders: the condition of the `cond` around it may differ between them
// CHECK-NEXT: check_effects.mlir:[[# @LINE + 9]]:5
// CHECK:      = note: the `cond` is at
// CHECK:      = help: branch on a value that all ranks share: reduce it with `dist.all_reduce(value, 'dp', 'max')`, or promise it with `dist.replicated(value, 'dp')`
tgraph.func @divergent(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %rank = tgraph.axis_index {axis = "dp", size = [4]} : () -> !tgraph.tensor<[], i64>
  %zero = tgraph.full {value = 0, shape = [], dtype = i64} : () -> !tgraph.tensor<[], i64>
  %first = tgraph.eq %rank, %zero : (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], bool>
  %0 = tgraph.cond %first, %x ({
  ^bb0(%a: !tgraph.tensor<[4], f32>):
    %1 = tgraph.all_reduce %a {axis = "dp", size = [4]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
    tgraph.yield %1 : (!tgraph.tensor<[4], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[4], f32>):
    tgraph.yield %a : (!tgraph.tensor<[4], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}

// -----
// Both branches have the same collectives, so no rank waits in vain whichever it takes; a reduced value may decide too.
// CHECK-NOT: error
// CHECK-LABEL: tgraph.func @alike(
tgraph.func @alike(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> attributes {tessera.deterministic = true, tessera.effects = ["collective"]} {
  %rank = tgraph.axis_index {axis = "dp", size = [4]} : () -> !tgraph.tensor<[], i64>
  %zero = tgraph.full {value = 0, shape = [], dtype = i64} : () -> !tgraph.tensor<[], i64>
  %first = tgraph.eq %rank, %zero : (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], bool>
  %0 = tgraph.cond %first, %x ({
  ^bb0(%a: !tgraph.tensor<[4], f32>):
    %1 = tgraph.all_reduce %a {axis = "dp", size = [4]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
    tgraph.yield %1 : (!tgraph.tensor<[4], f32>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[4], f32>):
    %2 = tgraph.neg %a : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
    %3 = tgraph.all_reduce %2 {axis = "dp", size = [4]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
    tgraph.yield %3 : (!tgraph.tensor<[4], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32>
  tgraph.return %0 : (!tgraph.tensor<[4], f32>) -> ()
}
