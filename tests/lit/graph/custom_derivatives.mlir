// RUN: tessera-opt %s --vjp | filecheck %s --check-prefix=VJP
// RUN: tessera-opt %s --jvp | filecheck %s --check-prefix=JVP
// RUN: tessera-opt %s --vmap --vjp | filecheck %s --check-prefix=BATCH

// The adjoint is the rule `backward`, which here is none of the body; residuals come from `forward`.
// VJP-LABEL: tgraph.func @square(
// VJP-SAME:    %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[CT:[a-z0-9]+]]: !tgraph.tensor<[N], f32>)
// VJP-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.mul %[[X]], %[[X]]
// VJP:         %[[G:[a-z0-9]+]] = tgraph.sub %[[CT]]
// VJP-NEXT:    tgraph.return %[[Y]], %[[G]]

// The tangent is the rule `jvp`.
// JVP-LABEL: tgraph.func @square(
// JVP-SAME:    %[[X:[a-z0-9]+]]: {{[^:]*}}, %[[T:[a-z0-9]+]]: !tgraph.tensor<[N], f32>)
// JVP-NEXT:    %[[Y:[a-z0-9]+]] = tgraph.mul %[[X]], %[[X]]
// JVP-NEXT:    %[[P:[a-z0-9]+]] = tgraph.mul %[[X]], %[[T]]
// JVP-NEXT:    tgraph.return %[[Y]], %[[P]]

// A batch has the batch of its rules.
// BATCH-LABEL: tgraph.func @square(
// BATCH:         %[[G:[a-z0-9]+]] = tgraph.sub
// BATCH-NEXT:    tgraph.return %{{[a-z0-9]+}}, %[[G]]
tgraph.func @square(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
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
    %3 = tgraph.sub %g, %kept : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %3 : (!tgraph.tensor<[N], f32>) -> ()
  }, {
  ^bb0(%v_2: !tgraph.tensor<[N], f32>, %t: !tgraph.tensor<[N], f32>):
    %4 = tgraph.mul %v_2, %v_2 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    %5 = tgraph.mul %v_2, %t : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
    tgraph.yield %4, %5 : (!tgraph.tensor<[N], f32>, !tgraph.tensor<[N], f32>) -> ()
  }) : (!tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32>
  tgraph.return %0 : (!tgraph.tensor<[N], f32>) -> ()
}
