// RUN: tessera-opt %s | filecheck %s
// RUN: tessera-opt %s | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-generic | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-locations | tessera-opt | filecheck %s
// RUN: tessera-opt %s --print-generic | filecheck %s --check-prefix=GENERIC
// RUN: tessera-opt %s -p tile-check-bounds,tile-check-races,tile-check-barriers | filecheck %s

// A kernel has sizes, a grid, and buffers as arguments; a default (kind "map") is left out.
// CHECK-LABEL: ttile.kernel @double(%x: !ttile.buffer<[N], f32>, %out: !ttile.buffer<[N], f32>)
// CHECK-SAME:    attributes {symbols = ["N"], grid = [((N + 7) floordiv 8)], writes = [1]} {
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = ttile.program_id {axis = 0} : () -> !ttile.index
// CHECK-NEXT:    %[[I:[a-z0-9]+]] = ttile.index %[[P]] {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
// CHECK-NEXT:    %[[X:[a-z0-9]+]] = ttile.load %x, %[[I]] {coords = ["i"], axes = ["i"], map = [i], bounds = [N]}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = ttile.elementwise %[[X]], %[[X]] {fn = "add"}
// CHECK-NEXT:    ttile.store %[[Y]], %out, %[[I]] {coords = ["i"], axes = ["i"], map = [i], bounds = [N]}
// CHECK-NEXT:    ttile.return
// GENERIC: "ttile.load"(%{{.*}}) <{coords = #tessera.value<["i"]>, axes = #tessera.value<["i"]>, map = #tessera.value<[dim<i>]>
ttile.kernel @double(%x: !ttile.buffer<[N], f32>, %out: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [(N + 7) floordiv 8], writes = [1], kind = "map"} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = p * 8} : (!ttile.index) -> !ttile.index
  %t = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N], pad = 0} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  %y = ttile.elementwise %t, %t {fn = "add"} : (!ttile.tile<[8], f32>, !ttile.tile<[8], f32>) -> !ttile.tile<[8], f32>
  ttile.store %y, %out, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N]} : (!ttile.tile<[8], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
  ttile.return
}

// A loop carries tiles; a product adds to an accumulator.
// CHECK-LABEL: ttile.kernel @product(
// CHECK:         %[[ACC:[a-z0-9]+]] = ttile.constant {value = 0.0} : () -> !ttile.tile<[4, 8], f32>
// CHECK-NEXT:    %[[SUM:[a-z0-9]+]] = ttile.for %{{.*}}, %{{.*}}, %[[ACC]] {step = 2} ({
// CHECK-NEXT:    ^bb0(%[[K:[a-z0-9]+]]: !ttile.index, %[[C:[a-z0-9]+]]: !ttile.tile<[4, 8], f32>):
// CHECK:           %[[L:[a-z0-9]+]] = ttile.load %a, %{{.*}}, %[[K]] {coords = ["z", "k"], axes = ["z", "k"], map = [z, k], bounds = [-1, K]}
// CHECK-NEXT:      %[[R:[a-z0-9]+]] = ttile.load %b, %{{.*}}, %[[K]]
// CHECK-NEXT:      %[[T:[a-z0-9]+]] = ttile.transpose %[[R]] : (!ttile.tile<[8, 2], f32>) -> !ttile.tile<[2, 8], f32>
// CHECK-NEXT:      %[[D:[a-z0-9]+]] = ttile.dot %[[L]], %[[T]], %[[C]]
// CHECK-NEXT:      ttile.yield %[[D]] : (!ttile.tile<[4, 8], f32>) -> ()
// CHECK-NEXT:    }) : (!ttile.index, !ttile.index, !ttile.tile<[4, 8], f32>) -> !ttile.tile<[4, 8], f32>
// CHECK-NEXT:    ttile.store %[[SUM]], %c
ttile.kernel @product(%a: !ttile.buffer<[4, K], f32>, %b: !ttile.buffer<[8, K], f32>, %c: !ttile.buffer<[4, 8], f32>) attributes {symbols = ["K"], grid = [], writes = [2], kind = "contraction"} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %e = ttile.index {names = [], expr = K} : () -> !ttile.index
  %0 = ttile.constant {value = 0.0} : () -> !ttile.tile<[4, 8], f32>
  %1 = ttile.for %z, %e, %0 {step = 2} ({
  ^bb0(%k: !ttile.index, %acc: !ttile.tile<[4, 8], f32>):
    %2 = ttile.load %a, %z, %k {coords = ["z", "k"], axes = ["z", "k"], map = [z, k], bounds = [-1, K]} : (!ttile.buffer<[4, K], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[4, 2], f32>
    %3 = ttile.load %b, %z, %k {coords = ["z", "k"], axes = ["z", "k"], map = [z, k], bounds = [-1, K]} : (!ttile.buffer<[8, K], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 2], f32>
    %4 = ttile.transpose %3 : (!ttile.tile<[8, 2], f32>) -> !ttile.tile<[2, 8], f32>
    %5 = ttile.dot %2, %4, %acc : (!ttile.tile<[4, 2], f32>, !ttile.tile<[2, 8], f32>, !ttile.tile<[4, 8], f32>) -> !ttile.tile<[4, 8], f32>
    ttile.yield %5 : (!ttile.tile<[4, 8], f32>) -> ()
  }) : (!ttile.index, !ttile.index, !ttile.tile<[4, 8], f32>) -> !ttile.tile<[4, 8], f32>
  ttile.store %1, %c, %z, %z {coords = ["i", "j"], axes = ["i", "j"], map = [i, j], bounds = [-1, -1]} : (!ttile.tile<[4, 8], f32>, !ttile.buffer<[4, 8], f32>, !ttile.index, !ttile.index) -> ()
  ttile.return
}

// Every other op, and values that print as they are: infinities, sizes, dtypes.
// CHECK-LABEL: ttile.kernel @others(
// CHECK:         ttile.load %x, %{{.*}} {coords = ["i"], axes = ["i"], map = [i - 1], bounds = [N], windows = [i - 1, N], pad = -inf}
// CHECK-NEXT:    ttile.clip %{{.*}}, %{{.*}} {coords = ["i"], axes = ["i"], axis = "i", bound = N, identity = -inf}
// CHECK-NEXT:    ttile.reduce %{{.*}} {kind = "max", axis = 0} : (!ttile.tile<[8], f32>) -> !ttile.tile<[], f32>
// CHECK-NEXT:    ttile.broadcast %{{.*}} {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[8], f32>
// CHECK-NEXT:    ttile.coordinate %{{.*}} {coords = ["i"], axes = ["i"], expr = N + 2*i}
// CHECK-NEXT:    ttile.arg_reduce %{{.*}}, %{{.*}} {kind = "argmax", axis = 0}
// CHECK-NEXT:    ttile.bitcast %{{.*}} : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], i32>
// CHECK-NEXT:    ttile.constant {value = dim<N>} : () -> !ttile.tile<[8], i32>
// CHECK-NEXT:    ttile.elementwise %{{.*}}, %{{.*}} {fn = "lt"} : {{.*}} -> !ttile.tile<[8], bool>
// CHECK-NEXT:    ttile.select
// CHECK-NEXT:    ttile.cast %{{.*}} {rounding = "nearest_even"} : (!ttile.tile<[8], i32>) -> !ttile.tile<[8], bf16>
// CHECK-NEXT:    ttile.scratch : () -> !ttile.buffer<[N + 1, 8], bf16>
// CHECK-NEXT:    ttile.store %{{.*}} {coords = ["i"], axes = ["i"], map = [0, (i mod 8)], bounds = [-1], mode = "add"}
ttile.kernel @others(%x: !ttile.buffer<[N], f32>) attributes {symbols = ["N"], grid = [], writes = []} {
  %i = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %0 = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i - 1], bounds = [N], windows = [i - 1, N], pad = -inf} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  %1 = ttile.clip %0, %i {coords = ["i"], axes = ["i"], axis = "i", bound = N, identity = -inf} : (!ttile.tile<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  %2 = ttile.reduce %1 {kind = "max", axis = 0} : (!ttile.tile<[8], f32>) -> !ttile.tile<[], f32>
  %3 = ttile.broadcast %2 {axes = []} : (!ttile.tile<[], f32>) -> !ttile.tile<[8], f32>
  %4 = ttile.coordinate %i {coords = ["i"], axes = ["i"], expr = N + 2*i} : (!ttile.index) -> !ttile.tile<[8], i64>
  %5 = ttile.arg_reduce %1, %4 {kind = "argmax", axis = 0} : (!ttile.tile<[8], f32>, !ttile.tile<[8], i64>) -> !ttile.tile<[], i64>
  %6 = ttile.bitcast %3 : (!ttile.tile<[8], f32>) -> !ttile.tile<[8], i32>
  %7 = ttile.constant {value = dim<N>} : () -> !ttile.tile<[8], i32>
  %8 = ttile.elementwise %6, %7 {fn = "lt"} : (!ttile.tile<[8], i32>, !ttile.tile<[8], i32>) -> !ttile.tile<[8], bool>
  %9 = ttile.select %8, %6, %7 : (!ttile.tile<[8], bool>, !ttile.tile<[8], i32>, !ttile.tile<[8], i32>) -> !ttile.tile<[8], i32>
  %10 = ttile.cast %9 {rounding = "nearest_even"} : (!ttile.tile<[8], i32>) -> !ttile.tile<[8], bf16>
  %11 = ttile.scratch : () -> !ttile.buffer<[N + 1, 8], bf16>
  ttile.store %10, %11, %i {coords = ["i"], axes = ["i"], map = [0, i mod 8], bounds = [-1], mode = "add"} : (!ttile.tile<[8], bf16>, !ttile.buffer<[N + 1, 8], bf16>, !ttile.index) -> ()
  ttile.return
}

// Where to go next is read from memory; lines of memory are put in order.
// CHECK-LABEL: ttile.kernel @order(
// CHECK:         %[[R:[a-z0-9]+]] = ttile.fetch %at, %{{.*}} {coords = ["i"], map = [i]} : (!ttile.buffer<[N], i64>, !ttile.index) -> !ttile.index
// CHECK-NEXT:    ttile.load %x, %[[R]] {coords = ["r"], axes = [], map = [r], bounds = [], windows = [r, N]}
// CHECK:         ttile.sort %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {descending = true}
ttile.kernel @order(%x: !ttile.buffer<[N], f32>, %at: !ttile.buffer<[N], i64>) attributes {symbols = ["N"], grid = [N], writes = [], kind = "library"} {
  %i = ttile.program_id {axis = 0} : () -> !ttile.index
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  %r = ttile.fetch %at, %i {coords = ["i"], map = [i]} : (!ttile.buffer<[N], i64>, !ttile.index) -> !ttile.index
  %0 = ttile.load %x, %r {coords = ["r"], axes = [], map = [r], bounds = [], windows = [r, N]} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[], f32>
  %1 = ttile.scratch : () -> !ttile.buffer<[N], f32>
  %2 = ttile.scratch : () -> !ttile.buffer<[N], i64>
  %3 = ttile.scratch : () -> !ttile.buffer<[N], f32>
  %4 = ttile.scratch : () -> !ttile.buffer<[N], i64>
  ttile.sort %1, %2, %3, %4, %n {descending = true} : (!ttile.buffer<[N], f32>, !ttile.buffer<[N], i64>, !ttile.buffer<[N], f32>, !ttile.buffer<[N], i64>, !ttile.index) -> ()
  ttile.return
}

// Memory that the threads of a program share, and the barriers around it; scratch is private otherwise.
// CHECK-LABEL: ttile.kernel @meet(
// CHECK:         %[[S:[a-z0-9]+]] = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
// CHECK-NEXT:    %{{.*}} = ttile.scratch : () -> !ttile.buffer<[8], f32>
// CHECK-NEXT:    ttile.store %{{.*}}, %[[S]]
// CHECK-NEXT:    ttile.barrier
// CHECK-NEXT:    ttile.load %[[S]]
// GENERIC: "ttile.barrier"() : () -> ()
ttile.kernel @meet(%x: !ttile.buffer<[8], f32>) attributes {symbols = [], grid = [], writes = []} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %t = ttile.load %x, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  %s = ttile.scratch {space = "shared"} : () -> !ttile.buffer<[8], f32>
  %u = ttile.scratch {space = "private"} : () -> !ttile.buffer<[8], f32>
  ttile.store %t, %s, %z {coords = ["i"], axes = ["i"], map = [i], bounds = [-1]} : (!ttile.tile<[8], f32>, !ttile.buffer<[8], f32>, !ttile.index) -> ()
  ttile.barrier
  %r = ttile.load %s, %z {coords = ["i"], axes = ["i"], map = [7 - i], bounds = [-1]} : (!ttile.buffer<[8], f32>, !ttile.index) -> !ttile.tile<[8], f32>
  ttile.return
}

// What an author asks of the machine: a schedule, hints of a load, the prefetch distance; and a store that all programs
// may do to one cell.
// CHECK-LABEL: ttile.kernel @asked(
// CHECK-SAME:    schedule = {block = [8, 4], warps = 8}
// CHECK:         ttile.for %{{.*}}, %{{.*}} {step = 8, prefetch = 2} ({
// CHECK:           ttile.load %x, %{{.*}} {coords = ["i"], axes = ["i"], map = [i], bounds = [N], hints = {swizzle = "xor", vector = 4}}
// CHECK-NEXT:      %[[R:[a-z0-9]+]] = ttile.reduce %{{.*}} {kind = "sum", axis = 0} : (!ttile.tile<[6], f32>) -> !ttile.tile<[], f32>
// CHECK-NEXT:      ttile.store %[[R]], %y {coords = [], axes = [], map = [0], bounds = [], mode = "atomic_add"}
ttile.kernel @asked(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[1], f32>) attributes {symbols = ["N"], grid = [4], writes = [1], kind = "library", schedule = {block = [8, 4], warps = 8}} {
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %n = ttile.index {names = [], expr = N} : () -> !ttile.index
  ttile.for %z, %n {step = 8, prefetch = 2} ({
  ^bb0(%i: !ttile.index):
    %0 = ttile.load %x, %i {coords = ["i"], axes = ["i"], map = [i], bounds = [N], hints = {swizzle = "xor", vector = 4}} : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttile.tile<[6], f32>
    %1 = ttile.reduce %0 {kind = "sum", axis = 0} : (!ttile.tile<[6], f32>) -> !ttile.tile<[], f32>
    ttile.store %1, %y {coords = [], axes = [], map = [0], bounds = [], mode = "atomic_add"} : (!ttile.tile<[], f32>, !ttile.buffer<[1], f32>) -> ()
    ttile.yield
  }) : (!ttile.index, !ttile.index) -> ()
  ttile.return
}
