;; Fills its memory before `configure`, with what does not compress: as many pages as the data say, from a seed that
;; others may replace, so that no two snapshots are the same.
(memory (export "memory") 1)
(data (i32.const 512) "pages and a seed" "\c0\00\00\00\00\00\00\00" "\01\00\00\00\00\00\00\00")
(func $ready
  (local $at i32)
  (local $end i32)
  (local $random i64)
  (if (i32.or (global.get $configured) (i32.gt_u (memory.size) (i32.const 1)))
    (then (return)))
  (if (i32.lt_s (memory.grow (i32.load (i32.const 528))) (i32.const 0))
    (then (return)))
  (local.set $random (i64.load (i32.const 536)))
  (local.set $at (i32.const 65536))
  (local.set $end (i32.shl (memory.size) (i32.const 16)))
  (loop $more
    (local.set $random (i64.xor (local.get $random) (i64.shl (local.get $random) (i64.const 13))))
    (local.set $random (i64.xor (local.get $random) (i64.shr_u (local.get $random) (i64.const 7))))
    (local.set $random (i64.xor (local.get $random) (i64.shl (local.get $random) (i64.const 17))))
    (i64.store (local.get $at) (local.get $random))
    (local.set $at (i32.add (local.get $at) (i32.const 8)))
    (br_if $more (i32.lt_u (local.get $at) (local.get $end)))))
(func $attack)
