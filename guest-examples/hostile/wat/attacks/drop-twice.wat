;; Drops a handle that it has dropped.
(import "gpux:pipeline/types@0.1.1" "[resource-drop]tensor" (func $drop (param i32)))
(import "gpux:pipeline/types@0.1.1" "[static]tensor.zeros" (func $zeros (param i32 i32 i32 i32)))
(memory (export "memory") 1)
(func $ready)
(func $attack
  (call $zeros (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 1024))
  (call $drop (i32.load (i32.const 1028)))
  (call $drop (i32.load (i32.const 1028))))
