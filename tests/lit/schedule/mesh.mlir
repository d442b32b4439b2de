// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-locations | tessera-opt | filecheck %s

// What stands alone is read as it is written: a name that nothing defines is an input of the text.
// CHECK:      builtin.module
// CHECK-NEXT: tsched.tile %attn chosen = [128, 128, 64] {source = "autotune"}
// CHECK-NEXT: tsched.collective %attn {algo = "ring", quantize = "fp8"}
tsched.tile %attn chosen = [128,128,64] { source = "autotune" }
tsched.collective %attn { algo = "ring", quantize = "fp8" }

// An annotation has its name in quotes, and no types.
// CHECK-NEXT: %{{.*}} = "tessera.schedule.pipeline"(%A, %B) {double_buffer = true}
%0 = "tessera.schedule.pipeline"(%A, %B) {double_buffer=true}

// The same name in a module is another value: a module is isolated.
// CHECK-LABEL: tsched.module attributes {mesh = {dp = 2, tp = 4}} {
// CHECK-NEXT:    tsched.layout %[[X:[A-Z_0-9]+]] {partition = ["batch", "head"], mesh_axes = ["dp", "tp"]}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.mesh.region(axis = "dp") {
// CHECK-NEXT:      %[[Z:[a-z0-9]+]] = tsched.mesh.region(axis = "tp", size = 4) {
// CHECK-NEXT:        %[[F:[a-z0-9]+]] = tsched.fuse @f(%[[X]])
// CHECK-NEXT:        tsched.collective %[[F]] {pattern = "all_reduce", axis = "tp", algo = "in_network", topology = {nodes = 1, devices = 8, in_network = true}}
// CHECK-NEXT:        tsched.yield %[[F]]
// CHECK-NEXT:      }
// CHECK-NEXT:      tsched.yield %[[Z]]
// CHECK-NEXT:    }
// CHECK-NEXT:    tsched.return %[[Y]]
tsched.module attributes {mesh = {dp = 2, tp = 4}} {
  tsched.layout %A {partition = ["batch", "head"], mesh_axes = ["dp", "tp"]}
  %y = tsched.mesh.region(axis = "dp") {
    %z = tsched.mesh.region(axis = "tp", size = 4) {
      %f = tsched.fuse @f(%A)
      tsched.collective %f {pattern = "all_reduce", axis = "tp", algo = "in_network", topology = {nodes = 1, devices = 8, in_network = true}}
      tsched.yield %f
    }
    tsched.yield %z
  }
  tsched.return %y
}

// A pipeline of two ranks with two chunks on each: virtual stages 0 to 3, each fed by the one before it.
// CHECK-LABEL: tsched.module @train(
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.pipeline.region(schedule = "interleaved", axis = "pp", stages = 2, microbatch = 4, chunks = 2) {
// CHECK-NEXT:      %[[A:[a-z0-9]+]] = tsched.stage @embed(%x) {index = 0} : !tgraph.tensor<[B, 4], f32>
// CHECK-NEXT:      %[[B:[a-z0-9]+]] = tsched.stage @block(%[[A]], %w) {index = 1} : !tgraph.tensor<[B, 4], f32>
// CHECK-NEXT:      %[[C:[a-z0-9]+]] = tsched.stage @block(%[[B]], %w) {index = 2} : !tgraph.tensor<[B, 4], f32>
// CHECK-NEXT:      %[[D:[a-z0-9]+]] = tsched.stage @head(%[[C]]) {index = 3} : !tgraph.tensor<[B, 4], f32>
// CHECK-NEXT:      tsched.yield %[[D]]
// CHECK-NEXT:    }
// CHECK-NEXT:    tsched.return %[[Y]]
tsched.module @train(%x: !tgraph.tensor<[B, 4], f32>, %w: !tgraph.tensor<[4, 4], f32>) -> !tgraph.tensor<[B, 4], f32> attributes {mesh = {pp = 2}} {
  %y = tsched.pipeline.region(schedule = "interleaved", axis = "pp", stages = 2, microbatch = 4, chunks = 2) {
    %a = tsched.stage @embed(%x) {index = 0} : !tgraph.tensor<[B, 4], f32>
    %b = tsched.stage @block(%a, %w) {index = 1} : !tgraph.tensor<[B, 4], f32>
    %c = tsched.stage @block(%b, %w) {index = 2} : !tgraph.tensor<[B, 4], f32>
    %d = tsched.stage @head(%c) {index = 3} : !tgraph.tensor<[B, 4], f32>
    tsched.yield %d
  }
  tsched.return %y
}

// A dim of a name is proved to be a multiple by what the program guards: here B = 8*n is one of 2*4.
// CHECK-LABEL: tsched.module @proved(
// CHECK-NEXT:    tsched.layout %x {partition = ["B", "B"], mesh_axes = ["dp", "tp"]}
tsched.module @proved(%x: !tgraph.tensor<[B, 6], f32>) attributes {guards = [[dim<B>, dim<8*n>, "batches"]], mesh = {dp = 2, tp = 4}} {
  tsched.layout %x {partition = ["B", "B"], mesh_axes = ["dp", "tp"]}
  tsched.return
}

// A fusion group by itself, with what was chosen for it.
// CHECK-LABEL: tsched.func @attention(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @body(%q) {kind = "row"} : !tgraph.tensor<[4], f32>
// CHECK-NEXT:    tsched.tile %[[A]] chosen = 4 {source = "default"}
// CHECK-NEXT:    tsched.return %[[A]]
tsched.func @attention(%q: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[4], f32> {
  %a = tsched.fuse @body(%q) {kind = "row"} : !tgraph.tensor<[4], f32>
  tsched.tile %a chosen = 4 {source = "default"}
  tsched.return %a
}
