; Tensors: making and unmaking their records, wrapping them as Python objects, and handing them out as DLPack capsules.

; A record with room for dims and strides; `strides` null means C order. Null when there is no memory, and when the sizes
; do not fit: a dim is negative, or the bytes (dims of 0 counted as 1, since they are strides too) are 2^63 or more.
define ptr @tessera_tensor_make(ptr %data, i32 %dtype, i32 %rank, ptr %dims, ptr %strides, ptr %owner, i32 %kind, i32 %flags) #0 {
entry:
  %wide = zext i32 %rank to i64
  %two = shl i64 %wide, 4
  %bytes = add i64 %two, 40
  %tensor = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %fill
fill:
  store ptr %data, ptr %tensor, align 8
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  store i32 %rank, ptr %rank.at, align 4
  %dtype.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  store i32 %dtype, ptr %dtype.at, align 4
  %owner.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 4
  store ptr %owner, ptr %owner.at, align 8
  %kind.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 5
  store i32 %kind, ptr %kind.at, align 4
  %flags.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  store i32 %flags, ptr %flags.at, align 4
  %item.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 6, i32 %dtype
  %item = load i64, ptr %item.at, align 8
  %to.dims = getelementptr i8, ptr %tensor, i64 40
  %to.strides = getelementptr i64, ptr %to.dims, i64 %wide
  %given = icmp ne ptr %strides, null
  br label %loop
loop:
  %i = phi i64 [ %wide, %fill ], [ %i.next, %next ]
  %step = phi i64 [ %item, %fill ], [ %step.next, %next ]
  %span = phi i64 [ %item, %fill ], [ %span.next, %next ]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %one, label %done
one:
  %i.next = sub i64 %i, 1
  %dim.at = getelementptr i64, ptr %dims, i64 %i.next
  %dim = load i64, ptr %dim.at, align 8
  %to.dim = getelementptr i64, ptr %to.dims, i64 %i.next
  store i64 %dim, ptr %to.dim, align 8
  %step.next = mul i64 %step, %dim
  %empty = icmp eq i64 %dim, 0
  %factor = select i1 %empty, i64 1, i64 %dim
  %checked = call { i64, i1 } @llvm.smul.with.overflow.i64(i64 %span, i64 %factor)
  %span.next = extractvalue { i64, i1 } %checked, 0
  %wrapped = extractvalue { i64, i1 } %checked, 1
  %negative = icmp slt i64 %dim, 0
  %unfit = or i1 %wrapped, %negative
  br i1 %unfit, label %undo, label %fits
fits:
  br i1 %given, label %copy, label %next
copy:
  %stride.at = getelementptr i64, ptr %strides, i64 %i.next
  %stride.given = load i64, ptr %stride.at, align 8
  br label %next
next:
  %stride = phi i64 [ %step, %fits ], [ %stride.given, %copy ]
  %to.stride = getelementptr i64, ptr %to.strides, i64 %i.next
  store i64 %stride, ptr %to.stride, align 8
  br label %loop
done:
  %bytes.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 3
  store i64 %step, ptr %bytes.at, align 8
  ret ptr %tensor
undo:
  call void @free(ptr %tensor)
  br label %fail
fail:
  ret ptr null
}

; A contiguous tensor with memory of its own, contents undefined; null when there is no memory or the sizes do not fit.
define ptr @tessera_tensor_new(i32 %dtype, i32 %rank, ptr %dims) #0 {
entry:
  %tensor = call ptr @tessera_tensor_make(ptr null, i32 %dtype, i32 %rank, ptr %dims, ptr null, ptr null, i32 1, i32 1)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %room
room:
  %bytes.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 3
  %bytes = load i64, ptr %bytes.at, align 8
  %data = call ptr @tessera_alloc(i64 %bytes)
  %full = icmp eq ptr %data, null
  br i1 %full, label %undo, label %done
undo:
  call void @free(ptr %tensor)
  br label %fail
done:
  store ptr %data, ptr %tensor, align 8
  %owner.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 4
  store ptr %data, ptr %owner.at, align 8
  ret ptr %tensor
fail:
  ret ptr null
}

; Let the owner go, then the record.
define void @tessera_tensor_drop(ptr %tensor) #0 {
entry:
  %owner.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 4
  %owner = load ptr, ptr %owner.at, align 8
  %kind.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 5
  %kind = load i32, ptr %kind.at, align 4
  switch i32 %kind, label %done [ i32 1, label %block
                                  i32 2, label %object
                                  i32 3, label %managed
                                  i32 4, label %versioned ]
block:
  call void @tessera_free(ptr %owner)
  br label %done
object:
  call void @Py_DecRef(ptr %owner)
  br label %done
managed:
  %managed.at = getelementptr i8, ptr %owner, i64 56
  br label %delete
versioned:
  %versioned.at = getelementptr i8, ptr %owner, i64 16
  br label %delete
delete:
  %deleter.at = phi ptr [ %managed.at, %managed ], [ %versioned.at, %versioned ]
  %deleter = load ptr, ptr %deleter.at, align 8
  %has = icmp ne ptr %deleter, null
  br i1 %has, label %call, label %done
call:
  call void %deleter(ptr %owner)
  br label %done
done:
  call void @free(ptr %tensor)
  ret void
}

define internal void @handle_destroy(ptr %capsule) #0 {
entry:
  %tensor = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %done, label %drop
drop:
  call void @tessera_tensor_drop(ptr %tensor)
  br label %done
done:
  ret void
}

; The capsule that owns a record; on failure the record is dropped and null comes back with an error set.
define ptr @tessera_tensor_handle(ptr %tensor) #0 {
entry:
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %empty, label %wrap
wrap:
  %capsule = call ptr @PyCapsule_New(ptr %tensor, ptr @handle_name, ptr @handle_destroy)
  %failed = icmp eq ptr %capsule, null
  br i1 %failed, label %drop, label %done
drop:
  call void @tessera_tensor_drop(ptr %tensor)
  ret ptr null
empty:
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
done:
  ret ptr %capsule
}

; A `Tensor` object around a record; owns it as `tessera_tensor_handle` does.
define internal ptr @tensor_object(ptr %tensor) #0 {
entry:
  %capsule = call ptr @tessera_tensor_handle(ptr %tensor)
  %failed = icmp eq ptr %capsule, null
  br i1 %failed, label %fail, label %make
make:
  %type = load ptr, ptr @tessera_environment, align 8
  %object = call ptr @PyType_GenericAlloc(ptr %type, i64 0)
  %none = icmp eq ptr %object, null
  br i1 %none, label %drop, label %done
drop:
  call void @Py_DecRef(ptr %capsule)
  br label %fail
done:
  %slot.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 1
  %slot = load i64, ptr %slot.at, align 8
  %handle.at = getelementptr i8, ptr %object, i64 %slot
  store ptr %capsule, ptr %handle.at, align 8
  ret ptr %object
fail:
  ret ptr null
}

define internal ptr @tuple_of_words(ptr %words, i64 %count) #0 {
entry:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %none = icmp eq ptr %tuple, null
  br i1 %none, label %fail, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %put ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %at = getelementptr i64, ptr %words, i64 %i
  %word = load i64, ptr %at, align 8
  %number = call ptr @PyLong_FromLongLong(i64 %word)
  %failed = icmp eq ptr %number, null
  br i1 %failed, label %drop, label %put
put:
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %number)
  %i.next = add i64 %i, 1
  br label %loop
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %fail
done:
  ret ptr %tuple
fail:
  ret ptr null
}

; Builtins of one argument, a handle: its dims, its strides, and the rest of its record.

define ptr @tessera_tensor_shape(ptr %self, ptr %handle) #0 {
entry:
  %tensor = call ptr @PyCapsule_GetPointer(ptr %handle, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %read
read:
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %wide = zext i32 %rank to i64
  %dims = getelementptr i8, ptr %tensor, i64 40
  %tuple = call ptr @tuple_of_words(ptr %dims, i64 %wide)
  ret ptr %tuple
fail:
  ret ptr null
}

define ptr @tessera_tensor_strides(ptr %self, ptr %handle) #0 {
entry:
  %tensor = call ptr @PyCapsule_GetPointer(ptr %handle, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %read
read:
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %wide = zext i32 %rank to i64
  %dims = getelementptr i8, ptr %tensor, i64 40
  %strides = getelementptr i64, ptr %dims, i64 %wide
  %tuple = call ptr @tuple_of_words(ptr %strides, i64 %wide)
  ret ptr %tuple
fail:
  ret ptr null
}

; (data, dtype code, bytes, rank, flags, owner kind)
define ptr @tessera_tensor_describe(ptr %self, ptr %handle) #0 {
entry:
  %words = alloca [6 x i64], align 16
  %tensor = call ptr @PyCapsule_GetPointer(ptr %handle, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %read
read:
  %data = load i64, ptr %tensor, align 8
  store i64 %data, ptr %words, align 8
  %dtype.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  %dtype = load i32, ptr %dtype.at, align 4
  %dtype.wide = zext i32 %dtype to i64
  %word1 = getelementptr i64, ptr %words, i64 1
  store i64 %dtype.wide, ptr %word1, align 8
  %bytes.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 3
  %bytes = load i64, ptr %bytes.at, align 8
  %word2 = getelementptr i64, ptr %words, i64 2
  store i64 %bytes, ptr %word2, align 8
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %rank.wide = zext i32 %rank to i64
  %word3 = getelementptr i64, ptr %words, i64 3
  store i64 %rank.wide, ptr %word3, align 8
  %flags.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  %flags = load i32, ptr %flags.at, align 4
  %flags.wide = zext i32 %flags to i64
  %word4 = getelementptr i64, ptr %words, i64 4
  store i64 %flags.wide, ptr %word4, align 8
  %kind.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 5
  %kind = load i32, ptr %kind.at, align 4
  %kind.wide = zext i32 %kind to i64
  %word5 = getelementptr i64, ptr %words, i64 5
  store i64 %kind.wide, ptr %word5, align 8
  %tuple = call ptr @tuple_of_words(ptr %words, i64 6)
  ret ptr %tuple
fail:
  ret ptr null
}

; A builtin of one argument, a Tensor or an array of NumPy: bytes that are equal where dtype, dims, contiguity and which
; of the two it is are. NotImplemented for an array of a dtype that is not ours.
define ptr @tessera_tensor_form(ptr %self, ptr %object) #0 {
entry:
  %type.at = getelementptr i8, ptr %object, i64 $PyObject.ob_type
  %type = load ptr, ptr %type.at, align 8
  %ours = load ptr, ptr @tessera_environment, align 8
  %is_ours = icmp eq ptr %type, %ours
  br i1 %is_ours, label %tensor, label %other
other:
  %array.type.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 2
  %array.type = load ptr, ptr %array.type.at, align 8
  %is_array = icmp eq ptr %type, %array.type
  br i1 %is_array, label %array, label %refuse
array:
  %a.descr.at = getelementptr i8, ptr %object, i64 $PyArrayObject.descr
  %a.descr = load ptr, ptr %a.descr.at, align 8
  %a.dtype = call i32 @code_of(ptr %a.descr)
  %a.flags.at = getelementptr i8, ptr %object, i64 $PyArrayObject.flags
  %a.flags = load i32, ptr %a.flags.at, align 4
  %a.bits = and i32 %a.flags, 257
  %a.rank.at = getelementptr i8, ptr %object, i64 $PyArrayObject.nd
  %a.rank = load i32, ptr %a.rank.at, align 4
  %a.dims.at = getelementptr i8, ptr %object, i64 $PyArrayObject.dimensions
  %a.dims = load ptr, ptr %a.dims.at, align 8
  ; No flags of a Tensor have the next bit, which tells the two apart.
  %a.order = or i32 %a.bits, 512
  %unknown = icmp slt i32 %a.dtype, 0
  br i1 %unknown, label %refuse, label %make
tensor:
  %slot.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 1
  %slot = load i64, ptr %slot.at, align 8
  %handle.at = getelementptr i8, ptr %object, i64 %slot
  %handle = load ptr, ptr %handle.at, align 8
  %record.at = getelementptr i8, ptr %handle, i64 $PyCapsule.pointer
  %record = load ptr, ptr %record.at, align 8
  %r.rank.at = getelementptr %Tensor, ptr %record, i32 0, i32 1
  %r.rank = load i32, ptr %r.rank.at, align 4
  %r.dtype.at = getelementptr %Tensor, ptr %record, i32 0, i32 2
  %r.dtype = load i32, ptr %r.dtype.at, align 4
  %r.flags.at = getelementptr %Tensor, ptr %record, i32 0, i32 6
  %r.flags = load i32, ptr %r.flags.at, align 4
  %r.order = and i32 %r.flags, 1
  %r.dims = getelementptr i8, ptr %record, i64 40
  br label %make
make:
  %dtype = phi i32 [ %a.dtype, %array ], [ %r.dtype, %tensor ]
  %order = phi i32 [ %a.order, %array ], [ %r.order, %tensor ]
  %rank = phi i32 [ %a.rank, %array ], [ %r.rank, %tensor ]
  %dims = phi ptr [ %a.dims, %array ], [ %r.dims, %tensor ]
  %wide = zext i32 %rank to i64
  %dims.bytes = shl i64 %wide, 3
  %bytes = add i64 %dims.bytes, 8
  %made = call ptr @PyBytes_FromStringAndSize(ptr null, i64 %bytes)
  %none = icmp eq ptr %made, null
  br i1 %none, label %fail, label %fill
fill:
  %to = call ptr @PyBytes_AsString(ptr %made)
  store i32 %dtype, ptr %to, align 4
  %to.order = getelementptr i8, ptr %to, i64 4
  store i32 %order, ptr %to.order, align 4
  %to.dims = getelementptr i8, ptr %to, i64 8
  %copied = call ptr @memcpy(ptr %to.dims, ptr %dims, i64 %dims.bytes)
  ret ptr %made
refuse:
  %no = call ptr @not_implemented()
  ret ptr %no
fail:
  ret ptr null
}
