;; One instruction that writes megabytes, again and again: no tick can interrupt it.
(memory (export "memory") 192)
(func $ready)
(func $attack
  (loop $more
    (memory.fill (i32.const 8192) (i32.const 1) (i32.const 12500000))
    (br $more)))
