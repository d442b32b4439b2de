; One plane of a strided copy with elements of $BYTES bytes: `rows` rows of `columns` elements into rows that lie
; `to.row` bytes apart. Walked in 32 x 32 blocks, so that the cache lines of a column are used up before they leave.
define internal void @copy_plane_$BITS(ptr %to, i64 %to.row, ptr %from, i64 %rows, i64 %row, i64 %columns, i64 %column) #0 {
entry:
  br label %band
band:
  %r0 = phi i64 [ 0, %entry ], [ %r0.next, %band.next ]
  %band.more = icmp slt i64 %r0, %rows
  br i1 %band.more, label %band.open, label %done
band.open:
  %r0.next = add i64 %r0, 32
  %r.past = icmp sgt i64 %r0.next, %rows
  %r1 = select i1 %r.past, i64 %rows, i64 %r0.next
  br label %block
block:
  %c0 = phi i64 [ 0, %band.open ], [ %c0.next, %block.next ]
  %block.more = icmp slt i64 %c0, %columns
  br i1 %block.more, label %block.open, label %band.next
block.open:
  %c0.next = add i64 %c0, 32
  %c.past = icmp sgt i64 %c0.next, %columns
  %c1 = select i1 %c.past, i64 %columns, i64 %c0.next
  br label %line
line:
  %r = phi i64 [ %r0, %block.open ], [ %r.next, %line.next ]
  %line.more = icmp slt i64 %r, %r1
  br i1 %line.more, label %line.open, label %block.next
line.open:
  %to.offset = mul i64 %r, %to.row
  %to.line = getelementptr i8, ptr %to, i64 %to.offset
  %from.row = mul i64 %r, %row
  %from.start = mul i64 %c0, %column
  %from.offset = add i64 %from.row, %from.start
  %from.line = getelementptr i8, ptr %from, i64 %from.offset
  br label %cell
cell:
  %c = phi i64 [ %c0, %line.open ], [ %c.next, %cell ]
  %source = phi ptr [ %from.line, %line.open ], [ %source.next, %cell ]
  %value = load i$BITS, ptr %source, align 1
  %target = getelementptr i$BITS, ptr %to.line, i64 %c
  store i$BITS %value, ptr %target, align 1
  %source.next = getelementptr i8, ptr %source, i64 %column
  %c.next = add i64 %c, 1
  %cell.more = icmp slt i64 %c.next, %c1
  br i1 %cell.more, label %cell, label %line.next
line.next:
  %r.next = add i64 %r, 1
  br label %line
block.next:
  br label %block
band.next:
  br label %band
done:
  ret void
}
