;; A memory that can never grow: nobody can add a page to it, the snapshot neither.
(memory (export "memory") 1 1)
(func $ready)
(func $attack)
