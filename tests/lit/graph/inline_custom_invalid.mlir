// RUN: not tessera-opt %s --split -p graph-inline-custom 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split '--jvp{argnums = [1]}' 2>&1 | filecheck %s

// A rule for forward mode is run apart from its function: a value that an effect gives it would be of another run.
// CHECK: error[T0306]: tangents of `scaled` take a value from `io_callback`, which has the effect `io`
// CHECK: help: leave `scaled.defvjp` out
tgraph.func @effect_again(%x: !tgraph.tensor<[8], f32>, %t: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {names = ["x", "t"], tessera.effects = ["io"]} {
  %0 = tgraph.custom_linear %x, %t {function = "scaled", residuals = 1, modes = ["forward"]} ({
  ^bb0(%kept: !tgraph.tensor<[8], f32>, %d: !tgraph.tensor<[8], f32>):
    %1 = tgraph.io_callback %kept {slot = 0, shapes = [[8]], dtypes = [f32], function = "negative"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
    %2 = tgraph.mul %1, %d : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
    tgraph.yield %2 : (!tgraph.tensor<[8], f32>) -> ()
  }) : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}

// -----

// So would one in a body.
// CHECK: error[T0306]: tangents of `branched` take a value from `cond`, which has the effect `io`
tgraph.func @effect_in_a_branch(%x: !tgraph.tensor<[8], f32>, %t: !tgraph.tensor<[8], f32>, %p: !tgraph.tensor<[], bool>) -> !tgraph.tensor<[8], f32> attributes {names = ["x", "t", "p"], tessera.effects = ["io"]} {
  %0 = tgraph.custom_linear %p, %x, %t {function = "branched", residuals = 2, modes = ["forward"]} ({
  ^bb0(%q: !tgraph.tensor<[], bool>, %kept: !tgraph.tensor<[8], f32>, %d: !tgraph.tensor<[8], f32>):
    %1 = tgraph.cond %q, %kept ({
    ^bb0(%a: !tgraph.tensor<[8], f32>):
      %2 = tgraph.io_callback %a {slot = 0, shapes = [[8]], dtypes = [f32], function = "negative"} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
      tgraph.yield %2 : (!tgraph.tensor<[8], f32>) -> ()
    }, {
    ^bb0(%b: !tgraph.tensor<[8], f32>):
      tgraph.yield %b : (!tgraph.tensor<[8], f32>) -> ()
    }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
    %3 = tgraph.mul %1, %d : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
    tgraph.yield %3 : (!tgraph.tensor<[8], f32>) -> ()
  }) : (!tgraph.tensor<[], bool>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}
