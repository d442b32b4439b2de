// RUN: tessera-opt %s -p 'schedule-reorder-launches{seed = 9}' | filecheck %s
// RUN: tessera-opt %s -p 'schedule-reorder-launches{seed = 9}' | filecheck %s --check-prefix=CALLS

// Two independent calls are swapped, each with its buffer before it; who reads both stays behind them.
// CHECK-LABEL: tsched.module @apart(
// CHECK:         tsched.call @g(%[[B:[a-z0-9]+]])
// CHECK:         tsched.call @f(%[[A:[a-z0-9]+]])
// CHECK:         tsched.call @h(%[[A]], %[[B]], %[[OUT:[a-z0-9]+]])
// CHECK:         tsched.return %[[OUT]]
tsched.module @apart(%x: !ttile.buffer<[B], f32>) -> !ttile.buffer<[B], f32> attributes {workspace = 512*B} {
  %a = tsched.alloc {offset = 0} : !ttile.buffer<[B, 64], f32>
  tsched.call @f(%a) sizes = [B]
  %b = tsched.alloc {offset = 256*B} : !ttile.buffer<[B, 64], f32>
  tsched.call @g(%b) sizes = [B]
  %o = tsched.alloc {output = 0} : !ttile.buffer<[B], f32>
  tsched.call @h(%a, %b, %o) sizes = [B]
  tsched.free %a
  tsched.free %b
  tsched.return %o
}

// The second buffer reuses the memory of the first, so that the call which fills it waits for all readers of that.
// CHECK-LABEL: tsched.module @again(
// CHECK:         tsched.call @f(
// CHECK:         tsched.call @g(
// CHECK:         tsched.free
// CHECK:         tsched.alloc {offset = 0}
// CHECK:         tsched.call @f(
tsched.module @again(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) -> !ttile.buffer<[64], f32> attributes {workspace = 256} {
  %a = tsched.alloc {offset = 0} : !ttile.buffer<[64], f32>
  tsched.call @f(%x, %a)
  %o = tsched.alloc {output = 0} : !ttile.buffer<[64], f32>
  tsched.call @g(%a, %o)
  tsched.free %a
  %b = tsched.alloc {offset = 0} : !ttile.buffer<[64], f32>
  tsched.call @f(%y, %b)
  tsched.free %b
  tsched.return %o
}

// Kernels that nobody knows may write what they are given, and two arguments may be one tensor: nothing moves.
// CHECK-LABEL: tsched.module @unknown(
// CHECK-NEXT:    tsched.call @f(%x)
// CHECK-NEXT:    tsched.call @g(%y)
tsched.module @unknown(%x: !ttile.buffer<[64], f32>, %y: !ttile.buffer<[64], f32>) {
  tsched.call @f(%x)
  tsched.call @g(%y)
  tsched.return
}

// What is said to the world stays in order.
// CHECK-LABEL: tsched.module @said(
// CHECK-NEXT:    tsched.callback %x {call = "debug_print", text = "one"}
// CHECK-NEXT:    tsched.callback %x {call = "debug_print", text = "two"}
// CHECK-NEXT:    tsched.callback %x {call = "debug_print", text = "three"}
tsched.module @said(%x: !ttile.buffer<[64], f32>) {
  tsched.callback %x {call = "debug_print", text = "one"}
  tsched.callback %x {call = "debug_print", text = "two"}
  tsched.callback %x {call = "debug_print", text = "three"}
  tsched.return
}

// What is said of layouts, collectives and pipelines keeps no two calls apart, and none of it is lost.
// CHECK-LABEL: tsched.module @choices(
// CHECK-DAG:     tsched.layout %x {partition = ["B"], mesh_axes = ["dp"]}
// CHECK-DAG:     tsched.collective %x {pattern = "RS_MM_AG", axis = "tp", algo = "ring", quantize = "fp8"}
// CHECK-DAG:     tsched.pipeline @train {axis = "pp", stages = 3, microbatch = 8}
// CALLS-LABEL: tsched.module @choices(
// CALLS:         tsched.call @g(%[[B:[a-z0-9]+]])
// CALLS:         tsched.call @f(%[[A:[a-z0-9]+]])
// CALLS:         tsched.call @h(%[[A]], %[[B]],
tsched.module @choices(%x: !ttile.buffer<[B], f32>) -> !ttile.buffer<[B], f32> attributes {workspace = 512*B} {
  %a = tsched.alloc {offset = 0} : !ttile.buffer<[B, 64], f32>
  tsched.call @f(%a) sizes = [B]
  tsched.layout %x {partition = ["B"], mesh_axes = ["dp"]}
  tsched.collective %x {pattern = "RS_MM_AG", axis = "tp", algo = "ring", quantize = "fp8"}
  tsched.pipeline @train {axis = "pp", stages = 3, microbatch = 8}
  %b = tsched.alloc {offset = 256*B} : !ttile.buffer<[B, 64], f32>
  tsched.call @g(%b) sizes = [B]
  %o = tsched.alloc {output = 0} : !ttile.buffer<[B], f32>
  tsched.call @h(%a, %b, %o) sizes = [B]
  tsched.free %a
  tsched.free %b
  tsched.return %o
}
