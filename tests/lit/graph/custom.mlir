// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s --print-generic | tessera-opt | filecheck %s

// A function with derivatives of its own: its body, and the rules of both modes as further bodies.
// CHECK-LABEL: tgraph.func @both(
// CHECK:         %[[Y:[a-z0-9]+]] = tgraph.custom_function %{{[a-z0-9]+}} {function = "square", modes = ["forward", "backward", "jvp"]} ({
// CHECK-NEXT:    ^bb0(%[[X:[a-z0-9_]+]]: !tgraph.tensor<[N], f32>):
// CHECK-NEXT:      %[[V:[a-z0-9_]+]] = tgraph.mul %[[X]], %[[X]]
// CHECK-NEXT:      tgraph.yield %[[V]]
// CHECK:         }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
// CHECK-NEXT:    tgraph.return %[[Y]]
tgraph.func @both(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_function %x {function = "square", modes = ["forward", "backward", "jvp"]} ({
  ^bb0(%v: !tgraph.tensor<[N], f32>):
    %1 = tgraph.mul %v, %v : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %1 : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[N], f32>):
    %2 = tgraph.mul %v_1, %v_1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %2, %v_1 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%kept: !tgraph.tensor<[N], f32>, %g: !tgraph.tensor<[N], f32>):
    %3 = tgraph.mul %kept, %g : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %3 : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%v_2: !tgraph.tensor<[N], f32>, %t: !tgraph.tensor<[N], f32>):
    %4 = tgraph.mul %v_2, %v_2 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    %5 = tgraph.mul %v_2, %t : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %4, %5 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// What comes between a forward pass and its transpose; one residual, one tangent.
// CHECK-LABEL: tgraph.func @linear(
// CHECK:         tgraph.custom_linear %{{[a-z0-9]+}}, %{{[a-z0-9]+}} {function = "square", residuals = 1, modes = ["backward"]} ({
// CHECK-NEXT:    ^bb0(%[[K:[a-z0-9_]+]]: !tgraph.tensor<[N], f32>, %[[G:[a-z0-9_]+]]: !tgraph.tensor<[N], f32>):
tgraph.func @linear(%x: !tgraph.tensor<[N], f32>, %t: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_linear %x, %t {function = "square", residuals = 1, modes = ["backward"]} ({
  ^bb0(%kept: !tgraph.tensor<[N], f32>, %g: !tgraph.tensor<[N], f32>):
    %3 = tgraph.mul %kept, %g : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %3 : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
