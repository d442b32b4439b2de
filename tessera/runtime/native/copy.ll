; Strided to contiguous: any rank, any strides (negative and zero ones too), elements of 1, 2, 4 or 8 bytes.

; Drop dims of size 1 and join neighbours that one stride walks through; writes dims and strides, gives the new rank.
define internal i32 @coalesce(i32 %rank, ptr %dims, ptr %strides, ptr %to.dims, ptr %to.strides) #0 {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %next ]
  %n = phi i32 [ 0, %entry ], [ %n.next, %next ]
  %more = icmp slt i32 %i, %rank
  br i1 %more, label %one, label %done
one:
  %dim.at = getelementptr i64, ptr %dims, i32 %i
  %dim = load i64, ptr %dim.at, align 8
  %stride.at = getelementptr i64, ptr %strides, i32 %i
  %stride = load i64, ptr %stride.at, align 8
  %unit = icmp eq i64 %dim, 1
  br i1 %unit, label %skip, label %try
try:
  %first = icmp eq i32 %n, 0
  br i1 %first, label %add, label %join
join:
  %last = sub i32 %n, 1
  %last.dim.at = getelementptr i64, ptr %to.dims, i32 %last
  %last.dim = load i64, ptr %last.dim.at, align 8
  %last.stride.at = getelementptr i64, ptr %to.strides, i32 %last
  %last.stride = load i64, ptr %last.stride.at, align 8
  %walk = mul i64 %dim, %stride
  %through = icmp eq i64 %walk, %last.stride
  br i1 %through, label %merge, label %add
merge:
  %merged = mul i64 %last.dim, %dim
  store i64 %merged, ptr %last.dim.at, align 8
  store i64 %stride, ptr %last.stride.at, align 8
  br label %next
add:
  %to.dim = getelementptr i64, ptr %to.dims, i32 %n
  store i64 %dim, ptr %to.dim, align 8
  %to.stride = getelementptr i64, ptr %to.strides, i32 %n
  store i64 %stride, ptr %to.stride, align 8
  %n.more = add i32 %n, 1
  br label %next
skip:
  br label %next
next:
  %n.next = phi i32 [ %n, %merge ], [ %n.more, %add ], [ %n, %skip ]
  %i.next = add i32 %i, 1
  br label %loop
done:
  ret i32 %n
}

define internal void @copy_plane(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column, i64 %item) #0 {
entry:
  %dense = icmp eq i64 %column, %item
  br i1 %dense, label %lines, label %cells
lines:
  %bytes = mul i64 %columns, %item
  br label %line
line:
  %r = phi i64 [ 0, %lines ], [ %r.next, %one ]
  %more = icmp slt i64 %r, %rows
  br i1 %more, label %one, label %done
one:
  %to.offset = mul i64 %r, %to.row
  %to.line = getelementptr i8, ptr %to, i64 %to.offset
  %from.offset = mul i64 %r, %row
  %from.line = getelementptr i8, ptr %from, i64 %from.offset
  %copied = call ptr @memcpy(ptr %to.line, ptr %from.line, i64 %bytes)
  %r.next = add i64 %r, 1
  br label %line
cells:
  switch i64 %item, label %done [ i64 1, label %by8
                                  i64 2, label %by16
                                  i64 4, label %by32
                                  i64 8, label %by64 ]
by8:
  call void @copy_plane_8(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column)
  ret void
by16:
  call void @copy_plane_16(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column)
  ret void
by32:
  call void @copy_plane_32(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column)
  ret void
by64:
  call void @copy_plane_64(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column)
  ret void
done:
  ret void
}

; The dim other than the last with the smallest stride in absolute value: it and the last make the plane.
define internal i32 @pick_row(i32 %rank, ptr %strides) #0 {
entry:
  %last = sub i32 %rank, 1
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i.next, %one ]
  %best = phi i32 [ 0, %entry ], [ %best.next, %one ]
  %least = phi i64 [ 9223372036854775807, %entry ], [ %least.next, %one ]
  %more = icmp slt i32 %i, %last
  br i1 %more, label %one, label %done
one:
  %at = getelementptr i64, ptr %strides, i32 %i
  %stride = load i64, ptr %at, align 8
  %negative = sub i64 0, %stride
  %below = icmp slt i64 %stride, 0
  %size = select i1 %below, i64 %negative, i64 %stride
  %smaller = icmp sle i64 %size, %least
  %best.next = select i1 %smaller, i32 %i, i32 %best
  %least.next = select i1 %smaller, i64 %size, i64 %least
  %i.next = add i32 %i, 1
  br label %loop
done:
  ret i32 %best
}

; Copy what `from` shows through `dims` and `strides` (bytes) to `to`, in C order.
define void @tessera_copy_strided(ptr %to, ptr %from, i32 %rank, ptr %dims, ptr %strides, i64 %item) #0 {
entry:
  ; One more than the rank: a plane needs two dims, and there may be none.
  %room = add i32 %rank, 2
  %d = alloca i64, i32 %room, align 16
  %s = alloca i64, i32 %room, align 16
  %t = alloca i64, i32 %room, align 16
  %at = alloca i64, i32 %room, align 16
  br label %empty
empty:
  %z = phi i32 [ 0, %entry ], [ %z.next, %nonzero ]
  %z.more = icmp slt i32 %z, %rank
  br i1 %z.more, label %look, label %shrink
look:
  %z.at = getelementptr i64, ptr %dims, i32 %z
  %z.dim = load i64, ptr %z.at, align 8
  %zero = icmp eq i64 %z.dim, 0
  br i1 %zero, label %done, label %nonzero
nonzero:
  %z.next = add i32 %z, 1
  br label %empty
shrink:
  %found = call i32 @coalesce(i32 %rank, ptr %dims, ptr %strides, ptr %d, ptr %s)
  %few = icmp slt i32 %found, 2
  br i1 %few, label %flat, label %general
flat:
  ; At most one dim is left: one row of it.
  %none = icmp eq i32 %found, 0
  %d0 = load i64, ptr %d, align 8
  %s0 = load i64, ptr %s, align 8
  %columns1 = select i1 %none, i64 1, i64 %d0
  %column1 = select i1 %none, i64 %item, i64 %s0
  call void @copy_plane(ptr %to, i64 0, ptr %from, i64 1, i64 0, i64 %columns1, i64 %column1, i64 %item)
  ret void
general:
  ; Strides of the contiguous result, and an odometer at zero.
  %last = sub i32 %found, 1
  br label %prepare
prepare:
  %p = phi i32 [ %last, %general ], [ %p.next, %prepare ]
  %walk = phi i64 [ %item, %general ], [ %walk.next, %prepare ]
  %t.at = getelementptr i64, ptr %t, i32 %p
  store i64 %walk, ptr %t.at, align 8
  %at.at = getelementptr i64, ptr %at, i32 %p
  store i64 0, ptr %at.at, align 8
  %p.dim.at = getelementptr i64, ptr %d, i32 %p
  %p.dim = load i64, ptr %p.dim.at, align 8
  %walk.next = mul i64 %walk, %p.dim
  %p.next = sub i32 %p, 1
  %p.more = icmp sge i32 %p.next, 0
  br i1 %p.more, label %prepare, label %choose
choose:
  %row.dim = call i32 @pick_row(i32 %found, ptr %s)
  %rows.at = getelementptr i64, ptr %d, i32 %row.dim
  %rows = load i64, ptr %rows.at, align 8
  %row.at = getelementptr i64, ptr %s, i32 %row.dim
  %row = load i64, ptr %row.at, align 8
  %to.row.at = getelementptr i64, ptr %t, i32 %row.dim
  %to.row = load i64, ptr %to.row.at, align 8
  %columns.at = getelementptr i64, ptr %d, i32 %last
  %columns = load i64, ptr %columns.at, align 8
  %column.at = getelementptr i64, ptr %s, i32 %last
  %column = load i64, ptr %column.at, align 8
  br label %plane
plane:
  %to.here = phi ptr [ %to, %choose ], [ %to.next, %step.done ]
  %from.here = phi ptr [ %from, %choose ], [ %from.next, %step.done ]
  call void @copy_plane(ptr %to.here, i64 %to.row, ptr %from.here, i64 %rows, i64 %row, i64 %columns, i64 %column, i64 %item)
  br label %turn
turn:
  ; Advance the odometer over the other dims, last one fastest; when it runs over its top, all planes are done.
  %k = phi i32 [ %last, %plane ], [ %k.next, %carry ], [ %k.next, %turn.skip ]
  %to.now = phi ptr [ %to.here, %plane ], [ %to.back, %carry ], [ %to.now, %turn.skip ]
  %from.now = phi ptr [ %from.here, %plane ], [ %from.back, %carry ], [ %from.now, %turn.skip ]
  %k.next = sub i32 %k, 1
  %over = icmp slt i32 %k.next, 0
  br i1 %over, label %done, label %turn.dim
turn.dim:
  %is_row = icmp eq i32 %k.next, %row.dim
  br i1 %is_row, label %turn.skip, label %step
turn.skip:
  br label %turn
step:
  %k.at = getelementptr i64, ptr %at, i32 %k.next
  %count = load i64, ptr %k.at, align 8
  %count.next = add i64 %count, 1
  %k.dim.at = getelementptr i64, ptr %d, i32 %k.next
  %k.dim = load i64, ptr %k.dim.at, align 8
  %k.to.at = getelementptr i64, ptr %t, i32 %k.next
  %k.to = load i64, ptr %k.to.at, align 8
  %k.from.at = getelementptr i64, ptr %s, i32 %k.next
  %k.from = load i64, ptr %k.from.at, align 8
  %full = icmp eq i64 %count.next, %k.dim
  br i1 %full, label %carry, label %step.done
carry:
  store i64 0, ptr %k.at, align 8
  %to.span = mul i64 %count, %k.to
  %to.minus = sub i64 0, %to.span
  %to.back = getelementptr i8, ptr %to.now, i64 %to.minus
  %from.span = mul i64 %count, %k.from
  %from.minus = sub i64 0, %from.span
  %from.back = getelementptr i8, ptr %from.now, i64 %from.minus
  br label %turn
step.done:
  store i64 %count.next, ptr %k.at, align 8
  %to.next = getelementptr i8, ptr %to.now, i64 %k.to
  %from.next = getelementptr i8, ptr %from.now, i64 %k.from
  br label %plane
done:
  ret void
}
