// RUN: not tessera-opt %s --split 2>&1 | filecheck %s

// A rule for reverse mode has two parts.
// CHECK: `custom_function` has rules of the modes {{.*}}, got ['backward']
tgraph.func @half(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_function %x {function = "f", modes = ["backward"]} ({
  ^bb0(%v: !tgraph.tensor<[N], f32>):
    tgraph.yield %v : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%g: !tgraph.tensor<[N], f32>):
    tgraph.yield %g : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// -----
// CHECK: `custom_function` names 1 modes and has 0 rules
tgraph.func @absent(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_function %x {function = "f", modes = ["jvp"]} ({
  ^bb0(%v: !tgraph.tensor<[N], f32>):
    tgraph.yield %v : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// -----
// A cotangent has the type of its operand.
// CHECK: `custom_function`: value 0 of what its rule `backward` gives is [] f32, and must be [4] f32
tgraph.func @cotangent(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.custom_function %x {function = "f", modes = ["forward", "backward"]} ({
  ^bb0(%v: !tgraph.tensor<[4], f32>):
    %1 = tgraph.sum %v {axes = [0]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %1 : (!tgraph.tensor<[], f32>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[4], f32>):
    %2 = tgraph.sum %v_1 {axes = [0]} : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[], f32>
    tgraph.yield %2 : (!tgraph.tensor<[], f32>) -> ()
  }, {
  ^bb0(%g: !tgraph.tensor<[], f32>):
    tgraph.yield %g : (!tgraph.tensor<[], f32>) -> ()
  }) : (!tgraph.tensor<[4], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}

// -----
// CHECK: `custom_function` has 2 captured operands, and 1 operands
tgraph.func @captured(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_function %x {function = "f", captured = 2} ({
  ^bb0(%v: !tgraph.tensor<[N], f32>):
    tgraph.yield %v : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// -----
// Residuals are operands.
// CHECK: `custom_linear` has 3 residuals, and 2 operands
tgraph.func @residuals(%x: !tgraph.tensor<[N], f32>, %t: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_linear %x, %t {function = "square", residuals = 3, modes = ["forward"]} ({
  ^bb0(%kept: !tgraph.tensor<[N], f32>, %d: !tgraph.tensor<[N], f32>):
    tgraph.yield %d : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
