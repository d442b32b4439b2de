// RUN: tessera-opt %s -p schedule-form-mesh-regions | filecheck %s
// RUN: tessera-opt %s -p schedule-form-mesh-regions | tessera-opt | filecheck %s

// Groups of a scope come into a region with their choices, an inner scope into a region in it; what is read behind a
// region is yielded. A group in no scope stays where it is.
// CHECK-LABEL: tsched.module @f(
// CHECK-SAME:    mesh = {data = 4, model = 2}
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @k(%x)
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.mesh.region(axis = "data", size = 4) {
// CHECK-NEXT:      %[[B:[a-z0-9]+]] = tsched.fuse @k(%[[A]])
// CHECK-NEXT:      tsched.tile %[[B]] chosen = 32 {source = "default", knob = "map.tile"}
// CHECK-NEXT:      %[[S:[a-z0-9]+]] = tsched.mesh.region(axis = "model", size = 2) {
// CHECK-NEXT:        %[[C:[a-z0-9]+]] = tsched.fuse @k(%[[B]])
// CHECK-NEXT:        tsched.yield %[[C]]
// CHECK-NEXT:      }
// CHECK-NEXT:      tsched.yield %[[S]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %[[D:[a-z0-9]+]] = tsched.fuse @k(%[[R]])
// CHECK-NEXT:    tsched.return %[[D]]
tsched.module @f(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> attributes {tessera.mesh = {data = 4, model = 2}} {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[8], f32>
  %b = tsched.fuse @k(%a) {tessera.region = "data=4"} : !tgraph.tensor<[8], f32>
  tsched.tile %b chosen = 32 {source = "default", knob = "map.tile"}
  %c = tsched.fuse @k(%b) {tessera.region = "data=4/model=2"} : !tgraph.tensor<[8], f32>
  %d = tsched.fuse @k(%c) : !tgraph.tensor<[8], f32>
  tsched.return %d
}

// A program without scopes stays as it is.
// CHECK-LABEL: tsched.module @g(
// CHECK-NOT:     tsched.mesh.region
tsched.module @g(%x: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> {
  %a = tsched.fuse @k(%x) : !tgraph.tensor<[8], f32>
  tsched.return %a
}
