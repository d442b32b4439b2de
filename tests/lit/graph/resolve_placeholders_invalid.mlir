// RUN: not tessera-opt %s --split -p graph-resolve-placeholders 2>&1 | filecheck %s

// Nothing says what it is.
// CHECK: error[T0301]: nothing says what `#attr.tessera.axes` is
// CHECK: help: did you mean `#attr.tessera.axis`?
tgraph.func @f(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> attributes {names = ["x"], tessera.axis = 1} {
  %0 = tgraph.softmax %x {axis = #attr.tessera.axes} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}

// -----

// It is something else than what the op takes.
// CHECK: error[T0301]: `axis` of `tgraph.softmax` is of kind int, and #attr.tessera.axis is "last"
tgraph.func @f(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> attributes {names = ["x"], tessera.axis = "last"} {
  %0 = tgraph.softmax %x {axis = #attr.tessera.axis} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}

// -----

// What it makes of the op breaks a rule, as if it had been written there.
// CHECK: error[T0301]: {{.*}}axis
tgraph.func @f(%x: !tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32> attributes {names = ["x"], tessera.axis = 7} {
  %0 = tgraph.softmax %x {axis = #attr.tessera.axis} : (!tgraph.tensor<[4, 8], f32>) -> !tgraph.tensor<[4, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[4, 8], f32>) -> ()
}

// -----

// A pass that needs the value asks for this one before it.
// RUN: not tessera-opt %s --split -p graph-vmap 2>&1 | filecheck %s --check-prefix=UNRESOLVED
// UNRESOLVED: error[T0301]: `graph-vmap` takes no placeholder, and `tgraph.softmax` has one
// UNRESOLVED: help: run `graph-resolve-placeholders` before it
