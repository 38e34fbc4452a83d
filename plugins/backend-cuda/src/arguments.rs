//! The arguments of a kernel, as the driver takes them: a pointer to each.
#![allow(unsafe_code)] // Bytes of plain structs.

use std::ffi::c_void;

use espalier_host_device::Place;

/// A plain value that a kernel takes.
///
/// # Safety
/// It has no padding that matters, and the kernel's parameter has its layout.
pub unsafe trait Argument: Copy {}

// SAFETY: plain numbers.
unsafe impl Argument for u64 {}
// SAFETY: as above.
unsafe impl Argument for i64 {}
// SAFETY: as above.
unsafe impl Argument for u32 {}
// SAFETY: as above.
unsafe impl Argument for i32 {}
// SAFETY: as above.
unsafe impl Argument for f32 {}
// SAFETY: as above.
unsafe impl Argument for f64 {}

/// Arguments, in the kernel's order.
#[derive(Default)]
pub struct Arguments {
    /// Their bytes, each argument from a whole word on.
    words: Vec<u64>,
    /// The first word of each.
    begins: Vec<usize>,
}

impl Arguments {
    /// No arguments yet.
    pub fn new() -> Self {
        Arguments {
            words: Vec::with_capacity(32),
            begins: Vec::with_capacity(16),
        }
    }

    /// These and `value`.
    pub fn with<A: Argument>(mut self, value: A) -> Self {
        let begin = self.words.len();
        self.begins.push(begin);
        let words = size_of::<A>().div_ceil(size_of::<u64>());
        self.words.resize(begin + words, 0);
        let at = self.words[begin..].as_mut_ptr().cast::<A>();
        // SAFETY: the words hold the value, and are aligned to 8 bytes, which no argument exceeds.
        unsafe { at.write_unaligned(value) };
        self
    }

    /// These and one argument of `words`.
    pub fn with_words(mut self, words: &[u64]) -> Self {
        self.begins.push(self.words.len());
        self.words.extend_from_slice(words);
        self
    }

    /// These and the address of `place`.
    pub fn at(self, place: Place) -> Self {
        self.with(address(place))
    }

    /// These and the address of `place`, or a null pointer.
    pub fn at_or_null(self, place: Option<Place>) -> Self {
        self.with(place.map_or(0, address))
    }

    /// A pointer to each.
    pub fn pointers(&self) -> Vec<*mut c_void> {
        let begins = self.begins.iter();
        begins
            .map(|&begin| self.words[begin..].as_ptr() as *mut c_void)
            .collect()
    }
}

/// The address of a place, as kernels take it.
pub fn address(place: Place) -> u64 {
    place.address.as_ptr() as u64
}
