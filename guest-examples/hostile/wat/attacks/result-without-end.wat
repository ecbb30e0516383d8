;; A list of four thousand million values.
(memory (export "memory") 1)
(func $ready)
(func $attack (i32.store (i32.const 328) (i32.const -1)))
