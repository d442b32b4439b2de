// RUN: tessera-opt %s --split -p 'schedule-form-groups,schedule-deduplicate,schedule-choose-tiles,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2"]}' | filecheck %s

// Nothing is known of N: its last lanes are guarded, in a tail of the loop along it.
// CHECK-LABEL: tsched.module @unknown(
// CHECK:         tsched.fuse @[[E:[a-z0-9_]+]](%x) {kind = "row", axes = [1], sizes = {{\[}}["s0", dim<A>], ["s1", dim<N>]]
// CHECK:       ttarget.kernel @[[E]](
// CHECK:         ttarget.tail
// CHECK:         ttarget.load {{.*}}guarded = ["_r"]
tgraph.func @unknown(%x: !tgraph.tensor<[A, N], f32>) -> !tgraph.tensor<[A], f32> {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[A, N], f32>) -> !tgraph.tensor<[A], f32>
  tgraph.return %0 : (!tgraph.tensor<[A], f32>) -> ()
}

// -----

// N is a multiple of 128 by a guard: neither tail nor guarded lanes are left.
// CHECK-LABEL: tsched.module @known(
// CHECK:         tsched.fuse @[[K:[a-z0-9_]+]](%x) {kind = "row", axes = [1], sizes = {{\[}}["s0", dim<A>], ["s1", dim<(N floordiv 128)>]]
// CHECK:       ttarget.kernel @[[K]](%{{.*}}: !ttile.buffer<[s0, 128*s1], f32>
// CHECK:         ttarget.loop
// CHECK-NOT:     ttarget.tail
// CHECK-NOT:     guarded
// CHECK:         ttarget.return
tgraph.func @known(%x: !tgraph.tensor<[A, N], f32>) -> !tgraph.tensor<[A], f32> attributes {guards = [[dim<(N mod 128)>, dim<0>, "`N % 128 == 0`"]]} {
  %0 = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[A, N], f32>) -> !tgraph.tensor<[A], f32>
  tgraph.return %0 : (!tgraph.tensor<[A], f32>) -> ()
}
