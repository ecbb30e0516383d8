;; Memories that are small each and large together.
(memory (export "memory") 1)
(memory $second 1)
(memory $third 1)
(func $ready)
(func $attack
  (loop $more
    (drop (memory.grow $second (i32.const 16)))
    (drop (memory.grow $third (i32.const 16)))
    (br $more)))
