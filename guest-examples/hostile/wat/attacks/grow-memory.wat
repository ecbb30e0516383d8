;; Takes memory a page at a time and writes to each.
(memory (export "memory") 1)
(func $ready)
(func $attack
  (local $page i32)
  (loop $more
    (local.set $page (memory.grow (i32.const 1)))
    (i32.store (i32.shl (local.get $page) (i32.const 16)) (i32.const 1))
    (br $more)))
