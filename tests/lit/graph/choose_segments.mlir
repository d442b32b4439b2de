// RUN: tessera-opt %s -p 'graph-choose-segments{fast = true}' | filecheck %s
// RUN: not tessera-opt %s -p graph-choose-segments 2>&1 | filecheck %s --check-prefix=BITS

// Nobody asks for another length, and the recipe's stays.
// CHECK-LABEL: tgraph.func @f(
// CHECK-NEXT:    tgraph.matmul %a, %b {segment = 4096}
// BITS: error[T0402]: `contraction.segment` is numeric: other segments of K give other bits
tgraph.func @f(%a: !tgraph.tensor<[64, 16384], bf16>, %b: !tgraph.tensor<[16384, 64], bf16>) -> !tgraph.tensor<[64, 64], bf16> attributes {names = ["a", "b"]} {
  %0 = tgraph.matmul %a, %b {segment = 4096} : (!tgraph.tensor<[64, 16384], bf16>, !tgraph.tensor<[16384, 64], bf16>) -> !tgraph.tensor<[64, 64], bf16>
  tgraph.return %0 : (!tgraph.tensor<[64, 64], bf16>) -> ()
}
