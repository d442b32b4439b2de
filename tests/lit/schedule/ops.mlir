// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-locations | tessera-opt | filecheck %s

// Names that nothing defines are the inputs of a plan, and values of no known type are written without one.
// CHECK-LABEL: tsched.module {
// CHECK-NEXT:    %attn = tsched.fuse @attention(%Q, %K, %V) {pattern = "flash_attention"}
// CHECK-NEXT:    tsched.layout %Q {partition = ["batch"], mesh_axes = ["dp"]}
// CHECK-NEXT:    tsched.tile %attn candidates = [{{\[}}128, 128, 64], [64, 128, 64]] chosen = [64, 128, 64] {source = "autotune"}
// CHECK-NEXT:    tsched.collective %attn {pattern = "RS_MM_AG", axis = "tp", algo = "ring", quantize = "fp8"}
// CHECK-NEXT:    %f = tsched.materialize %attn : !tsched.func
// CHECK-NEXT:    tsched.return %f
tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V) { pattern = "flash_attention" }
  tsched.layout %Q {partition = ["batch"], mesh_axes = ["dp"]}
  tsched.tile %attn candidates = [[128,128,64], [64,128,64]] chosen = [64,128,64] { source = "autotune" }
  tsched.collective %attn { pattern = "RS_MM_AG", axis = "tp", algo = "ring", quantize = "fp8" }
  %f = tsched.materialize %attn : !tsched.func
  tsched.return %f
}

// A pipeline names a program.
// CHECK: tsched.pipeline @train {axis = "pp", stages = 3, microbatch = 8}
tsched.pipeline @train { axis="pp", stages=3, microbatch=8 }

// A program with types has a name and arguments; groups say what they cost, and what they give.
// CHECK-LABEL: tsched.module @typed(%x: !tgraph.tensor<[B, 4], f32>) -> !tgraph.tensor<[B], f32> attributes {names = ["x"]} {
// CHECK-NEXT:    %[[A:[a-z0-9]+]], %[[B:[a-z0-9]+]] = tsched.fuse @rows(%x) {kind = "row", axes = [1], flops = 4*B, bytes = 20*B} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B, 1], f32>)
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.alias %[[B]] : !tgraph.tensor<[B], f32>
// CHECK-NEXT:    %{{.*}} = tsched.constant {value = array<f32, [2], [1.0, 2.0]>} : !tgraph.tensor<[2], f32>
// CHECK-NEXT:    tsched.return %[[C]]
tsched.module @typed(%x: !tgraph.tensor<[B, 4], f32>) -> !tgraph.tensor<[B], f32> attributes {names = ["x"]} {
  %a, %b = tsched.fuse @rows(%x) {kind = "row", axes = [1], flops = 4*B, bytes = 20*B} : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B, 1], f32>)
  %c = tsched.alias %b : !tgraph.tensor<[B], f32>
  %d = tsched.constant {value = array<f32, [2], [1.0, 2.0]>} : !tgraph.tensor<[2], f32>
  tsched.return %c
}

// A host program: memory, calls with sizes, copies, guards, branches and loops over buffers.
// CHECK-LABEL: tsched.module @host(
// CHECK-NEXT:    tsched.guard {left = B, right = 2*S, what = "halves"}
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.alloc {offset = 0} : !ttile.buffer<[B], f32>
// CHECK-NEXT:    %[[O:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[B], f32>
// CHECK-NEXT:    tsched.call @k(%x, %[[A]]) sizes = [B, 2*S] {flops = 2*B, bytes = 8*B}
// CHECK-NEXT:    tsched.if %p ({
// CHECK-NEXT:      tsched.copy %[[A]], %[[O]]
// CHECK-NEXT:      tsched.yield
// CHECK-NEXT:    }, {
// CHECK-NEXT:      tsched.copy %x, %[[O]]
// CHECK-NEXT:      tsched.yield
// CHECK-NEXT:    })
// CHECK-NEXT:    %[[L:[a-z0-9]+]] = tsched.for %[[A]], %[[O]] {carried = 1, length = S} ({
// CHECK-NEXT:    ^bb0(%[[I:[a-z0-9]+]]: !ttile.buffer<[B], f32>, %[[N:[a-z0-9]+]]: !ttile.buffer<[B], f32>):
// CHECK-NEXT:      tsched.call @k(%[[I]], %[[N]]) sizes = [B, 2*S]
// CHECK-NEXT:      tsched.yield
// CHECK-NEXT:    }) : !ttile.buffer<[B], f32>
// CHECK-NEXT:    tsched.free %[[A]]
// CHECK-NEXT:    tsched.return %[[O]]
tsched.module @host(%x: !ttile.buffer<[B], f32>, %p: !ttile.buffer<[], bool>) -> !ttile.buffer<[B], f32> attributes {workspace = 4*B} {
  tsched.guard {left = B, right = 2*S, what = "halves"}
  %a = tsched.alloc {offset = 0} : !ttile.buffer<[B], f32>
  %o = tsched.alloc {output = 0} : !ttile.buffer<[B], f32>
  tsched.call @k(%x, %a) sizes = [B, 2*S] {flops = 2*B, bytes = 8*B}
  tsched.if %p ({
    tsched.copy %a, %o
    tsched.yield
  }, {
    tsched.copy %x, %o
    tsched.yield
  })
  %l = tsched.for %a, %o {carried = 1, length = S} ({
  ^bb0(%i: !ttile.buffer<[B], f32>, %n: !ttile.buffer<[B], f32>):
    tsched.call @k(%i, %n) sizes = [B, 2*S]
    tsched.yield
  }) : !ttile.buffer<[B], f32>
  tsched.free %a
  tsched.return %o
}

// A collective is started and waited for, as a value of a plan or with the buffers of a host program.
// CHECK-LABEL: tsched.module @exchange(
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.collective_wait %x, %[[S]] {number = 0} : !tgraph.tensor<[8], f32>
// CHECK-NEXT:    tsched.return %[[R]]
tsched.module @exchange(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32> {
  %s = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %x, %s {number = 0} : !tgraph.tensor<[8], f32>
  tsched.return %r
}

// CHECK-LABEL: tsched.module @exchange_placed(
// CHECK-NEXT:    %[[O:[a-z0-9]+]] = tsched.alloc {output = 0} : !ttile.buffer<[8], f32>
// CHECK-NEXT:    tsched.collective_start %x, %[[O]] {number = 0, call = "all_to_all", axis = "tp", ranks = 2}
// CHECK-NEXT:    tsched.collective_wait %x, %[[O]] {number = 0}
// CHECK-NEXT:    tsched.return %[[O]]
tsched.module @exchange_placed(%x: !ttile.buffer<[8], f32>) -> !ttile.buffer<[8], f32> {
  %o = tsched.alloc {output = 0} : !ttile.buffer<[8], f32>
  tsched.collective_start %x, %o {number = 0, call = "all_to_all", axis = "tp", ranks = 2}
  tsched.collective_wait %x, %o {number = 0}
  tsched.return %o
}
