// RUN: tessera-opt %s -p schedule-offload-values | filecheck %s --check-prefix=NONE
// RUN: tessera-opt %s -p schedule-offload-values{memory=768} | filecheck %s --check-prefix=SOME
// RUN: tessera-opt %s -p schedule-offload-values{memory=512} | filecheck %s --check-prefix=ALL
// RUN: tessera-opt %s -p schedule-offload-values{memory=0},schedule-place-buffers,schedule-plan-memory | filecheck %s --check-prefix=PLAN

// Of two values that wait the one with the most bytes times groups in between is offloaded first, behind its last early
// use, and prefetched before its first late one; with less memory the other is too.
// NONE-LABEL: tsched.module @chain(
// NONE-NOT:     tsched.offload
// NONE-NOT:     tsched.prefetch
// SOME-LABEL: tsched.module @chain(
// SOME:         %[[A:[a-z0-9]+]] = tsched.fuse @k(%x)
// SOME-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @k(%[[A]])
// SOME-NEXT:    %[[H:[a-z0-9]+]] = tsched.offload %[[A]] : !tgraph.tensor<[64], f32>
// SOME-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @k(%[[B]])
// SOME-NEXT:    %[[D:[a-z0-9]+]] = tsched.fuse @k(%[[C]])
// SOME-NEXT:    %[[E:[a-z0-9]+]] = tsched.fuse @k2(%[[D]], %[[B]])
// SOME-NEXT:    %[[P:[a-z0-9]+]] = tsched.prefetch %[[H]] : !tgraph.tensor<[64], f32>
// SOME-NEXT:    tsched.fuse @k2(%[[E]], %[[P]])
// ALL-LABEL:  tsched.module @chain(
// ALL-COUNT-2:  tsched.offload
// ALL:          tsched.prefetch
// PLAN-LABEL: tsched.module @chain(
// PLAN-SAME:    workspace = 768, offloaded = 512
// PLAN:         %[[A:[a-z0-9]+]] = tsched.alloc {offset = {{[0-9]+}}}
// PLAN-NEXT:    tsched.call @k(%x, %[[A]])
// PLAN:         %[[H:[a-z0-9]+]] = tsched.alloc {offset = {{[0-9]+}}, space = "host"}
// PLAN-NEXT:    tsched.copy %[[A]], %[[H]]
// PLAN-NEXT:    tsched.free %[[A]]
tsched.module @chain(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %b = tsched.fuse @k(%a) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %d = tsched.fuse @k(%c) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %e = tsched.fuse @k2(%d, %b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %f = tsched.fuse @k2(%e, %a) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %y = tsched.fuse @k(%f) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  tsched.return %y
}

// A late use in another shape has that of what is prefetched, and a result of the program is never offloaded.
// SOME-LABEL: tsched.module @shapes(
// SOME:         %[[A:[a-z0-9]+]] = tsched.fuse @k(%x)
// SOME-NEXT:    %[[H:[a-z0-9]+]] = tsched.offload %[[A]]
// SOME-NEXT:    tsched.fuse @k(%x)
// SOME-COUNT-3: tsched.fuse
// SOME-NEXT:    %[[P:[a-z0-9]+]] = tsched.prefetch %[[H]]
// SOME-NEXT:    %[[V:[a-z0-9]+]] = tsched.alias %[[P]] : !tgraph.tensor<[8, 8], f32>
// SOME-NEXT:    tsched.fuse @k2(%{{[a-z0-9]+}}, %[[V]])
// SOME-NOT:     tsched.offload
// SOME:         tsched.return
tsched.module @shapes(%x: !tgraph.tensor<[64], f32>) -> (!tgraph.tensor<[64], f32>, !tgraph.tensor<[64], f32>) {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %v = tsched.alias %a : !tgraph.tensor<[8, 8], f32>
  %b = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %d = tsched.fuse @k(%c) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %g = tsched.fuse @k2(%c, %d) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %e = tsched.fuse @k2(%g, %v) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %f = tsched.fuse @k2(%e, %b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %y = tsched.fuse @k(%f) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  tsched.return %y, %b
}

// Memory is kept and taken for groups that take as long as a copy: here two, each as long as half of it.
// SOME-LABEL: tsched.module @ahead(
// SOME-COUNT-3: tsched.fuse
// SOME-NEXT:    tsched.offload
// SOME-COUNT-2: tsched.fuse
// SOME-NEXT:    tsched.prefetch
// SOME-COUNT-3: tsched.fuse
// SOME:         tsched.return
tsched.module @ahead(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %b = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %d = tsched.fuse @k2(%b, %c) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %e = tsched.fuse @k(%d) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %f = tsched.fuse @k(%e) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %g = tsched.fuse @k(%f) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %y = tsched.fuse @k2(%g, %a) {kind = "map", sizes = [["s0", dim<64>]], flops = 64, bytes = 256, kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  tsched.return %y
}

// What is written over late is written over where it was prefetched to.
// SOME-LABEL: tsched.module @over(
// SOME:         %[[P:[a-z0-9]+]] = tsched.prefetch
// SOME-NEXT:    tsched.fuse @k2(%[[P]], %{{[a-z0-9]+}}) {{.*}}in_place = [0]
tsched.module @over(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %b = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %d = tsched.fuse @k2(%b, %c) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %e = tsched.fuse @k2(%a, %d) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"], in_place = [0]} : !tgraph.tensor<[64], f32>
  %y = tsched.fuse @k(%e) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  tsched.return %y
}

// What a collective sends stays where it is until its wait.
// SOME-LABEL: tsched.module @sent(
// SOME-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse
// SOME-NOT:     tsched.offload %[[A]]
// SOME:         tsched.return
tsched.module @sent(%x: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %s = tsched.collective_start %a {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[128], f32>
  %b = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  %d = tsched.fuse @k2(%b, %c) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %r = tsched.collective_wait %a, %s {number = 0} : !tgraph.tensor<[128], f32>
  %e = tsched.fuse @k2(%d, %a) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k2"]} : !tgraph.tensor<[64], f32>
  %y = tsched.fuse @k(%e) {kind = "map", sizes = [["s0", dim<64>]], kernels = ["k"]} : !tgraph.tensor<[64], f32>
  tsched.return %y
}

// Where sizes are not known nothing can be compared, and nothing is offloaded.
// ALL-LABEL:  tsched.module @unknown(
// ALL-NOT:      tsched.offload
// ALL:          tsched.return
tsched.module @unknown(%x: !tgraph.tensor<[N], f32>) -> !tgraph.tensor<[N], f32> {
  %a = tsched.fuse @k(%x) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k"]} : !tgraph.tensor<[N], f32>
  %b = tsched.fuse @k(%a) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k"]} : !tgraph.tensor<[N], f32>
  %c = tsched.fuse @k(%b) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k"]} : !tgraph.tensor<[N], f32>
  %y = tsched.fuse @k2(%c, %a) {kind = "map", sizes = [["s0", dim<N>]], kernels = ["k2"]} : !tgraph.tensor<[N], f32>
  tsched.return %y
}

ttile.kernel @k(%x: !ttile.buffer<[s0], f32>, %out: !ttile.buffer<[s0], f32>) attributes {symbols = ["s0"], grid = [s0], writes = [1]} {
  ttile.return
}

ttile.kernel @k2(%x: !ttile.buffer<[s0], f32>, %y: !ttile.buffer<[s0], f32>, %out: !ttile.buffer<[s0], f32>) attributes {symbols = ["s0"], grid = [s0], writes = [2]} {
  ttile.return
}
