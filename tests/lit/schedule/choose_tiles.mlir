// RUN: tessera-opt %s -p schedule-choose-tiles | filecheck %s

// Every knob of a group gets an answer, with its source; a row group has no knob.
// CHECK-LABEL: tsched.module @main(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @product(%x, %x)
// CHECK-NEXT:    tsched.tile %[[A]] candidates = [{{.*}}] chosen = [{{[0-9]+, [0-9]+, [0-9]+}}] {source = "{{[a-z ]+}}", knob = "contraction.block"}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @map(%[[A]])
// CHECK-NEXT:    tsched.tile %[[B]] candidates = [16, 8, 32, 64] chosen = 16 {source = "default", knob = "map.tile"}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @rows(%[[B]])
// CHECK-NEXT:    tsched.return %[[C]]
tsched.module @main(%x: !tgraph.tensor<[M, M], f32>) -> !tgraph.tensor<[M], f32> {
  %a = tsched.fuse @product(%x, %x) {kind = "contraction"} : !tgraph.tensor<[M, M], f32>
  %b = tsched.fuse @map(%a) {kind = "map"} : !tgraph.tensor<[M, M], f32>
  %c = tsched.fuse @rows(%b) {kind = "row", axes = [1]} : !tgraph.tensor<[M], f32>
  tsched.return %c
}
