// RUN: tessera-opt %s -p schedule-merge-launches | filecheck %s

// Updates of two shapes whose sizes are multiples of 16 are one launch of one body, behind what is between them; the
// one of 5 elements has a body of its own, and stays alone.
// CHECK-LABEL: tsched.module @descend(
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @sum(%g)
// CHECK-NEXT:    %[[P:[a-z0-9]+]] = tsched.alias %p : !tgraph.tensor<[512], f32>
// CHECK-NEXT:    %[[G:[a-z0-9]+]] = tsched.alias %g : !tgraph.tensor<[512], f32>
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @[[BODY:mul_sub_[0-9a-f]+]](%[[P]], %[[G]], %r) {kind = "map", sizes = {{\[}}["s0", dim<32>]], in_place = [0], launch = 0}
// CHECK-NEXT:    %[[S:[a-z0-9_]+]] = tsched.alias %[[A]] : !tgraph.tensor<[8, 64], f32>
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @[[BODY]](%q, %h, %r) {kind = "map", sizes = {{\[}}["s0", dim<2>]], in_place = [0], launch = 0}
// CHECK-NEXT:    %[[D:[a-z0-9]+]] = tsched.fuse @five(%o, %f, %r) {kind = "map", in_place = [0]}
// CHECK-NEXT:    tsched.return %[[S]], %[[B]], %[[D]], %[[C]]
tsched.module @descend(%p: !tgraph.tensor<[8, 64], f32>, %g: !tgraph.tensor<[8, 64], f32>, %q: !tgraph.tensor<[32], f32>, %h: !tgraph.tensor<[32], f32>, %o: !tgraph.tensor<[5], f32>, %f: !tgraph.tensor<[5], f32>, %r: !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[32], f32>, !tgraph.tensor<[5], f32>, !tgraph.tensor<[], f32>) attributes {tessera.donated = [0, 2, 4]} {
  %a = tsched.fuse @matrix(%p, %g, %r) {kind = "map", in_place = [0]} : !tgraph.tensor<[8, 64], f32>
  %c = tsched.fuse @sum(%g) {kind = "row", axes = [0, 1]} : !tgraph.tensor<[], f32>
  %b = tsched.fuse @vector(%q, %h, %r) {kind = "map", in_place = [0]} : !tgraph.tensor<[32], f32>
  %d = tsched.fuse @five(%o, %f, %r) {kind = "map", in_place = [0]} : !tgraph.tensor<[5], f32>
  tsched.return %a, %b, %d, %c
}

// One that reads the result of the other waits for it: they are two launches, and keep their shapes.
// CHECK-LABEL: tsched.module @chained(
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @matrix_too(%p, %g, %r) {kind = "map"} :
// CHECK-NEXT:    %[[C:[a-z0-9]+]] = tsched.fuse @sum_too(%[[A]])
// CHECK-NEXT:    %[[B:[a-z0-9]+]] = tsched.fuse @vector_too(%q, %h, %[[C]]) {kind = "map"} :
tsched.module @chained(%p: !tgraph.tensor<[8, 64], f32>, %g: !tgraph.tensor<[8, 64], f32>, %q: !tgraph.tensor<[32], f32>, %h: !tgraph.tensor<[32], f32>, %r: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[32], f32> {
  %a = tsched.fuse @matrix_too(%p, %g, %r) {kind = "map"} : !tgraph.tensor<[8, 64], f32>
  %c = tsched.fuse @sum_too(%a) {kind = "row", axes = [0, 1]} : !tgraph.tensor<[], f32>
  %b = tsched.fuse @vector_too(%q, %h, %c) {kind = "map"} : !tgraph.tensor<[32], f32>
  tsched.return %b
}

// A group does not move behind one that writes over what it reads.
// CHECK-LABEL: tsched.module @overwritten(
// CHECK-NEXT:    tsched.fuse @vector_too(%q, %h, %r) {kind = "map"} :
// CHECK-NEXT:    tsched.fuse @negate(%h) {kind = "map", in_place = [0]} :
// CHECK-NEXT:    tsched.fuse @vector_too(%h2, %q, %r) {kind = "map"} :
tsched.module @overwritten(%q: !tgraph.tensor<[32], f32>, %h: !tgraph.tensor<[32], f32>, %h2: !tgraph.tensor<[32], f32>, %r: !tgraph.tensor<[], f32>) -> (!tgraph.tensor<[32], f32>, !tgraph.tensor<[32], f32>, !tgraph.tensor<[32], f32>) attributes {tessera.donated = [1]} {
  %a = tsched.fuse @vector_too(%q, %h, %r) {kind = "map"} : !tgraph.tensor<[32], f32>
  %c = tsched.fuse @negate(%h) {kind = "map", in_place = [0]} : !tgraph.tensor<[32], f32>
  %b = tsched.fuse @vector_too(%h2, %q, %r) {kind = "map"} : !tgraph.tensor<[32], f32>
  tsched.return %a, %b, %c
}

// Reductions are launched one by one.
// CHECK-LABEL: tsched.module @rows(
// CHECK-NEXT:    tsched.fuse @sum_too(%p) {kind = "row", axes = [0, 1]} :
// CHECK-NEXT:    tsched.fuse @sum_too(%g) {kind = "row", axes = [0, 1]} :
tsched.module @rows(%p: !tgraph.tensor<[8, 64], f32>, %g: !tgraph.tensor<[8, 64], f32>) -> (!tgraph.tensor<[], f32>, !tgraph.tensor<[], f32>) {
  %a = tsched.fuse @sum_too(%p) {kind = "row", axes = [0, 1]} : !tgraph.tensor<[], f32>
  %b = tsched.fuse @sum_too(%g) {kind = "row", axes = [0, 1]} : !tgraph.tensor<[], f32>
  tsched.return %a, %b
}

// What asks where an element is, or sees an operand in another order, keeps its shape.
// CHECK-LABEL: tsched.module @placed(
// CHECK-NEXT:    tsched.fuse @triangle(%p) {kind = "map"} :
// CHECK-NEXT:    tsched.fuse @triangle_too(%o) {kind = "map"} :
// CHECK-NEXT:    tsched.return
tsched.module @placed(%p: !tgraph.tensor<[8, 64], f32>, %o: !tgraph.tensor<[16, 4], f32>) -> (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[16, 4], f32>) {
  %a = tsched.fuse @triangle(%p) {kind = "map"} : !tgraph.tensor<[8, 64], f32>
  %b = tsched.fuse @triangle_too(%o) {kind = "map"} : !tgraph.tensor<[16, 4], f32>
  tsched.return %a, %b
}

// A large value that was computed does not wait for a later group while others take memory; a small one does.
// CHECK-LABEL: tsched.module @heavy(
// CHECK-NEXT:    %[[G:[a-z0-9]+]] = tsched.fuse @large(%x) {kind = "map"} :
// CHECK-NEXT:    %[[A:[a-z0-9]+]] = tsched.fuse @large(%[[G]]) {kind = "map"} :
// CHECK-NEXT:    %[[H:[a-z0-9]+]] = tsched.fuse @negate(%h) {kind = "map"} :
// CHECK-NEXT:    tsched.fuse @negate(%[[H]]) {kind = "map", launch = 1} :
// CHECK-NEXT:    tsched.fuse @negate(%q) {kind = "map", launch = 1} :
// CHECK-NEXT:    tsched.fuse @large(%y) {kind = "map"} :
tsched.module @heavy(%x: !tgraph.tensor<[2048, 1024], f32>, %y: !tgraph.tensor<[2048, 1024], f32>, %h: !tgraph.tensor<[32], f32>, %q: !tgraph.tensor<[32], f32>) -> (!tgraph.tensor<[2048, 1024], f32>, !tgraph.tensor<[32], f32>, !tgraph.tensor<[32], f32>, !tgraph.tensor<[2048, 1024], f32>) {
  %g = tsched.fuse @large(%x) {kind = "map"} : !tgraph.tensor<[2048, 1024], f32>
  %a = tsched.fuse @large(%g) {kind = "map"} : !tgraph.tensor<[2048, 1024], f32>
  %k = tsched.fuse @negate(%h) {kind = "map"} : !tgraph.tensor<[32], f32>
  %b = tsched.fuse @negate(%k) {kind = "map"} : !tgraph.tensor<[32], f32>
  %c = tsched.fuse @negate(%q) {kind = "map"} : !tgraph.tensor<[32], f32>
  %d = tsched.fuse @large(%y) {kind = "map"} : !tgraph.tensor<[2048, 1024], f32>
  tsched.return %a, %b, %c, %d
}

// The bodies that nobody has any more are gone.
// CHECK-NOT: tgraph.func @matrix(
// CHECK-NOT: tgraph.func @vector(
tgraph.func @matrix(%a0: !tgraph.tensor<[8, 64], f32>, %a1: !tgraph.tensor<[8, 64], f32>, %a2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[8, 64], f32> {
  %0 = tgraph.mul %a1, %a2 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[8, 64], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32>
  tgraph.return %1 : (!tgraph.tensor<[8, 64], f32>) -> ()
}
tgraph.func @matrix_too(%a0: !tgraph.tensor<[8, 64], f32>, %a1: !tgraph.tensor<[8, 64], f32>, %a2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[8, 64], f32> {
  %0 = tgraph.mul %a1, %a2 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[8, 64], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[8, 64], f32>, !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32>
  tgraph.return %1 : (!tgraph.tensor<[8, 64], f32>) -> ()
}
tgraph.func @vector(%a0: !tgraph.tensor<[32], f32>, %a1: !tgraph.tensor<[32], f32>, %a2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[32], f32> {
  %0 = tgraph.mul %a1, %a2 : (!tgraph.tensor<[32], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[32], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[32], f32>, !tgraph.tensor<[32], f32>) -> !tgraph.tensor<[32], f32>
  tgraph.return %1 : (!tgraph.tensor<[32], f32>) -> ()
}
tgraph.func @vector_too(%a0: !tgraph.tensor<[32], f32>, %a1: !tgraph.tensor<[32], f32>, %a2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[32], f32> {
  %0 = tgraph.mul %a1, %a2 : (!tgraph.tensor<[32], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[32], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[32], f32>, !tgraph.tensor<[32], f32>) -> !tgraph.tensor<[32], f32>
  tgraph.return %1 : (!tgraph.tensor<[32], f32>) -> ()
}
tgraph.func @five(%a0: !tgraph.tensor<[5], f32>, %a1: !tgraph.tensor<[5], f32>, %a2: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[5], f32> {
  %0 = tgraph.mul %a1, %a2 : (!tgraph.tensor<[5], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[5], f32>
  %1 = tgraph.sub %a0, %0 : (!tgraph.tensor<[5], f32>, !tgraph.tensor<[5], f32>) -> !tgraph.tensor<[5], f32>
  tgraph.return %1 : (!tgraph.tensor<[5], f32>) -> ()
}
tgraph.func @sum(%a0: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.sum %a0 {axes = [0, 1]} : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
tgraph.func @sum_too(%a0: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[], f32> {
  %0 = tgraph.sum %a0 {axes = [0, 1]} : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[], f32>
  tgraph.return %0 : (!tgraph.tensor<[], f32>) -> ()
}
tgraph.func @negate(%a0: !tgraph.tensor<[32], f32>) -> !tgraph.tensor<[32], f32> {
  %0 = tgraph.neg %a0 : (!tgraph.tensor<[32], f32>) -> !tgraph.tensor<[32], f32>
  tgraph.return %0 : (!tgraph.tensor<[32], f32>) -> ()
}
tgraph.func @triangle(%a0: !tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32> {
  %0 = tgraph.tril %a0 : (!tgraph.tensor<[8, 64], f32>) -> !tgraph.tensor<[8, 64], f32>
  tgraph.return %0 : (!tgraph.tensor<[8, 64], f32>) -> ()
}
tgraph.func @triangle_too(%a0: !tgraph.tensor<[16, 4], f32>) -> !tgraph.tensor<[16, 4], f32> {
  %0 = tgraph.tril %a0 : (!tgraph.tensor<[16, 4], f32>) -> !tgraph.tensor<[16, 4], f32>
  tgraph.return %0 : (!tgraph.tensor<[16, 4], f32>) -> ()
}
tgraph.func @large(%a0: !tgraph.tensor<[2048, 1024], f32>) -> !tgraph.tensor<[2048, 1024], f32> {
  %0 = tgraph.exp %a0 : (!tgraph.tensor<[2048, 1024], f32>) -> !tgraph.tensor<[2048, 1024], f32>
  tgraph.return %0 : (!tgraph.tensor<[2048, 1024], f32>) -> ()
}
