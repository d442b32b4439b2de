// RUN: not tessera-opt %s --split -p schedule-emit-tiles 2>&1 | filecheck %s

// What is prefetched is read in one loop.
// CHECK: error[T0401]: no group reads these 2 values together: there is no loop to prefetch them in
tsched.module @apart(%A: !tgraph.tensor<[4], f32>, %B: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = "tessera.schedule.pipeline"(%A, %B) {double_buffer=true}
  %a = tsched.fuse @half(%A) {kind = "map"} : !tgraph.tensor<[4], f32>
  tsched.return %a
}

// -----

// Two that disagree are one too many.
// CHECK: error[T0401]: `@half` has `pipeline` {'stages': 3}, and this says {'double_buffer': True}
tsched.module @twice(%A: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %0 = "tessera.schedule.pipeline"(%A) {double_buffer=true}
  %a = tsched.fuse @half(%A) {kind = "map", pipeline = {stages = 3}} : !tgraph.tensor<[4], f32>
  tsched.return %a
}

// -----

// A name is of a group.
// CHECK: error[T0401]: `body` of a group is a function of Graph IR here, and `@half` is a `tsched.func`
tsched.module @wrong(%A: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %a = tsched.fuse @half(%A) {kind = "map"} : !tgraph.tensor<[4], f32>
  tsched.return %a
}
tsched.func @half(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %a = tsched.fuse @body(%x) : !tgraph.tensor<[4], f32>
  tsched.return %a
}
