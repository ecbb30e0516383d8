;; Spins where the host only wants room for the input.
(memory (export "memory") 1)
(func $ready (if (global.get $configured) (then (loop $more (br $more)))))
(func $attack)
