// RUN: tessera-opt %s --split | filecheck %s
// RUN: tessera-opt %s --split -p tile-check-bounds,tile-check-races,tile-check-barriers | filecheck %s
// RUN: tessera-opt %s --split --print-generic | tessera-opt --split | filecheck %s

// A reduction over the ranks of a mesh axis says where its tile lies in the tensor that ranks exchange.
// CHECK-LABEL: ttile.kernel @reduced(
// CHECK:         %[[X:[a-z0-9]+]] = ttile.constant
// CHECK-NEXT:    %{{.*}} = ttile.all_reduce %[[X]], %{{.*}}, %{{.*}} {axis = "tp", size = [2], op = "max", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]}
ttile.kernel @reduced() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.all_reduce %x, %i, %z {axis = "tp", size = [2], op = "max", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
// -----
// All ranks get a tile of each rank.
// CHECK-LABEL: ttile.kernel @gathered(
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}} = ttile.all_gather %{{.*}} {axis = "tp", size = [3]
ttile.kernel @gathered() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %a, %b, %c = ttile.all_gather %x, %i, %z {axis = "tp", size = [3], coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>)
  ttile.return
}
// -----
// A tile for each rank, of which each keeps its own, reduced; a sum is the default.
// CHECK-LABEL: ttile.kernel @scattered(
// CHECK:         ttile.reduce_scatter %[[X:[a-z0-9]+]], %[[X]], %{{.*}}, %{{.*}} {axis = "tp", size = [2], coords
ttile.kernel @scattered() attributes {symbols = ["M", "N"], grid = [M], writes = []} {
  %p = ttile.program_id {axis = 0} : () -> !ttile.index
  %i = ttile.index %p {names = ["p"], expr = 8*p} : (!ttile.index) -> !ttile.index
  %z = ttile.index {names = [], expr = 0} : () -> !ttile.index
  %x = ttile.constant {value = 1.0} : () -> !ttile.tile<[8, 16], f32>
  %y = ttile.reduce_scatter %x, %x, %i, %z {axis = "tp", size = [2], op = "sum", coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [M, N], shape = [M, N]} : (!ttile.tile<[8, 16], f32>, !ttile.tile<[8, 16], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[8, 16], f32>
  ttile.return
}
