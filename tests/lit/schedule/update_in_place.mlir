// RUN: tessera-opt %s -p schedule-update-in-place | filecheck %s

// A donated cache is written over, twice in a row; the counter is updated in place once both rows are written.
// CHECK-LABEL: tsched.module @append(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @write(%k, %n, %row) {kind = "library", in_place = [0]}
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @write_too(%[[A]], %n, %row) {kind = "library", in_place = [0]}
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @count(%n) {kind = "map", in_place = [0]}
// CHECK-NEXT:    tsched.return %[[B]], %[[C]]
tsched.module @append(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>) attributes {tessera.donated = [0, 1]} {
  %c = tsched.fuse @count(%n) {kind = "map"} : !tgraph.tensor<[], i64>
  %a = tsched.fuse @write(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  %b = tsched.fuse @write_too(%a, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %b, %c
}

// What the caller keeps is copied, and what the copy gives is the program's own.
// CHECK-LABEL: tsched.module @keep(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @plain(%k, %n, %row) {kind = "library"} :
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @own(%[[A]], %n, %row) {kind = "library", in_place = [0]}
tsched.module @keep(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %a = tsched.fuse @plain(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  %b = tsched.fuse @own(%a, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %b
}

// Somebody reads the old one, in another shape: the update waits for that.
// CHECK-LABEL: tsched.module @read_later(
// CHECK:         %[[B:[a-z0-9]+]] = tsched.fuse @relu(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @before(%k, %n, %row) {kind = "library", in_place = [0]} :
// CHECK-NEXT:    tsched.return %[[A]], %[[B]]
tsched.module @read_later(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[64], f32>) attributes {tessera.donated = [0]} {
  %seen = tsched.alias %k : !tgraph.tensor<[64], f32>
  %a = tsched.fuse @before(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  %b = tsched.fuse @relu(%seen) {kind = "map"} : !tgraph.tensor<[64], f32>
  tsched.return %a, %b
}

// Somebody needs both, the old one and the new one: it stays.
// CHECK-LABEL: tsched.module @read_with_the_new(
// CHECK:         tsched.fuse @beside(%k, %n, %row) {kind = "library"} :
tsched.module @read_with_the_new(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> attributes {tessera.donated = [0]} {
  %a = tsched.fuse @beside(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  %b = tsched.fuse @sum_of_both(%a, %k) {kind = "map"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %b
}

// Whoever read it earlier is done.
// CHECK-LABEL: tsched.module @read_before(
// CHECK:         tsched.fuse @after(%k, %n, %row) {kind = "library", in_place = [0]}
tsched.module @read_before(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[64], f32>) attributes {tessera.donated = [0]} {
  %seen = tsched.alias %k : !tgraph.tensor<[64], f32>
  %b = tsched.fuse @relu(%seen) {kind = "map"} : !tgraph.tensor<[64], f32>
  %a = tsched.fuse @after(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %a, %b
}

// A number that is read after the new one is needed cannot be written over.
// CHECK-LABEL: tsched.module @counted_late(
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @count_late(%n) {kind = "map"} :
tsched.module @counted_late(%n: !tgraph.tensor<[], i64>) -> (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>) attributes {tessera.donated = [0]} {
  %c = tsched.fuse @count_late(%n) {kind = "map"} : !tgraph.tensor<[], i64>
  %d = tsched.fuse @both(%c, %n) {kind = "map"} : !tgraph.tensor<[], i64>
  tsched.return %c, %d
}

// Results of a map go over the donated arguments that they read element by element, in the order of both; the group
// moves down behind whoever reads an old one.
// CHECK-LABEL: tsched.module @descend(
// CHECK-NEXT:    %[[L:[a-z0-9]+]] = tsched.fuse @relu8(%p)
// CHECK-NEXT:    %[[M:[a-z0-9]+]], %[[P:[a-z0-9]+]] = tsched.fuse @momentum(%m, %g, %p) {kind = "map", in_place = [0, 2]}
// CHECK-NEXT:    tsched.return %[[P]], %[[M]], %[[L]]
tsched.module @descend(%p: !tgraph.tensor<[8], f32>, %m: !tgraph.tensor<[8], f32>, %g: !tgraph.tensor<[8], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) attributes {tessera.donated = [0, 1]} {
  %n, %q = tsched.fuse @momentum(%m, %g, %p) {kind = "map"} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>)
  %l = tsched.fuse @relu8(%p) {kind = "map"} : !tgraph.tensor<[8], f32>
  tsched.return %q, %n, %l
}

// One that a result is not computed from, or that is read at another element too, is not written over.
// CHECK-LABEL: tsched.module @shifted(
// CHECK-NEXT:    tsched.fuse @mirror(%p, %g) {kind = "map"} :
// CHECK-NEXT:    tsched.fuse @momentum_too(%p, %m, %g) {kind = "map", in_place = [-1, 1]} :
tsched.module @shifted(%p: !tgraph.tensor<[8], f32>, %g: !tgraph.tensor<[8], f32>, %m: !tgraph.tensor<[8], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) attributes {tessera.donated = [0, 1, 2]} {
  %a = tsched.fuse @mirror(%p, %g) {kind = "map"} : !tgraph.tensor<[8], f32>
  %n, %q = tsched.fuse @momentum_too(%p, %m, %g) {kind = "map"} : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>)
  tsched.return %a, %n, %q
}

// The epilogue of a contraction writes over what it reads element by element, behind other readers of the old value.
// CHECK-LABEL: tsched.module @learn(
// CHECK-NEXT:    %[[L:[a-z0-9]+]] = tsched.fuse @product(%p, %y) {kind = "contraction"} :
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tsched.fuse @gradient(%x, %y, %p) {kind = "contraction", in_place = [2]} :
// CHECK-NEXT:    tsched.return %[[P]], %[[L]]
tsched.module @learn(%p: !tgraph.tensor<[8, 8], f32>, %x: !tgraph.tensor<[8, 8], f32>, %y: !tgraph.tensor<[8, 8], f32>) -> (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) attributes {tessera.donated = [0]} {
  %q = tsched.fuse @gradient(%x, %y, %p) {kind = "contraction"} : !tgraph.tensor<[8, 8], f32>
  %l = tsched.fuse @product(%p, %y) {kind = "contraction"} : !tgraph.tensor<[8, 8], f32>
  tsched.return %q, %l
}

// What the contraction itself reads is not written over: blocks of other elements read it too. Nor is what its epilogue
// reads in another order.
// CHECK-LABEL: tsched.module @unsafe(
// CHECK-NEXT:    tsched.fuse @gradient_of_itself(%p, %x) {kind = "contraction"} :
// CHECK-NEXT:    tsched.fuse @gradient_transposed(%x, %x, %q) {kind = "contraction"} :
// CHECK-NEXT:    tsched.fuse @product_too(%r, %x) {kind = "contraction"} :
tsched.module @unsafe(%p: !tgraph.tensor<[8, 8], f32>, %q: !tgraph.tensor<[8, 8], f32>, %r: !tgraph.tensor<[8, 8], f32>, %x: !tgraph.tensor<[8, 8], f32>) -> (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) attributes {tessera.donated = [0, 1, 2]} {
  %a = tsched.fuse @gradient_of_itself(%p, %x) {kind = "contraction"} : !tgraph.tensor<[8, 8], f32>
  %b = tsched.fuse @gradient_transposed(%x, %x, %q) {kind = "contraction"} : !tgraph.tensor<[8, 8], f32>
  %c = tsched.fuse @product_too(%r, %x) {kind = "contraction"} : !tgraph.tensor<[8, 8], f32>
  tsched.return %a, %b, %c
}

// What a loop carries is its own: rows are written over it, in loops inside loops too, and a loop works in the memory
// of what it starts from where nobody reads that later.
// CHECK-LABEL: tsched.module @repeat(
// CHECK:         %[[S:[a-z0-9]+]] = tsched.fuse @relu_cache(%k)
// CHECK-NEXT:    tsched.for %[[S]] {carried = 1, length = 3, in_place = [0]} ({
// CHECK-NEXT:    ^bb0(%[[C:[a-z0-9]+]]:
// CHECK-NEXT:      %[[D:[a-z0-9]+]] = tsched.for %[[C]] {carried = 1, length = 2, in_place = [0]} ({
// CHECK-NEXT:      ^bb{{[0-9]+}}(%[[E:[a-z0-9]+]]:
// CHECK-NEXT:        %[[F:[a-z0-9]+]] = tsched.fuse @inner(%[[E]], %n, %row) {kind = "library", in_place = [0]}
// CHECK-NEXT:        tsched.yield %[[F]]
// CHECK:           %[[G:[a-z0-9]+]] = tsched.fuse @outer(%[[D]], %n, %row) {kind = "library", in_place = [0]}
// CHECK-NEXT:      tsched.yield %[[G]]
tsched.module @repeat(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %s = tsched.fuse @relu_cache(%k) {kind = "map"} : !tgraph.tensor<[1, 2, 8, 4], f32>
  %r = tsched.for %s {carried = 1, length = 3} ({
  ^bb0(%c: !tgraph.tensor<[1, 2, 8, 4], f32>):
    %d = tsched.for %c {carried = 1, length = 2} ({
    ^bb0(%e: !tgraph.tensor<[1, 2, 8, 4], f32>):
      %f = tsched.fuse @inner(%e, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
      tsched.yield %f
    }) : !tgraph.tensor<[1, 2, 8, 4], f32>
    %g = tsched.fuse @outer(%d, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
    tsched.yield %g
  }) : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %r
}

// The caller's argument is not written over: the loop starts from a copy. What a body captures is not its own.
// CHECK-LABEL: tsched.module @start_from_a_copy(
// CHECK-NEXT:    tsched.for %k {carried = 1, length = 3} ({
// CHECK:           tsched.fuse @of_its_own(%[[C:[a-z0-9]+]], %n, %row) {kind = "library", in_place = [0]}
// CHECK:         tsched.for %k {carried = 1, length = 2} ({
// CHECK:           tsched.fuse @captured(%k, %n, %row) {kind = "library"} :
tsched.module @start_from_a_copy(%k: !tgraph.tensor<[1, 2, 8, 4], f32>, %n: !tgraph.tensor<[], i64>, %row: !tgraph.tensor<[1, 2, 1, 4], f32>) -> (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>) attributes {tessera.donated = [1]} {
  %r = tsched.for %k {carried = 1, length = 3} ({
  ^bb0(%c: !tgraph.tensor<[1, 2, 8, 4], f32>):
    %d = tsched.fuse @of_its_own(%c, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
    tsched.yield %d
  }) : !tgraph.tensor<[1, 2, 8, 4], f32>
  %q = tsched.for %k {carried = 1, length = 2} ({
  ^bb0(%c: !tgraph.tensor<[1, 2, 8, 4], f32>):
    %d = tsched.fuse @captured(%k, %n, %row) {kind = "library"} : !tgraph.tensor<[1, 2, 8, 4], f32>
    tsched.yield %d
  }) : !tgraph.tensor<[1, 2, 8, 4], f32>
  tsched.return %r, %q
}

// The ops of the groups that were chosen say so; the others are as they were.
// CHECK-LABEL: tgraph.func @write(
// CHECK:         tgraph.kv_write %a0, %a1, %a2 {in_place = true}
// CHECK-LABEL: tgraph.func @plain(
// CHECK:         tgraph.kv_write %a0, %a1, %a2 :
tgraph.func @write(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @write_too(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @plain(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @own(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @before(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @after(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @relu(%a0: !tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32> {
  %0 = tgraph.relu %a0 : (!tgraph.tensor<[64], f32>) -> !tgraph.tensor<[64], f32>
  tgraph.return %0 : (!tgraph.tensor<[64], f32>) -> ()
}
tgraph.func @count(%a0: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64> {
  %0 = tgraph.neg %a0 : (!tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
tgraph.func @count_late(%a0: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64> {
  %0 = tgraph.neg %a0 : (!tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
tgraph.func @both(%a0: !tgraph.tensor<[], i64>, %a1: !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64> {
  %0 = tgraph.add %a0, %a1 : (!tgraph.tensor<[], i64>, !tgraph.tensor<[], i64>) -> !tgraph.tensor<[], i64>
  tgraph.return %0 : (!tgraph.tensor<[], i64>) -> ()
}
tgraph.func @momentum(%a0: !tgraph.tensor<[8], f32>, %a1: !tgraph.tensor<[8], f32>, %a2: !tgraph.tensor<[8], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) {
  %0 = tgraph.add %a0, %a1 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.sub %a2, %0 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> ()
}
tgraph.func @momentum_too(%a0: !tgraph.tensor<[8], f32>, %a1: !tgraph.tensor<[8], f32>, %a2: !tgraph.tensor<[8], f32>) -> (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) {
  %0 = tgraph.add %a0, %a1 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.sub %a2, %0 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0, %1 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> ()
}
tgraph.func @relu8(%a0: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> {
  %0 = tgraph.relu %a0 : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8], f32>) -> ()
}
tgraph.func @mirror(%a0: !tgraph.tensor<[8], f32>, %a1: !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32> {
  %0 = tgraph.flip %a0 {axes = [0]} : (!tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  %1 = tgraph.add %0, %a1 : (!tgraph.tensor<[8], f32>, !tgraph.tensor<[8], f32>) -> !tgraph.tensor<[8], f32>
  tgraph.return %1 : (!tgraph.tensor<[8], f32>) -> ()
}
tgraph.func @product(%a0: !tgraph.tensor<[8, 8], f32>, %a1: !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 8], f32>) -> ()
}
tgraph.func @product_too(%a0: !tgraph.tensor<[8, 8], f32>, %a1: !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 8], f32>) -> ()
}
tgraph.func @gradient(%a0: !tgraph.tensor<[8, 8], f32>, %a1: !tgraph.tensor<[8, 8], f32>, %a2: !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %1 = tgraph.sub %a2, %0 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %1 : (!tgraph.tensor<[8, 8], f32>) -> ()
}
tgraph.func @gradient_of_itself(%a0: !tgraph.tensor<[8, 8], f32>, %a1: !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %1 : (!tgraph.tensor<[8, 8], f32>) -> ()
}
tgraph.func @gradient_transposed(%a0: !tgraph.tensor<[8, 8], f32>, %a1: !tgraph.tensor<[8, 8], f32>, %a2: !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32> {
  %0 = tgraph.matmul %a0, %a1 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %1 = tgraph.transpose %a2 {axes = [1, 0]} : (!tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  %2 = tgraph.sub %1, %0 : (!tgraph.tensor<[8, 8], f32>, !tgraph.tensor<[8, 8], f32>) -> !tgraph.tensor<[8, 8], f32>
  tgraph.return %2 : (!tgraph.tensor<[8, 8], f32>) -> ()
}
tgraph.func @beside(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @inner(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @outer(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @of_its_own(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @captured(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[], i64>, %a2: !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.kv_write %a0, %a1, %a2 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[], i64>, !tgraph.tensor<[1, 2, 1, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @sum_of_both(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>, %a1: !tgraph.tensor<[1, 2, 8, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.add %a0, %a1 : (!tgraph.tensor<[1, 2, 8, 4], f32>, !tgraph.tensor<[1, 2, 8, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
tgraph.func @relu_cache(%a0: !tgraph.tensor<[1, 2, 8, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32> {
  %0 = tgraph.relu %a0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> !tgraph.tensor<[1, 2, 8, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[1, 2, 8, 4], f32>) -> ()
}
