;; A handle that was never given, as a result.
(memory (export "memory") 1)
(func $ready)
(func $attack
  (i32.store8 (i32.const 360) (i32.const 0))
  (i32.store (i32.const 364) (i32.const 99)))
