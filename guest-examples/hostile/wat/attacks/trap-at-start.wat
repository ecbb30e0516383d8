;; Traps before any function of the step is called.
(memory (export "memory") 1)
(func $start (unreachable))
(start $start)
(func $ready)
(func $attack)
