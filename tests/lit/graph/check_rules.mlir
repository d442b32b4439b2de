// RUN: tessera-opt %s -pm-v1_1-verify | filecheck %s
// RUN: not tessera-opt %s -p 'graph-check-rules{lowered = true}' 2>&1 | filecheck %s --check-prefix=LOWERED

// A right module passes and is printed as it came; at the exit verifier a softmax is still one op too many.
// CHECK-LABEL: tgraph.func @composite(
// CHECK-NEXT:    tgraph.softmax
// LOWERED: error[T0301]: `tgraph.softmax` may not leave graph: it has no lowering
// LOWERED-NEXT: check_rules.mlir:[[# @LINE + 2]]:3
tgraph.func @composite(%x: !tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32> {
  %0 = tgraph.softmax %x {axis = 1} : (!tgraph.tensor<[B, N], f32>) -> !tgraph.tensor<[B, N], f32>
  tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
}
