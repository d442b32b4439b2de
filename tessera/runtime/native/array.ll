; NumPy arrays in and out, sharing memory: builtins of one argument.
; `$PyArrayObject.data` and its like are offsets of `layout.py`; C-contiguous is 0x1, aligned 0x100, writeable 0x400.

; The dtype code whose NumPy descriptor this is, or -1.
define internal i32 @code_of(ptr %descr) #0 {
entry:
  br label %loop
loop:
  %code = phi i32 [ 0, %entry ], [ %code.next, %other ]
  %more = icmp slt i32 %code, 32
  br i1 %more, label %look, label %none
look:
  %at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 4, i32 %code
  %known = load ptr, ptr %at, align 8
  %same = icmp eq ptr %known, %descr
  br i1 %same, label %found, label %other
other:
  %code.next = add i32 %code, 1
  br label %loop
found:
  ret i32 %code
none:
  ret i32 -1
}

; A Tensor that shows a plain array and keeps it alive; NotImplemented for whatever is not one.
define ptr @tessera_tensor_from_array(ptr %self, ptr %object) #0 {
entry:
  %type.at = getelementptr i8, ptr %object, i64 $PyObject.ob_type
  %type = load ptr, ptr %type.at, align 8
  %array.type.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 2
  %array.type = load ptr, ptr %array.type.at, align 8
  %is_array = icmp eq ptr %type, %array.type
  br i1 %is_array, label %array, label %refuse
array:
  %flags.at = getelementptr i8, ptr %object, i64 $PyArrayObject.flags
  %flags = load i32, ptr %flags.at, align 4
  %plain.bits = and i32 %flags, 257
  %plain = icmp eq i32 %plain.bits, 257
  %descr.at = getelementptr i8, ptr %object, i64 $PyArrayObject.descr
  %descr = load ptr, ptr %descr.at, align 8
  %code = call i32 @code_of(ptr %descr)
  %known = icmp sge i32 %code, 0
  %fits = and i1 %plain, %known
  br i1 %fits, label %make, label %refuse
make:
  %data.at = getelementptr i8, ptr %object, i64 $PyArrayObject.data
  %data = load ptr, ptr %data.at, align 8
  %rank.at = getelementptr i8, ptr %object, i64 $PyArrayObject.nd
  %rank = load i32, ptr %rank.at, align 4
  %dims.at = getelementptr i8, ptr %object, i64 $PyArrayObject.dimensions
  %dims = load ptr, ptr %dims.at, align 8
  ; Contiguous, and read-only unless writeable.
  %writeable = and i32 %flags, 1024
  %fixed = icmp eq i32 %writeable, 0
  %our.flags = select i1 %fixed, i32 3, i32 1
  call void @Py_IncRef(ptr %object)
  %tensor = call ptr @tessera_tensor_make(ptr %data, i32 %code, i32 %rank, ptr %dims, ptr null, ptr %object, i32 2, i32 %our.flags)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %wrap
wrap:
  %result = call ptr @tensor_object(ptr %tensor)
  ret ptr %result
fail:
  call void @Py_DecRef(ptr %object)
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
refuse:
  %no = call ptr @not_implemented()
  ret ptr %no
}

; PyArrayInterface: two 0, rank 4, kind 8, item bytes 12, flags 16, shape 24, strides 32, data 40, descriptor 48.
define internal void @array_struct_destroy(ptr %capsule) #0 {
  %struct = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  call void @free(ptr %struct)
  ret void
}

; NumPy's letter for a DLPack type code; types NumPy does not know are shown as plain bits.
define internal i8 @kind_of(i32 %dlpack) #0 {
entry:
  %code = and i32 %dlpack, 255
  switch i32 %code, label %bits [ i32 0, label %int
                                  i32 2, label %float
                                  i32 6, label %bool ]
int:
  ret i8 105
float:
  ret i8 102
bool:
  ret i8 98
bits:
  ret i8 117
}

; What `__array_struct__` of a handle is. Shape and strides are those of the record: NumPy copies them at once.
define ptr @tessera_array_struct(ptr %self, ptr %handle) #0 {
entry:
  %tensor = call ptr @PyCapsule_GetPointer(ptr %handle, ptr @handle_name)
  %none = icmp eq ptr %tensor, null
  br i1 %none, label %fail, label %room
room:
  %struct = call ptr @malloc(i64 56)
  %full = icmp eq ptr %struct, null
  br i1 %full, label %no_memory, label %fill
fill:
  %rank.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %rank = load i32, ptr %rank.at, align 4
  %dtype.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  %dtype = load i32, ptr %dtype.at, align 4
  %word.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 5, i32 %dtype
  %word = load i32, ptr %word.at, align 4
  %kind = call i8 @kind_of(i32 %word)
  %item.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 6, i32 %dtype
  %item = load i64, ptr %item.at, align 8
  %item.narrow = trunc i64 %item to i32
  ; Ours: 1 contiguous, 2 read-only. NumPy's: 1 contiguous, 0x100 aligned, 0x200 native order, 0x400 writeable.
  %flags.at = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  %flags = load i32, ptr %flags.at, align 4
  %contiguous = and i32 %flags, 1
  %fixed = and i32 %flags, 2
  %is_fixed = icmp ne i32 %fixed, 0
  %base = select i1 %is_fixed, i32 768, i32 1792
  %array.flags = or i32 %base, %contiguous
  %wide = zext i32 %rank to i64
  %dims = getelementptr i8, ptr %tensor, i64 40
  %strides = getelementptr i64, ptr %dims, i64 %wide
  %data = load ptr, ptr %tensor, align 8
  store i32 2, ptr %struct, align 4
  %to.rank = getelementptr i8, ptr %struct, i64 4
  store i32 %rank, ptr %to.rank, align 4
  %to.kind = getelementptr i8, ptr %struct, i64 8
  store i8 %kind, ptr %to.kind, align 1
  %to.item = getelementptr i8, ptr %struct, i64 12
  store i32 %item.narrow, ptr %to.item, align 4
  %to.flags = getelementptr i8, ptr %struct, i64 16
  store i32 %array.flags, ptr %to.flags, align 4
  %to.shape = getelementptr i8, ptr %struct, i64 24
  store ptr %dims, ptr %to.shape, align 8
  %to.strides = getelementptr i8, ptr %struct, i64 32
  store ptr %strides, ptr %to.strides, align 8
  %to.data = getelementptr i8, ptr %struct, i64 40
  store ptr %data, ptr %to.data, align 8
  %to.descr = getelementptr i8, ptr %struct, i64 48
  store ptr null, ptr %to.descr, align 8
  %capsule = call ptr @PyCapsule_New(ptr %struct, ptr null, ptr @array_struct_destroy)
  %failed = icmp eq ptr %capsule, null
  br i1 %failed, label %undo, label %done
done:
  ret ptr %capsule
undo:
  call void @free(ptr %struct)
  ret ptr null
no_memory:
  %error = call ptr @PyErr_NoMemory()
  ret ptr null
fail:
  ret ptr null
}
