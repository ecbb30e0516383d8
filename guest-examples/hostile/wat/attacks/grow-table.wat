;; Tables live outside the memory, so they have a limit of their own.
(memory (export "memory") 1)
(table $table 0 funcref)
(func $ready)
(func $attack
  (loop $more
    (drop (table.grow $table (ref.null func) (i32.const 1000)))
    (br $more)))
