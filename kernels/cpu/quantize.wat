;; Weights in 8 or 4 bits for `core/quant/codes.ts`, which says what codes mean.
;;
;; `deno task wasm` makes quantize.wasm of this text; a test compares them. Quantizing a large model with
;; these instructions for several values at once takes less than half the time of the same loops in
;; JavaScript, with the same codes: products are f64 there as here.
(module
  (memory (export "memory") 1)

  ;; Casts $count elements, a multiple of 8, from bf16 at $from to f32 at $to.
  (func (export "toF32") (param $from i32) (param $to i32) (param $count i32)
    (local $end i32) (local $eight v128)
    (local.set $end (i32.add (local.get $from) (i32.shl (local.get $count) (i32.const 1))))
    (loop $next
      (local.set $eight (v128.load (local.get $from)))
      (v128.store (local.get $to)
        (i32x4.shl (i32x4.extend_low_i16x8_u (local.get $eight)) (i32.const 16)))
      (v128.store offset=16 (local.get $to)
        (i32x4.shl (i32x4.extend_high_i16x8_u (local.get $eight)) (i32.const 16)))
      (local.set $from (i32.add (local.get $from) (i32.const 16)))
      (local.set $to (i32.add (local.get $to) (i32.const 32)))
      (br_if $next (i32.lt_u (local.get $from) (local.get $end)))))

  ;; Quantizes the f32 values from $values to $end in blocks of $block, a multiple of 8.
  ;;
  ;; The scale maps the element of largest magnitude to code 0, the only one that lies z steps from the
  ;; middle: codes run from -z to z - 1, so the sign of that element chooses the direction.
  (func (export "quantizeBlocks")
    (param $values i32) (param $end i32) (param $block i32) (param $bits i32)
    (param $codes i32) (param $scales i32)
    (local $at i32) (local $blockEnd i32) (local $found i32)
    (local $z f32) (local $scale f32)
    (local $magnitude v128) (local $largest v128)
    (local $inverse v128) (local $shift v128) (local $most v128) (local $eight v128)

    ;; Adding z and a half makes truncation round to nearest; 2z, one too many, becomes $most.
    (local.set $z (f32.convert_i32_s (i32.shl (i32.const 1)
      (i32.sub (local.get $bits) (i32.const 1)))))
    (local.set $shift (f64x2.splat (f64.add (f64.promote_f32 (local.get $z)) (f64.const 0.5))))
    (local.set $most (i16x8.splat (i32.sub (i32.shl (i32.const 1) (local.get $bits))
      (i32.const 1))))
    ;; Without the sign, bits order like the magnitudes that they stand for.
    (local.set $magnitude (i32x4.splat (i32.const 0x7fffffff)))

    (loop $blocks
      (local.set $blockEnd (i32.add (local.get $values)
        (i32.shl (local.get $block) (i32.const 2))))

      ;; The largest magnitude, in all four lanes.
      (local.set $largest (v128.const i32x4 0 0 0 0))
      (local.set $at (local.get $values))
      (loop $next
        (local.set $largest (i32x4.max_s (local.get $largest)
          (v128.and (local.get $magnitude) (v128.load (local.get $at)))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br_if $next (i32.lt_u (local.get $at) (local.get $blockEnd))))
      (local.set $largest (i32x4.max_s (local.get $largest)
        (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7
          (local.get $largest) (local.get $largest))))
      (local.set $largest (i32x4.max_s (local.get $largest)
        (i8x16.shuffle 4 5 6 7 0 1 2 3 12 13 14 15 8 9 10 11
          (local.get $largest) (local.get $largest))))

      ;; The first element that has it, and the scale.
      (local.set $at (i32.sub (local.get $values) (i32.const 16)))
      (loop $next
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (local.set $found (i32x4.bitmask (i32x4.eq (local.get $largest)
          (v128.and (local.get $magnitude) (v128.load (local.get $at))))))
        (br_if $next (i32.eqz (local.get $found))))
      (local.set $scale (f32.div
        (f32.load (i32.add (local.get $at)
          (i32.shl (i32.ctz (local.get $found)) (i32.const 2))))
        (f32.neg (local.get $z))))
      (f32.store (local.get $scales) (local.get $scale))
      (local.set $scales (i32.add (local.get $scales) (i32.const 4)))
      (local.set $inverse (f64x2.splat (select
        (f64.const 0)
        (f64.div (f64.const 1) (f64.promote_f32 (local.get $scale)))
        (f32.eq (local.get $scale) (f32.const 0)))))

      ;; Eight codes at a time: a byte each, or two to a byte, low half first.
      (local.set $at (local.get $values))
      (loop $next
        (local.set $eight (i16x8.narrow_i32x4_s
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23
            (i32x4.relaxed_trunc_f64x2_s_zero (f64x2.add (local.get $shift) (f64x2.mul (local.get $inverse)
              (f64x2.promote_low_f32x4 (v128.load64_zero (local.get $at))))))
            (i32x4.relaxed_trunc_f64x2_s_zero (f64x2.add (local.get $shift) (f64x2.mul (local.get $inverse)
              (f64x2.promote_low_f32x4 (v128.load64_zero offset=8 (local.get $at)))))))
          (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23
            (i32x4.relaxed_trunc_f64x2_s_zero (f64x2.add (local.get $shift) (f64x2.mul (local.get $inverse)
              (f64x2.promote_low_f32x4 (v128.load64_zero offset=16 (local.get $at))))))
            (i32x4.relaxed_trunc_f64x2_s_zero (f64x2.add (local.get $shift) (f64x2.mul (local.get $inverse)
              (f64x2.promote_low_f32x4 (v128.load64_zero offset=24 (local.get $at)))))))))
        ;; A scale near the smallest number is inexact, so that codes may also be below 0.
        (local.set $eight (i16x8.max_s (v128.const i64x2 0 0)
          (i16x8.min_s (local.get $most) (local.get $eight))))
        (if (i32.eq (local.get $bits) (i32.const 8))
          (then
            (v128.store64_lane 0 (local.get $codes)
              (i8x16.narrow_i16x8_u (local.get $eight) (local.get $eight))))
          (else
            (local.set $eight (v128.or (local.get $eight)
              (i32x4.shr_u (local.get $eight) (i32.const 12))))
            (v128.store32_lane 0 (local.get $codes)
              (i8x16.shuffle 0 4 8 12 0 0 0 0 0 0 0 0 0 0 0 0
                (local.get $eight) (local.get $eight)))))
        (local.set $codes (i32.add (local.get $codes) (local.get $bits)))
        (local.set $at (i32.add (local.get $at) (i32.const 32)))
        (br_if $next (i32.lt_u (local.get $at) (local.get $blockEnd))))

      (local.set $values (local.get $blockEnd))
      (br_if $blocks (i32.lt_u (local.get $values) (local.get $end)))))

  ;; The f16 at an address. It has the bits of an f32 whose exponent is 112 less; infinities and NaN have all
  ;; its bits.
  (func $f16 (param $at i32) (result f32) (local $half i32)
    (local.set $half (i32.load16_u (local.get $at)))
    (f32.copysign
      (select
        (f32.reinterpret_i32 (i32.or (i32.const 0x7f800000)
          (i32.shl (local.get $half) (i32.const 13))))
        (f32.mul (f32.const 0x1p112) (f32.reinterpret_i32
          (i32.shl (i32.and (local.get $half) (i32.const 0x7fff)) (i32.const 13))))
        (i32.eq (i32.const 0x7c00) (i32.and (local.get $half) (i32.const 0x7c00))))
      (f32.reinterpret_i32 (i32.shl (local.get $half) (i32.const 16)))))

  ;; 32 codes of 4 bits, a byte each: the second of each pair of neighbours moves to the high half of the first.
  (func $pairs (param $first v128) (param $second v128) (result v128)
    (i8x16.narrow_i16x8_u
      (v128.and (i16x8.splat (i32.const 255)) (v128.or (local.get $first)
        (i16x8.shr_u (local.get $first) (i32.const 4))))
      (v128.and (i16x8.splat (i32.const 255)) (v128.or (local.get $second)
        (i16x8.shr_u (local.get $second) (i32.const 4))))))

  ;; Bit i mod 8 of byte i as 16, and 112 more, by which codes around 16 become codes around 128.
  (func $fifthBits (param $bytes v128) (result v128)
    (i8x16.add (i8x16.splat (i32.const 112)) (v128.and (i8x16.splat (i32.const 16))
      (i8x16.ne (v128.const i8x16 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0) (v128.and (local.get $bytes)
        (v128.const i8x16 1 2 4 8 16 32 64 0x80 1 2 4 8 16 32 64 0x80))))))

  ;; Repacks Q8_0, Q5_0 or Q4_0 blocks of a GGUF file, 32 elements each, from $from to $end: a scale in f16,
  ;; and signed codes of 8 bits or unsigned ones of 4, of which the low halves are elements 0 to 15; those of
  ;; 5 bits, which become 8, have their highest bits in a word before.
  (func (export "repackBlocks")
    (param $from i32) (param $end i32) (param $bits i32) (param $codes i32) (param $scales i32)
    (local $low v128) (local $high v128) (local $fifth v128)
    (loop $next
      (f32.store (local.get $scales) (call $f16 (local.get $from)))
      (local.set $scales (i32.add (local.get $scales) (i32.const 4)))

      (local.set $low (v128.load offset=2 (local.get $from)))
      (if (i32.eq (local.get $bits) (i32.const 8))
        (then
          (v128.store (local.get $codes)
            (v128.xor (local.get $low) (v128.const i8x16
              0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80)))
          (v128.store offset=16 (local.get $codes)
            (v128.xor (v128.load offset=18 (local.get $from)) (v128.const i8x16
              0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80 0x80)))
          (local.set $codes (i32.add (local.get $codes) (i32.const 32)))
          (local.set $from (i32.add (local.get $from) (i32.const 34)))
          (br_if $next (i32.lt_u (local.get $from) (local.get $end)))
          (return)))
      (if (i32.eq (local.get $bits) (i32.const 5))
        (then
          (local.set $low (v128.load offset=6 (local.get $from)))
          (local.set $high (i8x16.shr_u (local.get $low) (i32.const 4)))
          (local.set $low (v128.and (local.get $low) (i8x16.splat (i32.const 15))))
          (local.set $fifth (v128.load32_zero offset=2 (local.get $from)))
          (v128.store (local.get $codes) (i8x16.add (local.get $low) (call $fifthBits
            (i8x16.shuffle 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 (local.get $fifth) (local.get $fifth)))))
          (v128.store offset=16 (local.get $codes) (i8x16.add (local.get $high) (call $fifthBits
            (i8x16.shuffle 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 (local.get $fifth) (local.get $fifth)))))
          (local.set $codes (i32.add (local.get $codes) (i32.const 32)))
          (local.set $from (i32.add (local.get $from) (i32.const 22))))
        (else
          (local.set $high (i8x16.shr_u (local.get $low) (i32.const 4)))
          (local.set $low (v128.and (local.get $low) (i8x16.splat (i32.const 15))))
          (v128.store (local.get $codes) (call $pairs (local.get $low) (local.get $high)))
          (local.set $codes (i32.add (local.get $codes) (i32.const 16)))
          (local.set $from (i32.add (local.get $from) (i32.const 18)))))
      (br_if $next (i32.lt_u (local.get $from) (local.get $end)))))

  ;; Repacks Q6_K blocks of 256 elements: low halves of codes, their two high bits, 16 scales of 8 bits, and what
  ;; scales them. Codes become 8 bits around 128.
  (func (export "repackQ6K") (param $from i32) (param $end i32) (param $codes i32) (param $scales i32)
    (local $group i32) (local $quarter i32) (local $half i32) (local $d f32)
    (loop $next
      (local.set $d (call $f16 (i32.add (local.get $from) (i32.const 208))))
      (local.set $group (i32.const 0))
      (loop $groups
        (f32.store (local.get $scales) (f32.mul (local.get $d) (f32.convert_i32_s
          (i32.load8_s offset=192 (i32.add (local.get $from) (local.get $group))))))
        (local.set $half (i32.shr_u (local.get $group) (i32.const 3)))
        (local.set $quarter (i32.and (i32.shr_u (local.get $group) (i32.const 1)) (i32.const 3)))
        (v128.store (local.get $codes) (i8x16.add (i8x16.splat (i32.const 96)) (v128.or
          (v128.and (i8x16.splat (i32.const 15)) (i8x16.shr_u
            (v128.load (i32.add (local.get $from) (i32.add
              (i32.shl (local.get $half) (i32.const 6))
              (i32.shl (i32.and (local.get $group) (i32.const 3)) (i32.const 4)))))
            (i32.shl (i32.shr_u (local.get $quarter) (i32.const 1)) (i32.const 2))))
          (i8x16.shl (v128.and (i8x16.splat (i32.const 3)) (i8x16.shr_u
            (v128.load offset=128 (i32.add (local.get $from) (i32.add
              (i32.shl (local.get $half) (i32.const 5))
              (i32.shl (i32.and (local.get $group) (i32.const 1)) (i32.const 4)))))
            (i32.shl (local.get $quarter) (i32.const 1)))) (i32.const 4)))))
        (local.set $codes (i32.add (local.get $codes) (i32.const 16)))
        (local.set $scales (i32.add (local.get $scales) (i32.const 4)))
        (local.set $group (i32.add (local.get $group) (i32.const 1)))
        (br_if $groups (i32.lt_u (local.get $group) (i32.const 16))))
      (local.set $from (i32.add (local.get $from) (i32.const 210)))
      (br_if $next (i32.lt_u (local.get $from) (local.get $end)))))

  ;; Repacks Q4_K blocks of 256 elements: what scales the scales and minima, 8 of each in 6 bits, and codes, of which
  ;; two that share a byte are 32 elements apart. Zero becomes 8; offsets are rounded once.
  (func (export "repackQ4K")
    (param $from i32) (param $end i32) (param $codes i32) (param $scales i32) (param $offsets i32)
    (local $j i32) (local $at i32) (local $both i32) (local $scale i32) (local $min i32)
    (local $first v128) (local $second v128) (local $step f64) (local $four v128)
    (local.set $four (i8x16.splat (i32.const 15)))
    (loop $next
      (local.set $j (i32.const 0))
      (loop $groups
        (local.set $at (i32.add (local.get $from) (local.get $j)))
        (local.set $both (i32.load8_u offset=8 (local.get $at)))
        (if (i32.lt_u (local.get $j) (i32.const 4))
          (then
            (local.set $scale (i32.and (i32.load8_u offset=4 (local.get $at)) (i32.const 63)))
            (local.set $min (i32.and (local.get $both) (i32.const 63))))
          (else
            (local.set $scale (i32.or (i32.and (local.get $both) (i32.const 15)) (i32.shl
              (i32.shr_u (i32.load8_u (local.get $at)) (i32.const 6)) (i32.const 4))))
            (local.set $min (i32.or (i32.shr_u (local.get $both) (i32.const 4)) (i32.shl
              (i32.shr_u (i32.load8_u offset=4 (local.get $at)) (i32.const 6)) (i32.const 4))))))
        (local.set $step (f64.mul (f64.promote_f32 (call $f16 (local.get $from)))
          (f64.convert_i32_u (local.get $scale))))
        (f32.store (local.get $scales) (f32.demote_f64 (local.get $step)))
        (f32.store (local.get $offsets) (f32.demote_f64 (f64.sub
          (f64.mul (f64.const 8) (local.get $step))
          (f64.mul (f64.promote_f32 (call $f16 (i32.add (local.get $from) (i32.const 2))))
            (f64.convert_i32_u (local.get $min))))))
        (local.set $scales (i32.add (local.get $scales) (i32.const 4)))
        (local.set $offsets (i32.add (local.get $offsets) (i32.const 4)))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br_if $groups (i32.lt_u (local.get $j) (i32.const 8))))
      (local.set $at (i32.add (local.get $from) (i32.const 16)))
      (local.set $from (i32.add (local.get $from) (i32.const 144)))
      (loop $parts
        (local.set $first (v128.load (local.get $at)))
        (local.set $second (v128.load offset=16 (local.get $at)))
        (v128.store (local.get $codes) (call $pairs
          (v128.and (local.get $four) (local.get $first))
          (v128.and (local.get $four) (local.get $second))))
        (v128.store offset=16 (local.get $codes) (call $pairs
          (i8x16.shr_u (local.get $first) (i32.const 4))
          (i8x16.shr_u (local.get $second) (i32.const 4))))
        (local.set $codes (i32.add (local.get $codes) (i32.const 32)))
        (local.set $at (i32.add (local.get $at) (i32.const 32)))
        (br_if $parts (i32.lt_u (local.get $at) (local.get $from))))
      (br_if $next (i32.lt_u (local.get $from) (local.get $end))))))
