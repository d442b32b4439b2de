// RUN: tessera-opt %s -p schedule-annotate-costs | filecheck %s

// A copy reads and writes; memory, choices and ends cost nothing, which is not written; a program is the sum.
// CHECK-LABEL: tsched.module @copies(
// CHECK-SAME:    flops = 2*B, bytes = 24*B, time = ((16*B) floordiv 12) + max(((2*B) floordiv {{[0-9]+}}), ((8*B) floordiv 12))
// CHECK-NEXT:    tsched.alloc :
// CHECK-NEXT:    tsched.copy %x, %{{[a-z0-9]+}} {flops = 0, bytes = 16*B, time = ((16*B) floordiv 12)}
// CHECK-NEXT:    tsched.alloc {output = 0} :
// CHECK-NEXT:    tsched.call @k(%{{.*}}) sizes = [B] {flops = 2*B, bytes = 8*B, time = max(
// CHECK-NEXT:    tsched.return
tsched.module @copies(%x: !ttile.buffer<[B, 2], f32>) -> !ttile.buffer<[B, 2], f32> {
  %a = tsched.alloc : !ttile.buffer<[B, 2], f32>
  tsched.copy %x, %a
  %y = tsched.alloc {output = 0} : !ttile.buffer<[B, 2], f32>
  tsched.call @k(%a, %y) sizes = [B] {flops = 2*B, bytes = 8*B}
  tsched.return %y
}

// Of four ranks each sends its bytes to three, and has those of three; in an exchange a quarter stays. A wait is free.
// CHECK-LABEL: tsched.module @ranks(
// CHECK-SAME:    bytes = 624, time = 52
// CHECK:         tsched.collective_start %x, %{{.*}} {number = 0, call = "all_gather", axis = "tp", ranks = 4, flops = 0, bytes = 384, time = 32}
// CHECK-NEXT:    tsched.collective_wait %x, %{{[a-z0-9]+}} {number = 0}
// CHECK:         tsched.collective_start %w, %{{.*}} {number = 1, call = "all_to_all", axis = "tp", ranks = 4, flops = 0, bytes = 240, time = 20}
tsched.module @ranks(%x: !ttile.buffer<[16], f32>, %w: !ttile.buffer<[40], f32>) -> (!ttile.buffer<[64], f32>, !ttile.buffer<[40], f32>) {
  %a = tsched.alloc {output = 0} : !ttile.buffer<[64], f32>
  tsched.collective_start %x, %a {number = 0, call = "all_gather", axis = "tp", ranks = 4}
  tsched.collective_wait %x, %a {number = 0}
  %b = tsched.alloc {output = 1} : !ttile.buffer<[40], f32>
  tsched.collective_start %w, %b {number = 1, call = "all_to_all", axis = "tp", ranks = 4}
  tsched.collective_wait %w, %b {number = 1}
  tsched.return %a, %b
}

// A loop is its body so many times, a branch the dearer body; where only running tells, a symbol that no size has counts.
// CHECK-LABEL: tsched.module @loops(
// CHECK-SAME:    flops = 30*trips0*trips1 + max(5*B, 9) + 7*trips0 + 7
// CHECK:         tsched.while {{.*}} {trips = trips0, flops = 30*trips0*trips1 + 7*trips0 + 7, bytes = 6*trips0*trips1 + trips0 + 1, time = 3*trips0*trips1 + 2*trips0 + 2}
// CHECK:           tsched.for {{.*}} {carried = 1, trips = trips1, flops = 30*trips1, bytes = 6*trips1, time = 3*trips1}
// CHECK:             tsched.for {{.*}} {carried = 1, length = 3, trips = 3, flops = 30, bytes = 6, time = 3}
// CHECK:         tsched.if %p {flops = max(5*B, 9), bytes = 2, time = 1}
tsched.module @loops(%p: !ttile.buffer<[], bool>, %i: !ttile.buffer<[], i64>, %x: !ttile.buffer<[4], f32>, %y: !ttile.buffer<[4], f32>) {
  %r = tsched.while %x, %y ({
  ^bb0(%0: !ttile.buffer<[4], f32>):
    %1 = tsched.alloc : !ttile.buffer<[], bool>
    tsched.call @test(%0, %1) {flops = 7, bytes = 1, time = 2}
    tsched.yield %1
  }, {
  ^bb0(%2: !ttile.buffer<[4], f32>, %3: !ttile.buffer<[4], f32>):
    %4 = tsched.for %i, %i, %i, %2, %3 {carried = 1} ({
    ^bb0(%5: !ttile.buffer<[], i64>, %6: !ttile.buffer<[4], f32>, %7: !ttile.buffer<[4], f32>):
      %8 = tsched.for %6, %7 {carried = 1, length = 3, trips = 3} ({
      ^bb0(%9: !ttile.buffer<[4], f32>, %10: !ttile.buffer<[4], f32>):
        tsched.call @step(%9, %10) {flops = 10, bytes = 2, time = 1}
        tsched.yield
      }) : !ttile.buffer<[4], f32>
      tsched.yield
    }) : !ttile.buffer<[4], f32>
    tsched.yield
  }) : !ttile.buffer<[4], f32>
  tsched.if %p ({
    tsched.call @one(%x) {flops = 5*B, bytes = 2, time = 1}
    tsched.yield
  }, {
    tsched.call @other(%x) {flops = 9, bytes = 1, time = 1}
    tsched.yield
  })
  tsched.return
}

// What a call costs that no group stands behind is not known, nor what holds it; a size may be called like a symbol.
// CHECK-LABEL: tsched.module @unknown(
// CHECK-NOT:     flops
// CHECK:         tsched.while {{.*}} {trips = trips1} ({
tsched.module @unknown(%x: !ttile.buffer<[trips0], f32>, %y: !ttile.buffer<[trips0], f32>) {
  %r = tsched.while %x, %y ({
  ^bb0(%0: !ttile.buffer<[trips0], f32>):
    %1 = tsched.alloc : !ttile.buffer<[], bool>
    tsched.call @test(%0, %1) sizes = [trips0]
    tsched.yield %1
  }, {
  ^bb0(%2: !ttile.buffer<[trips0], f32>, %3: !ttile.buffer<[trips0], f32>):
    tsched.yield
  }) : !ttile.buffer<[trips0], f32>
  tsched.return
}
