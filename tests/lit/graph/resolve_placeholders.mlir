// RUN: tessera-opt %s -p graph-resolve-placeholders | filecheck %s
// RUN: tessera-opt %s -p 'graph-resolve-placeholders,graph-resolve-placeholders' | filecheck %s
// RUN: tessera-opt %s | filecheck %s --check-prefix=KEPT

// What the module says holds in all functions, and is a constant of the op.
builtin.module attributes {tessera.scale = 2.5 : f32, tessera.axis = 0 : i64} {

// CHECK-LABEL: tgraph.func @of_module(
// CHECK-NEXT:    tgraph.full {value = 2.5, shape = [], dtype = f32}
// CHECK-NEXT:    tgraph.softmax %{{[a-z0-9]+}} {axis = 0}
// KEPT-LABEL:  tgraph.func @of_module(
// KEPT-NEXT:     tgraph.full {value = #attr.tessera.scale, shape = [], dtype = f32}
// KEPT-NEXT:     tgraph.softmax %{{[a-z0-9]+}} {axis = #attr.tessera.axis}
tgraph.func @of_module(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> attributes {names = ["x"]} {
  %0 = tgraph.full {value = #attr.tessera.scale, shape = [], dtype = f32} : () -> !tgraph.tensor<[], f32>
  %1 = tgraph.softmax %x {axis = #attr.tessera.axis} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  %2 = tgraph.mul %1, %0 : (!tgraph.tensor<[4, 8], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %2 : (!tgraph.tensor<[4, 8], f32>) -> ()
}

// A function that says it itself is not told by its module, and what it said is used up.
// CHECK-LABEL: tgraph.func @of_function(
// CHECK-NOT:     tessera.axis
// CHECK:         tgraph.softmax %{{[a-z0-9]+}} {axis = 1}
tgraph.func @of_function(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> attributes {names = ["x"], tessera.axis = 1} {
  %0 = tgraph.softmax %x {axis = #attr.tessera.axis} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}

// A part of a list can be one too.
// CHECK-LABEL: tgraph.func @in_lists(
// CHECK-NEXT:    tgraph.sum %{{[a-z0-9]+}} {axes = [0, 1]
// CHECK-NEXT:    tgraph.full {value = 1.0, shape = [4, 3], dtype = f32}
tgraph.func @in_lists(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[], f32> attributes {names = ["x"], tessera.rows = 3} {
  %0 = tgraph.sum %x {axes = [#attr.tessera.axis, 1]} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[], f32>
  %1 = tgraph.full {value = 1.0, shape = [4, #attr.tessera.rows], dtype = f32} : () -> !tgraph.tensor<[4, 3], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
}
