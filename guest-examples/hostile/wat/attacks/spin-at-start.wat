;; Spins before any function of the step is called.
(memory (export "memory") 1)
(func $start (loop $more (br $more)))
(start $start)
(func $ready)
(func $attack)
