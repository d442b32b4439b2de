; NumPy arrays taken in: a builtin of one argument that makes a tensor of an array, sharing its memory.
; PyArrayObject: data 16, rank 24, dims 32, strides 40, descriptor 56, flags 64; C-contiguous is 0x1, aligned 0x100,
; writeable 0x400.

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
  %type.at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.at, align 8
  %array.type.at = getelementptr %Environment, ptr @tessera_environment, i32 0, i32 2
  %array.type = load ptr, ptr %array.type.at, align 8
  %is_array = icmp eq ptr %type, %array.type
  br i1 %is_array, label %array, label %refuse
array:
  %flags.at = getelementptr i8, ptr %object, i64 64
  %flags = load i32, ptr %flags.at, align 4
  %plain.bits = and i32 %flags, 257
  %plain = icmp eq i32 %plain.bits, 257
  %descr.at = getelementptr i8, ptr %object, i64 56
  %descr = load ptr, ptr %descr.at, align 8
  %code = call i32 @code_of(ptr %descr)
  %known = icmp sge i32 %code, 0
  %fits = and i1 %plain, %known
  br i1 %fits, label %make, label %refuse
make:
  %data.at = getelementptr i8, ptr %object, i64 16
  %data = load ptr, ptr %data.at, align 8
  %rank.at = getelementptr i8, ptr %object, i64 24
  %rank = load i32, ptr %rank.at, align 4
  %dims.at = getelementptr i8, ptr %object, i64 32
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
