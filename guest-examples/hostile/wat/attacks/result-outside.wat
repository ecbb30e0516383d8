;; A result that points behind the end of the memory.
(memory (export "memory") 1)
(func $ready)
(func $attack (i32.store (i32.const 324) (i32.const 0x7fffff00)))
