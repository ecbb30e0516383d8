;; Exports under the very names that a snapshot would add.
(memory (export "memory") (export "__wizer_memory_0") 1)
(global (export "__wizer_global_0") (mut i32) (i32.const 7))
(func $ready)
(func $attack)
