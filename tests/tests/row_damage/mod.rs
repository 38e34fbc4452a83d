//! Rows and draws -> the rows changed at random places.

/// Numbers below a bound, the same in every run.
pub fn draws() -> impl FnMut(usize) -> usize {
    let mut state = 1u64;
    move |below| {
        // Knuth's MMIX generator; its high bits are sufficient here.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// `sound` with a few changes.
pub fn damaged(sound: &str, random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut bytes = sound.as_bytes().to_vec();
    for _ in 0..=random(3) {
        let at = random(bytes.len());
        match random(4) {
            0 => bytes[at] ^= 1 << random(8),
            1 => bytes[at] = b"[]{},:\"\\0-9e\n "[random(14)],
            2 => bytes.truncate(at.max(1)),
            _ => drop(bytes.drain(at..(at + random(9)).min(bytes.len().max(at + 1)))),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}
