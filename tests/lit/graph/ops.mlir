// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-generic | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-locations | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-generic | filecheck %s --check-prefix=GENERIC

// The version is on every module.
// CHECK: builtin.module attributes {tessera.version = 4 : i64}

// Symbolic dims, arithmetic of them, attributes at their defaults left out.
// CHECK-LABEL: tgraph.func @dims(
// CHECK-SAME:    %x: !tgraph.tensor<[B, S + 1, 128], bf16>) -> !tgraph.tensor<[B, S + 1], bf16>
// CHECK-NEXT:    %y = tgraph.sum %x {axes = [2]} : (!tgraph.tensor<[B, S + 1, 128], bf16>) -> !tgraph.tensor<[B, S + 1], bf16>
// CHECK-NEXT:    tgraph.return %y : (!tgraph.tensor<[B, S + 1], bf16>) -> ()
tgraph.func @dims(%x: !tgraph.tensor<[B, S + 1, 128], bf16>) -> !tgraph.tensor<[B, 1 + S], bf16> {
  %y = tgraph.sum %x {axes = [2], keepdims = false} : (!tgraph.tensor<[B, S + 1, 128], bf16>) -> !tgraph.tensor<[B, S + 1], bf16>
  tgraph.return %y : (!tgraph.tensor<[B, S + 1], bf16>) -> ()
}

// Constants keep every bit, what is not finite included.
// CHECK-LABEL: tgraph.func @constants(
// CHECK:         tgraph.full {value = -inf, shape = [B, 4], dtype = f32} : () -> !tgraph.tensor<[B, 4], f32>
// CHECK:         tgraph.constant {value = array<f32, [2], [1.5, -0.0]>} : () -> !tgraph.tensor<[2], f32>
// CHECK:         tgraph.constant {value = array<f32, [2], 0x0000c07f0000807f>} : () -> !tgraph.tensor<[2], f32>
// GENERIC:       "tgraph.full"() <{value = #tessera.value<-inf>, shape = #tessera.value<[dim<B>, dim<4>]>, dtype = #tessera.value<f32>}>
tgraph.func @constants(%x: !tgraph.tensor<[B], f32>) {
  %0 = tgraph.full {value = -inf, shape = [B, 4], dtype = f32} : () -> !tgraph.tensor<[B, 4], f32>
  %1 = tgraph.constant {value = array<f32, [2], [1.5, -0.0]>} : () -> !tgraph.tensor<[2], f32>
  %2 = tgraph.constant {value = array<f32, [2], [nan, inf]>} : () -> !tgraph.tensor<[2], f32>
  tgraph.return
}

// Guards and argument names belong to the function.
// CHECK-LABEL: tgraph.func @guarded(
// CHECK-SAME:    attributes {names = ["x", "params['w']"], guards = {{\[\[}}dim<B>, dim<2*C>, "add"]]} {
tgraph.func @guarded(%x: !tgraph.tensor<[B], f32>, %w: !tgraph.tensor<[2*C], f32>) -> !tgraph.tensor<[B], f32>
    attributes {names = ["x", "params['w']"], guards = [[dim<B>, dim<2*C>, "add"]]} {
  %0 = tgraph.add %x, %w : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2*C], f32>) -> !tgraph.tensor<[B], f32>
  tgraph.return %0 : (!tgraph.tensor<[B], f32>) -> ()
}

// An op with several results.
// CHECK-LABEL: tgraph.func @several(
// CHECK:         %q, %k = tgraph.split %x {sizes = [3, N], axis = 1} : (!tgraph.tensor<[B, N + 3], f32>) -> (!tgraph.tensor<[B, 3], f32>, !tgraph.tensor<[B, N], f32>)
tgraph.func @several(%x: !tgraph.tensor<[B, N + 3], f32>) -> !tgraph.tensor<[B, N], f32> {
  %q, %k = tgraph.split %x {sizes = [3, N], axis = 1} : (!tgraph.tensor<[B, N + 3], f32>) -> (!tgraph.tensor<[B, 3], f32>, !tgraph.tensor<[B, N], f32>)
  tgraph.return %k : (!tgraph.tensor<[B, N], f32>) -> ()
}
