;; An honest step by hand, in the canonical ABI: it takes nothing that matters and gives the text
;; "served". An attack supplies what is not here: the memory and $attack, which `process` calls
;; first, and, where it wants its own, $ready, which `cabi_realloc` calls.

;; describe: record { summary, options-schema }
(data (i32.const 64) "\80\00\00\00\09\00\00\00" "\90\00\00\00\02\00\00\00")
(data (i32.const 128) "an attack")
(data (i32.const 144) "{}")

;; configure: ok { inputs: [], outputs: [{ "out", any, not optional, "" }] }
(data (i32.const 192) "\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\01\00\00\01\00\00\00")
(data (i32.const 256) "\30\01\00\00\03\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00" "\00\00\00\00" "\00\00\00\00\00\00\00\00")
(data (i32.const 304) "out")

;; process: ok [{ "out", text "served" }]
(data (i32.const 320) "\00\00\00\00" "\60\01\00\00\01\00\00\00")
(data (i32.const 352) "\30\01\00\00\03\00\00\00" "\01\00\00\00" "\80\01\00\00\06\00\00\00")
(data (i32.const 384) "served")

;; What lies behind is given out and never taken back.
(global $top (mut i32) (i32.const 4096))
;; Whether `configure` is over.
(global $configured (mut i32) (i32.const 0))

(func (export "gpux:pipeline/step@0.1.1#describe") (result i32)
  (i32.const 64))

(func (export "gpux:pipeline/step@0.1.1#configure") (param i32 i32) (result i32)
  (global.set $configured (i32.const 1))
  (i32.const 192))

(func (export "gpux:pipeline/step@0.1.1#process") (param i32 i32) (result i32)
  (call $attack)
  (i32.const 320))

;; (old, old size, alignment, new size) → where
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (local $at i32)
  (call $ready)
  (local.set $at
    (i32.and
      (i32.add (global.get $top) (i32.sub (local.get 2) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get 2))))
  (global.set $top (i32.add (local.get $at) (local.get 3)))
  (local.get $at))
