// RUN: tessera-opt %s -p schedule-plan-memory | filecheck %s

// Of three buffers in a chain the last reuses the memory of the first; a result is not in the workspace.
// CHECK-LABEL: tsched.module @chain(
// CHECK-SAME:    workspace = 128*((4*B + 63) floordiv 64)
// CHECK-NEXT:    tsched.alloc {offset = 0}
// CHECK:         tsched.alloc {offset = 64*((4*B + 63) floordiv 64)}
// CHECK:         tsched.alloc {offset = 0}
// CHECK:         tsched.alloc {output = 0}
tsched.module @chain(%x: !ttile.buffer<[B], f32>) -> !ttile.buffer<[B], f32> {
  %a = tsched.alloc : !ttile.buffer<[B], f32>
  tsched.call @k(%x, %a) sizes = [B]
  %b = tsched.alloc : !ttile.buffer<[B], f32>
  tsched.call @k(%a, %b) sizes = [B]
  tsched.free %a
  %c = tsched.alloc : !ttile.buffer<[B], f32>
  tsched.call @k(%b, %c) sizes = [B]
  tsched.free %b
  %y = tsched.alloc {output = 0} : !ttile.buffer<[B], f32>
  tsched.call @k(%c, %y) sizes = [B]
  tsched.free %c
  tsched.return %y
}

// A slot grows to the larger of two sizes that nothing compares; what lives through both branches keeps its own.
// CHECK-LABEL: tsched.module @branches(
// CHECK-SAME:    workspace = 256*B + max(256*C, 256*D)
// CHECK-NEXT:    tsched.alloc {offset = 0}
// CHECK:         tsched.alloc {offset = 256*B} : !ttile.buffer<[C, 64], f32>
// CHECK:         tsched.alloc {offset = 256*B} : !ttile.buffer<[D, 64], f32>
tsched.module @branches(%p: !ttile.buffer<[], bool>) {
  %a = tsched.alloc : !ttile.buffer<[B, 64], f32>
  tsched.if %p ({
    %b = tsched.alloc : !ttile.buffer<[C, 64], f32>
    tsched.call @f(%a, %b)
    tsched.free %b
    tsched.yield
  }, {
    %c = tsched.alloc : !ttile.buffer<[D, 64], f32>
    tsched.call @f(%a, %c)
    tsched.free %c
    tsched.yield
  })
  tsched.free %a
  tsched.return
}
