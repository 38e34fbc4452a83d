//! A tensor of whole numbers that follow from the shape: one number, or the group of each column.

use serde::{Deserialize, Serialize};

use crate::{DType, PluginError, Result};

/// A tensor of `I32` whose element `i` is `first + i / repeat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCounting {
    /// The first element.
    pub first: i32,
    /// Elements that have the same number; as many as the tensor has where all are `first`.
    pub repeat: u64,
}

impl SavedCounting {
    /// The dtype of the tensor.
    pub const DTYPE: DType = DType::I32;

    /// Checks that a tensor of `dtype` can hold the numbers.
    ///
    /// # Errors
    /// `INVALID`, with what is expected.
    pub fn validate(&self, dtype: DType) -> Result<()> {
        if dtype == Self::DTYPE && self.repeat > 0 {
            return Ok(());
        }
        Err(PluginError::invalid(format!(
            "of {dtype}, counting every {} elements, expected {} and at least 1",
            self.repeat,
            Self::DTYPE
        )))
    }

    /// Element `index`; wrapped where it is too large.
    pub fn element(&self, index: u64) -> i32 {
        self.first.wrapping_add((index / self.repeat.max(1)) as i32)
    }

    /// The bytes of elements `begin ..` of a tensor.
    pub fn write(&self, begin: u64, bytes: &mut [u8]) {
        for (index, element) in (begin..).zip(bytes.as_chunks_mut::<4>().0) {
            *element = self.element(index).to_le_bytes();
        }
    }

    /// The first of the elements `begin ..` that is another number, and what it is.
    pub fn other(&self, begin: u64, bytes: &[u8]) -> Option<(u64, i32)> {
        let elements = bytes.as_chunks::<4>().0.iter().copied();
        let elements = (begin..).zip(elements.map(i32::from_le_bytes));
        elements
            .into_iter()
            .find(|&(index, found)| found != self.element(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_columns_and_single_numbers_are_found_again() {
        let groups = SavedCounting {
            first: 0,
            repeat: 3,
        };
        let mut bytes = [0; 28];
        groups.write(0, &mut bytes);
        let elements: Vec<u8> = bytes.iter().copied().step_by(4).collect();
        assert_eq!(elements, [0, 0, 0, 1, 1, 1, 2]);
        assert_eq!(groups.other(0, &bytes), None);
        assert_eq!(groups.other(1, &bytes[4..]), None);
        bytes[16] = 7;
        assert_eq!(groups.other(2, &bytes[8..]), Some((4, 7)));
        groups.validate(DType::I32).expect("whole numbers");
        groups.validate(DType::F32).expect_err("no whole numbers");
        let one = SavedCounting {
            first: 0x7777_7777,
            repeat: u64::MAX,
        };
        assert_eq!(
            (one.element(0), one.element(1 << 40)),
            (one.first, one.first)
        );
    }
}
