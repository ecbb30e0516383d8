;; Spins in what a component may do once the host has its result.
(memory (export "memory") 1)
(func $ready)
(func $attack)
(func (export "cabi_post_gpux:pipeline/step@0.1.1#process") (param i32)
  (loop $more (br $more)))
