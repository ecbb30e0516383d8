;; More memories than a component may have; each reserves address space.
(memory (export "memory") 1)
(memory 1) (memory 1) (memory 1) (memory 1)
(func $ready)
(func $attack)
