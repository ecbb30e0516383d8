;; A variant that has no such case.
(memory (export "memory") 1)
(func $ready)
(func $attack (i32.store8 (i32.const 360) (i32.const 9)))
