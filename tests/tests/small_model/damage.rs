//! The bytes of a file and draws -> the bytes with one kind of damage.

/// splitmix64 (Steele, Lea, Flood 2014): enough to choose where to damage a file.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

const EXTREME_LENGTHS: [u64; 10] = [
    0,
    1,
    7,
    8,
    1 << 16,
    99_999_999,
    100_000_001,
    1 << 32,
    1 << 63,
    u64::MAX,
];

const EXTREME_NUMBERS: [&str; 9] = [
    "0",
    "1",
    "-1",
    "1e3",
    "2.5",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999",
];

/// `bytes` with one kind of damage.
pub fn damaged(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let (from, to) = (dice.below(bytes.len()), dice.below(bytes.len()));
    match dice.below(6) {
        0 => {
            for _ in 0..=dice.below(4) {
                let at = dice.below(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
        }
        1 => bytes.truncate(from),
        2 => {
            let piece = bytes[from.min(to)..from.max(to)].to_vec();
            let at = dice.below(bytes.len());
            bytes.splice(at..at, piece);
        }
        3 => drop(bytes.drain(from.min(to)..from.max(to))),
        4 if bytes.len() >= 8 => {
            let length = match dice.below(3) {
                0 => (bytes.len() as u64).wrapping_sub(dice.below(17) as u64),
                _ => EXTREME_LENGTHS[dice.below(EXTREME_LENGTHS.len())],
            };
            bytes[..8].copy_from_slice(&length.to_le_bytes());
        }
        _ => replace_number(&mut bytes, dice),
    }
    bytes
}

/// Replaces a number in the JSON by an extreme one and keeps the length field valid, so that the
/// check of the numbers detects it.
fn replace_number(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let starts: Vec<usize> = (9..bytes.len())
        .filter(|&at| digit(&bytes[at]) && matches!(bytes[at - 1], b'[' | b',' | b' ' | b':'))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[dice.below(starts.len())];
    let end = start + bytes[start..].iter().take_while(|byte| digit(byte)).count();
    let number = EXTREME_NUMBERS[dice.below(EXTREME_NUMBERS.len())].as_bytes();
    let grown = number.len() as u64;
    let shrunk = (end - start) as u64;
    bytes.splice(start..end, number.iter().copied());
    if bytes[0] != b'{' {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        bytes[..8].copy_from_slice(&(length + grown - shrunk).to_le_bytes());
    }
}
