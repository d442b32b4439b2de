// RUN: not tessera-opt %s --split -p schedule-form-mesh-regions 2>&1 | filecheck %s

// A scope is an axis with its ranks.
// CHECK: error[T0401]: `tessera.region` has scopes such as `data=4`, an axis with its ranks, got 'data'
tsched.module @f(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {tessera.mesh = {data = 4}} {
  %a = tsched.fuse @k(%x) {tessera.region = "data"} : !tgraph.tensor<[8], f32>
  tsched.return %a
}

// -----

// The ranks of a scope are those of the mesh.
// CHECK: error[T0401]: `schedule-form-mesh-regions` makes of this: the region of `data` is for 2 ranks, and that axis of the mesh has 4
tsched.module @f(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {tessera.mesh = {data = 4}} {
  %a = tsched.fuse @k(%x) {tessera.region = "data=2"} : !tgraph.tensor<[8], f32>
  tsched.return %a
}

// -----

// Scopes of one axis do not nest.
// CHECK: error[T0401]: {{.*}}a region of `data` is within another of that axis
tsched.module @f(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {names = ["x"]} {
  %a = tsched.fuse @k(%x) {tessera.region = "data=4/model=2/data=4"} : !tgraph.tensor<[8], f32>
  tsched.return %a
}

// -----

// A mesh is axes with their ranks.
// CHECK: error[T0401]: {{.*}}`mesh` is axes with their sizes, as in {dp = 2, tp = 4}, got 5
tsched.module @f(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {tessera.mesh = 5} {
  %a = tsched.fuse @k(%x) {tessera.region = "data=4"} : !tgraph.tensor<[8], f32>
  tsched.return %a
}
