;; Calls the host while the host is putting a value into its memory.
(import "gpux:pipeline/log@0.1.1" "log" (func $log (param i32 i32 i32)))
(memory (export "memory") 1)
(func $ready (call $log (i32.const 1) (i32.const 128) (i32.const 9)))
(func $attack)
