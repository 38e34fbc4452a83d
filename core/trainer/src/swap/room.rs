//! Bytes that a swap adds beside the old ones, and the available memory -> where they are staged.

use espalier_interface::MemoryKind;
use espalier_system::memory::OutOfMemory;

use super::Staging;
use crate::Error;
use crate::bytes::Bytes;

/// Bytes that a swap needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// New frozen weights.
    pub frozen: u64,
    /// Old frozen weights that are freed when it takes over.
    pub freed: u64,
    /// Other new bytes: arena, workspace, and on another device the trained params.
    pub others: u64,
    /// While loading: one weight in f32 and the encoder's workspace.
    pub loading: u64,
}

impl Needs {
    /// Bytes needed in memory without a mapped file.
    pub fn beside(&self) -> u64 {
        self.frozen + self.others + self.loading
    }

    /// Where the new weights are staged, with `available` bytes free.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where even a mapped file needs too much memory, or the new weights do
    /// not fit in place of the old ones.
    pub fn place(&self, staging: Staging, kind: &str, available: u64) -> Result<MemoryKind, Error> {
        let short = |needed: u64| {
            Error::OutOfMemory(OutOfMemory {
                kind: kind.to_owned(),
                needed: Bytes(needed),
                available: Bytes(available),
            })
        };
        if staging == Staging::Auto && self.beside() <= available {
            return Ok(MemoryKind::DEVICE);
        }
        let meanwhile = self.others + self.loading;
        let afterwards = (self.frozen + self.others).saturating_sub(self.freed);
        match meanwhile.max(afterwards) {
            needed if needed > available => Err(short(needed)),
            _ => Ok(MemoryKind::MAPPED),
        }
    }
}

/// The kind of memory in words.
pub(super) fn shown(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::MAPPED => "mapped file",
        _ => "memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs {
        frozen: 100,
        freed: 90,
        others: 5,
        loading: 20,
    };

    fn placed(staging: Staging, available: u64) -> Option<MemoryKind> {
        NEEDS.place(staging, "host", available).ok()
    }

    #[test]
    fn memory_is_preferred_then_a_mapped_file_then_refusal() {
        assert_eq!(placed(Staging::Auto, 125), Some(MemoryKind::DEVICE));
        assert_eq!(placed(Staging::Auto, 124), Some(MemoryKind::MAPPED));
        assert_eq!(placed(Staging::Mapped, 1 << 20), Some(MemoryKind::MAPPED));
        assert_eq!(placed(Staging::Auto, 25), Some(MemoryKind::MAPPED));
        assert_eq!(placed(Staging::Auto, 24), None);
    }

    #[test]
    fn weights_too_large_for_the_final_place_are_refused_before_loading() {
        let grown = Needs { freed: 10, ..NEEDS };
        let error = grown
            .place(Staging::Auto, "host", 94)
            .expect_err("95 bytes");
        assert_eq!(error.exit_code(), 8);
        assert!(error.to_string().contains("95 B needed"), "{error}");
        assert!(grown.place(Staging::Auto, "host", 95).is_ok());
    }
}
