//! A buffer between two guard regions, 64-byte aligned as the host passes it to a component.

/// Bytes of each guard region.
const MARGIN: usize = 256;
/// Alignment of the first byte.
const ALIGNMENT: usize = 64;

/// A buffer between two guard regions.
pub struct Guarded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    /// `len` bytes that hold `fill`.
    pub fn new(len: usize, fill: u8) -> Self {
        let mut memory: Vec<u8> = (0..len + 2 * MARGIN + ALIGNMENT).map(canary).collect();
        let start = MARGIN + memory[MARGIN..].as_ptr().align_offset(ALIGNMENT);
        memory[start..start + len].fill(fill);
        Guarded { memory, start, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    /// Where a guard byte was overwritten: its distance in bytes to the nearest byte of the buffer,
    /// negative before it.
    pub fn overrun(&self) -> Option<i64> {
        let end = self.start + self.len;
        let mut outside = (end..self.memory.len()).chain((0..self.start).rev());
        let at = outside.find(|&at| self.memory[at] != canary(at))?;
        Some(if at < self.start {
            at as i64 - self.start as i64
        } else {
            (at - end) as i64 + 1
        })
    }
}

/// A pattern that differs from zeros and from any repeated byte.
fn canary(at: usize) -> u8 {
    (at as u8).wrapping_mul(167) ^ 0xc5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_beyond_either_end_is_noticed() {
        let guarded = || Guarded::new(10, 0);
        assert_eq!(guarded().overrun(), None);
        assert_eq!(guarded().bytes().as_ptr().align_offset(ALIGNMENT), 0);
        for (offset, expected) in [(10, 1), (12, 3), (-1, -1)] {
            let mut written = guarded();
            let at = (written.start as i64 + offset) as usize;
            written.memory[at] ^= 1;
            assert_eq!(written.overrun(), Some(expected));
        }
    }
}
