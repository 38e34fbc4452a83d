//! Bytes in parts -> one SHA-256, whose parts several threads hash.

use sha2::{Digest, Sha256};

use super::file_hash::hexadecimal;

/// Bytes of a part: a thread that reads one holds no more.
pub(super) const PART_BYTES: usize = 256 << 10;

/// The SHA-256 of each part of [`PART_BYTES`] bytes, the last one shorter. The hash of the whole is
/// that of these hashes, so it differs from the SHA-256 of the bytes.
#[derive(Debug)]
pub(super) struct TreeHash(Vec<[u8; 32]>);

impl TreeHash {
    /// That of parts whose hashes are `parts`, in order.
    pub fn of(parts: Vec<[u8; 32]>) -> Self {
        TreeHash(parts)
    }

    /// The hash of one part.
    pub fn part(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    /// The hash of the whole, 64 lower-case hexadecimal digits.
    pub fn whole(&self) -> String {
        let mut hasher = Sha256::new();
        self.0.iter().for_each(|part| hasher.update(part));
        hexadecimal(&hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_of_parts_decide() {
        let whole = |parts: &[&[u8]]| {
            let parts = parts.iter().map(|part| TreeHash::part(part));
            TreeHash::of(parts.collect()).whole()
        };
        let first = whole(&[b"a", b"b"]);
        assert_eq!(first, whole(&[b"a", b"b"]));
        assert_ne!(first, whole(&[b"b", b"a"]));
        assert_ne!(first, whole(&[b"ab"]));
        assert_ne!(first, whole(&[b"a"]));
    }
}
