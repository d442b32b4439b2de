// RUN: tessera-opt %s -p schedule-overlap-collectives | filecheck %s

// What a start needs comes first, then the start, then what does not need its wait.
// CHECK-LABEL: tsched.module @between(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @sent(%x)
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tsched.collective_start %[[A]] {number = 0, call = "all_gather", axis = "dp", ranks = 2}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @long(%w)
// CHECK-NEXT:    tsched.tile %[[B]]
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @longer(%[[B]])
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.collective_wait %[[A]], %[[S]] {number = 0}
// CHECK-NEXT:    %[[Y:[a-z0-9]+]] = tsched.fuse @join(%[[C]], %[[R]])
// CHECK-NEXT:    tsched.return %[[Y]]
tsched.module @between(%x: !tgraph.tensor<[4], f32>, %w: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32> {
  %b = tsched.fuse @long(%w) : !tgraph.tensor<[4], f32>
  tsched.tile %b candidates = [8] chosen = 8 {source = "default"}
  %a = tsched.fuse @sent(%x) : !tgraph.tensor<[4], f32>
  %s = tsched.collective_start %a {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %a, %s {number = 0} : !tgraph.tensor<[8], f32>
  %c = tsched.fuse @longer(%b) : !tgraph.tensor<[4], f32>
  %y = tsched.fuse @join(%c, %r) : !tgraph.tensor<[8], f32>
  tsched.return %y
}

// Several are in flight together, and start in program order.
// CHECK-LABEL: tsched.module @several(
// CHECK-NEXT:    tsched.collective_start %x {number = 0
// CHECK-NEXT:    tsched.collective_start %y {number = 1
// CHECK-NEXT:    tsched.fuse @long
// CHECK-NEXT:    tsched.collective_wait %x, %{{.*}} {number = 0}
// CHECK-NEXT:    tsched.collective_wait %y, %{{.*}} {number = 1}
tsched.module @several(%x: !tgraph.tensor<[4], f32>, %y: !tgraph.tensor<[4], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[4], f32>) {
  %s = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %x, %s {number = 0} : !tgraph.tensor<[8], f32>
  %t = tsched.collective_start %y {number = 1, call = "all_to_all", axis = "tp", ranks = 2} : !tgraph.tensor<[4], f32>
  %u = tsched.collective_wait %y, %t {number = 1} : !tgraph.tensor<[4], f32>
  %c = tsched.fuse @long(%y) : !tgraph.tensor<[4], f32>
  tsched.return %r, %u, %c
}

// Input and output keep their order among them.
// CHECK-LABEL: tsched.module @said(
// CHECK-NEXT:    tsched.collective_start %x {number = 0
// CHECK-NEXT:    tsched.fuse @long
// CHECK-NEXT:    tsched.collective_wait %x, %{{.*}} {number = 0}
// CHECK-NEXT:    tsched.callback %x {call = "debug_print", text = "x = {}"}
// CHECK-NEXT:    tsched.collective_start %x {number = 1
// CHECK-NEXT:    tsched.collective_wait %x, %{{.*}} {number = 1}
tsched.module @said(%x: !tgraph.tensor<[4], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[4], f32>) {
  %s = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %x, %s {number = 0} : !tgraph.tensor<[8], f32>
  tsched.callback %x {call = "debug_print", text = "x = {}"}
  %t = tsched.collective_start %x {number = 1, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %u = tsched.collective_wait %x, %t {number = 1} : !tgraph.tensor<[8], f32>
  %c = tsched.fuse @long(%x) : !tgraph.tensor<[4], f32>
  tsched.return %r, %u, %c
}

// Each needs the one before: nothing can stand between, and nothing changes.
// CHECK-LABEL: tsched.module @chain(
// CHECK-NEXT:    tsched.collective_start %x {number = 0
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.collective_wait %x, %{{.*}} {number = 0}
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @next(%[[R]])
// CHECK-NEXT:    tsched.collective_start %[[A]] {number = 1
// CHECK-NEXT:    tsched.collective_wait %[[A]], %{{.*}} {number = 1}
tsched.module @chain(%x: !tgraph.tensor<[4], f32>) -> !tgraph.tensor<[8], f32> {
  %s = tsched.collective_start %x {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %r = tsched.collective_wait %x, %s {number = 0} : !tgraph.tensor<[8], f32>
  %a = tsched.fuse @next(%r) : !tgraph.tensor<[4], f32>
  %t = tsched.collective_start %a {number = 1, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[8], f32>
  %u = tsched.collective_wait %a, %t {number = 1} : !tgraph.tensor<[8], f32>
  tsched.return %u
}

// What writes over a value waits until it was sent; what does not, does not.
// CHECK-LABEL: tsched.module @written_over(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @sent(%x)
// CHECK-NEXT:    %[[V:[a-z0-9]+]] = tsched.alias %[[A]]
// CHECK-NEXT:    %[[S:[a-z0-9]+]] = tsched.collective_start %[[V]] {number = 0
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @long(%x)
// CHECK-NEXT:    %[[R:[a-z0-9]+]] = tsched.collective_wait %[[V]], %[[S]] {number = 0}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @over(%[[A]]) {in_place = [0]}
// CHECK-NEXT:    tsched.return %[[R]], %[[B]], %[[C]]
tsched.module @written_over(%x: !tgraph.tensor<[4], f32>) -> (!tgraph.tensor<[2, 4], f32>, !tgraph.tensor<[4], f32>, !tgraph.tensor<[4], f32>) {
  %a = tsched.fuse @sent(%x) : !tgraph.tensor<[4], f32>
  %v = tsched.alias %a : !tgraph.tensor<[1, 4], f32>
  %s = tsched.collective_start %v {number = 0, call = "all_gather", axis = "dp", ranks = 2} : !tgraph.tensor<[2, 4], f32>
  %r = tsched.collective_wait %v, %s {number = 0} : !tgraph.tensor<[2, 4], f32>
  %b = tsched.fuse @over(%a) {in_place = [0]} : !tgraph.tensor<[4], f32>
  %c = tsched.fuse @long(%x) : !tgraph.tensor<[4], f32>
  tsched.return %r, %b, %c
}
