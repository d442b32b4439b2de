// RUN: tessera-opt %s --split -p 'schedule-form-groups,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "amx-tile", "amx-int8", "amx-bf16"]}' | filecheck %s
// RUN: tessera-opt %s --split -p 'schedule-form-groups,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "amx-tile", "amx-int8", "amx-bf16"], unit = "amx-bf16"}' | filecheck %s --check-prefix ASKED
// RUN: tessera-opt %s --split -p 'schedule-form-groups,schedule-emit-tiles,cpu-lower-kernels{features = ["avx", "avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"]}' | filecheck %s --check-prefix PLAIN

// Integers of 8 bits are exact in any order: tiles take them unasked. Without the feature there are none.
// CHECK-LABEL: tsched.module @bytes(
// CHECK:       features = [{{.*}}"amx-int8"{{.*}}]
// CHECK:       ttarget.gemm {{.*}} lhs_dtype = i8, rhs_dtype = u8, unit = "amx-int8", instruction = [16, 16, 64]}
// ASKED-LABEL: tsched.module @bytes(
// ASKED:       unit = "amx-int8", instruction = [16, 16, 64]}
// PLAIN-LABEL: tsched.module @bytes(
// PLAIN-NOT:   amx
// PLAIN:       ttarget.gemm {{.*}} lhs_dtype = i8, rhs_dtype = u8} ({
tgraph.func @bytes(%x: !tgraph.tensor<[B, K], i8>, %w: !tgraph.tensor<[K, C], u8>) -> !tgraph.tensor<[B, C], i32> attributes {names = ["x", "w"]} {
  %0 = tgraph.matmul %x, %w {dtype = i32} : (!tgraph.tensor<[B, K], i8>, !tgraph.tensor<[K, C], u8>) -> !tgraph.tensor<[B, C], i32>
  tgraph.return %0 : (!tgraph.tensor<[B, C], i32>) -> ()
}
// -----
// Sums of bf16 have other bits on tiles: only who asks for them gets them.
// CHECK-LABEL: tsched.module @halves(
// CHECK:       ttarget.gemm {{.*}} lhs_dtype = bf16, rhs_dtype = bf16} ({
// ASKED-LABEL: tsched.module @halves(
// ASKED:       ttarget.gemm {{.*}} lhs_dtype = bf16, rhs_dtype = bf16, unit = "amx-bf16", instruction = [16, 16, 32]}
// PLAIN-LABEL: tsched.module @halves(
// PLAIN:       ttarget.gemm {{.*}} lhs_dtype = bf16, rhs_dtype = bf16} ({
tgraph.func @halves(%x: !tgraph.tensor<[B, K], bf16>, %w: !tgraph.tensor<[K, C], bf16>) -> !tgraph.tensor<[B, C], bf16> attributes {names = ["x", "w"]} {
  %0 = tgraph.matmul %x, %w : (!tgraph.tensor<[B, K], bf16>, !tgraph.tensor<[K, C], bf16>) -> !tgraph.tensor<[B, C], bf16>
  tgraph.return %0 : (!tgraph.tensor<[B, C], bf16>) -> ()
}
