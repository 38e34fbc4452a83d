//! A product as cuBLASLt sees it.
//!
//! Ours is `c[i, j] = sum_k a[i, k] b[j, k]`, with the rows of c one behind the other. cuBLASLt's
//! matrices have columns one behind the other, so that the same memory is the transpose of c, and
//! `c^T = b a^T`: its first matrix is our b `[columns, depth]`, its second our a^T `[depth, rows]`.

use espalier_interface::DType;

use crate::direction::Direction;

/// Bytes that addresses are multiples of, as those of every range and workspace are.
pub const ALIGNMENT: u64 = 64;

/// Bytes that neighbouring rows are apart, or a multiple, so that all begin at whole vectors.
const ROW_ALIGNMENT: usize = 16;

/// A product of bf16 with sums in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Rows, columns, depth.
    pub extents: [usize; 3],
    /// Where the elements of a and b lie.
    pub directions: [Direction; 2],
    /// Elements from one row of memory to the next in a and b.
    pub strides: [usize; 2],
    /// The dtype of the result: bf16 or f32.
    pub result: DType,
    /// Whether a bias of the result's dtype is added.
    pub has_bias: bool,
}

/// A matrix of cuBLASLt's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Our b.
    First,
    /// Our a.
    Second,
}

impl Side {
    /// Both, in cuBLASLt's order.
    pub const BOTH: [Side; 2] = [Side::First, Side::Second];

    /// Its index among our matrices a and b, and among our rows and columns.
    fn index(self) -> usize {
        match self {
            Side::First => 1,
            Side::Second => 0,
        }
    }
}

impl Problem {
    /// Whether there is anything to sum, and all rows begin at multiples of 16 bytes.
    pub fn is_regular(&self) -> bool {
        let bytes = DType::BF16.bytes() as usize;
        let result = self.extents[1] * self.result.bytes() as usize;
        let rows = self.strides.map(|stride| stride * bytes);
        let is_aligned = |row: &usize| row.is_multiple_of(ROW_ALIGNMENT);
        !self.extents.contains(&0) && rows.iter().chain([&result]).all(is_aligned)
    }

    /// Whether a side is the transpose of what lies in memory, column behind column. The first is
    /// `[columns, depth]` and the second `[depth, rows]`.
    pub fn is_transposed(&self, side: Side) -> bool {
        let is_deep = self.directions[side.index()] == Direction::Deep;
        is_deep == (side == Side::First)
    }

    /// Rows and columns of what lies in memory, column behind column, and the elements from one
    /// column to the next.
    pub fn layout(&self, side: Side) -> ([usize; 2], usize) {
        let index = side.index();
        let (width, depth) = (self.extents[index], self.extents[2]);
        let size = match self.directions[index] {
            Direction::Deep => [depth, width],
            Direction::Wide => [width, depth],
        };
        (size, self.strides[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBLEM: Problem = Problem {
        extents: [3, 16, 40],
        directions: [Direction::Deep; 2],
        strides: [40, 48],
        result: DType::BF16,
        has_bias: false,
    };

    #[test]
    fn a_linear_is_the_transposed_weight_times_tokens_as_they_are() {
        assert!(PROBLEM.is_transposed(Side::First));
        assert!(!PROBLEM.is_transposed(Side::Second));
        assert_eq!(PROBLEM.layout(Side::First), ([40, 16], 48));
        assert_eq!(PROBLEM.layout(Side::Second), ([40, 3], 40));
    }

    #[test]
    fn a_weight_gradient_is_tokens_times_transposed_gradients() {
        let problem = Problem {
            extents: [24, 16, 5],
            directions: [Direction::Wide; 2],
            strides: [24, 16],
            ..PROBLEM
        };
        assert!(!problem.is_transposed(Side::First));
        assert!(problem.is_transposed(Side::Second));
        assert_eq!(problem.layout(Side::First), ([16, 5], 16));
        assert_eq!(problem.layout(Side::Second), ([24, 5], 24));
    }

    #[test]
    fn rows_must_begin_at_whole_vectors() {
        assert!(PROBLEM.is_regular());
        let with = |extents, strides, result| Problem {
            extents,
            strides,
            result,
            ..PROBLEM
        };
        assert!(!with([3, 16, 40], [40, 44], DType::BF16).is_regular());
        assert!(!with([3, 12, 40], [40, 48], DType::BF16).is_regular());
        assert!(with([3, 12, 40], [40, 48], DType::F32).is_regular());
        assert!(!with([0, 16, 40], [40, 48], DType::BF16).is_regular());
    }
}
