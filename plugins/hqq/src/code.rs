//! A weight and its group's numbers -> its code.

/// Adding it rounds a number below 2^22 to a whole one, half to even, as torch does.
const ROUNDING: f32 = 12_582_912.0; // 1.5 * 2^23

/// The sum of a code and `ROUNDING`. `top` is the largest code.
#[inline(always)]
fn shifted(w: f32, scale: f32, zero: f32, top: f32) -> f32 {
    let x = w * scale + zero;
    let x = if x < 0.0 { 0.0 } else { x };
    let x = if x > top { top } else { x };
    x + ROUNDING
}

/// The code as a number, rounded half to even and within `0..=top`.
#[inline(always)]
pub fn code(w: f32, scale: f32, zero: f32, top: f32) -> f32 {
    shifted(w, scale, zero, top) - ROUNDING
}

/// The code as bits.
#[inline(always)]
pub fn code_bits(w: f32, scale: f32, zero: f32, top: f32) -> u32 {
    shifted(w, scale, zero, top).to_bits() & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_half_to_even_within_their_bounds() {
        for (x, expected) in [
            (-7.0, 0.0),
            (0.5, 0.0),
            (1.5, 2.0),
            (2.5, 2.0),
            (2.500_001, 3.0),
            (254.5, 254.0),
            (254.6, 255.0),
            (1e30, 255.0),
        ] {
            assert_eq!(code(x, 1.0, 0.0, 255.0), expected, "{x}");
            assert_eq!(code_bits(x, 1.0, 0.0, 255.0), expected as u32, "{x}");
        }
        assert_eq!(code(0.4, 2.0, 3.0, 3.0), 3.0);
    }
}
