// RUN: not tessera-opt %s --split --vjp 2>&1 | filecheck %s
// RUN: not tessera-opt %s --split '--jvp{argnums = [1]}' 2>&1 | filecheck %s --check-prefix=SECOND
// RUN: not tessera-opt %s --split '--vmap{in_axes = [3]}' 2>&1 | filecheck %s --check-prefix=AXIS
// RUN: not tessera-opt %s --split '--vjp{function = "steps"}' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not tessera-opt %s '--vjp{rows = 1}' 2>&1 | filecheck %s --check-prefix=OPTION

// A loop that ends by a condition has no adjoint, which is said of its line.
// CHECK: error[T0306]: a loop that ends by a condition has no reverse-mode derivative
// CHECK-NEXT: transforms_invalid.mlir:[[# @LINE + 9]]:3
// CHECK: note: this is about the backward of that line
// SECOND: error[T0306]: `@halve` is to be differentiated by argument 1, and has 1
// SECOND-NEXT: transforms_invalid.mlir:[[# @LINE + 5]]:1
// SECOND: help: `argnums` are numbers from 0 to 0
// AXIS: error[T0103]: `in_axes` of `@halve` has 3 for a value that has 2 axes with the batch
// NAME: error[T0301]: there is no function `@steps` in this module, which has `@halve`
// OPTION: `graph-vjp` has no option `rows`; it has ['argnums', 'function']
tgraph.func @halve(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.while %x {carried = 1} ({
  ^bb0(%a: !tgraph.tensor<[N], f32>):
    %1 = tgraph.sum %a {axes = [0]} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[], f32>
    %2 = tgraph.full {value = 1.0, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
    %3 = tgraph.gt %1, %2 : (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[], bool>
    tgraph.yield %3 : (!tgraph.tensor<[], bool>) -> ()
  }, {
  ^bb0(%a: !tgraph.tensor<[N], f32>):
    %4 = tgraph.mul %a, %a : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %4 : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// -----

// Bits have no derivative; the error is at the op that reads them.
// CHECK: error[T0306]: `bitcast` has no derivative: it reads bits
// CHECK-NEXT: transforms_invalid.mlir:[[# @LINE + 6]]:3
// SECOND: error[T0306]: `@bits` is differentiated by floats, and argument 1 is [N] i32
// SECOND: help: leave it out of `argnums`
// AXIS: error[T0103]: `in_axes` has 1 axes, and `@bits` has 2 arguments
tgraph.func @bits(%x: !tgraph.tensor<[N], f32>, %n: !tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.bitcast %n {dtype = f32, source = i32} : (!tgraph.tensor<[N], i32>) -> !tgraph.tensor<[N], f32>
  %1 = tgraph.bitcast %x {dtype = f32, source = f32} : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  %2 = tgraph.mul %0, %1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %2 : (!tgraph.tensor<[N], f32>) -> ()
}
