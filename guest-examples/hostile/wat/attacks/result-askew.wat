;; A result that is not where its type must lie.
(memory (export "memory") 1)
(func $ready)
(func $attack (i32.store (i32.const 324) (i32.const 353)))
