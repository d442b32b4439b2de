// RUN: tessera-opt %s -p graph-inline-custom | filecheck %s

// The body takes the place of the function, rules go, and a function inside of the body goes the same way.
// CHECK-LABEL: tgraph.func @nested(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N], f32>
// CHECK-NEXT:    %[[E:[a-z0-9]+]] = tgraph.exp %[[X]]
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tgraph.sub %[[E]], %[[X]]
// CHECK-NEXT:    tgraph.return %[[S]]
tgraph.func @nested(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_function %x {function = "outer", modes = ["forward", "backward"]} ({
  ^bb0(%v: !tgraph.tensor<[N], f32>):
    %1 = tgraph.custom_function %v {function = "inner"} ({
    ^bb0(%w: !tgraph.tensor<[N], f32>):
      %2 = tgraph.exp %w : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
      tgraph.yield %2 : (!tgraph.tensor<[N], f32>) -> ()
    }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    %3 = tgraph.sub %1, %v : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %3 : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%v_1: !tgraph.tensor<[N], f32>):
    tgraph.yield %v_1 : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%g: !tgraph.tensor<[N], f32>):
    tgraph.yield %g : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// What is linear and knows how it runs forward is that.
// CHECK-LABEL: tgraph.func @tangents(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: !tgraph.tensor<[N], f32>, %[[T:[a-z0-9]+]]: !tgraph.tensor<[N], f32>
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tgraph.mul %[[X]], %[[T]]
// CHECK-NEXT:    tgraph.return %[[P]]
tgraph.func @tangents(%x: !tgraph.tensor<[N], f32>, %t: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.custom_linear %x, %t {function = "square", residuals = 1, modes = ["forward"]} ({
  ^bb0(%kept: !tgraph.tensor<[N], f32>, %d: !tgraph.tensor<[N], f32>):
    %1 = tgraph.mul %kept, %d : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %1 : (!tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}

// Ops that are none of these stay.
// CHECK-LABEL: tgraph.func @plain(
// CHECK-NEXT:    %[[N:[a-z0-9]+]] = tgraph.neg
// CHECK-NEXT:    tgraph.return %[[N]]
tgraph.func @plain(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %0 = tgraph.neg %x : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
