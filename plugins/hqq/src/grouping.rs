//! A weight's shape and options -> its groups: which elements share a scale and a zero.
//!
//! hqq views the flat weight as a matrix: groups are its rows (axis 1) or its columns (axis 0).

use std::ops::Range;

use espalier_interface::format::BlockMap;
use espalier_interface::{PluginError, Result};

/// How groups are arranged in the flat weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Axis 0: the elements of a group are `count` apart.
    Strided,
    /// Axis 1: the elements of a group follow one another.
    Consecutive,
}

/// The groups of a weight of `count * size` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// How groups are arranged.
    pub axis: Axis,
    /// Elements a group, a multiple of 8.
    pub size: usize,
    /// Number of groups.
    pub count: usize,
}

/// The numbers of every group, [count] f32 each.
#[derive(Clone, Copy)]
pub struct Affine<'a> {
    /// The factor of a weight: codes per unit of weight.
    pub scale: &'a [f32],
    /// The code of the value zero.
    pub zero: &'a [f32],
}

impl Grouping {
    /// The groups of a weight `[N, M]`.
    ///
    /// # Errors
    /// `INVALID` where `size` does not divide the number of elements, with the nearest sizes that
    /// do.
    pub fn of(axis: Axis, size: u64, shape: [u64; 2]) -> Result<Self> {
        let elements = shape[0].checked_mul(shape[1]).filter(|&n| n > 0);
        let Some(elements) = elements.filter(|&n| usize::try_from(n).is_ok()) else {
            return Err(PluginError::invalid(format!(
                "a weight of shape {shape:?} cannot be quantized, expected at least one element and fewer than 2^64"
            )));
        };
        if !elements.is_multiple_of(size) {
            return Err(PluginError::invalid(format!(
                "group_size = {size} does not divide the {elements} elements of a weight of shape {shape:?}; {}",
                fitting(elements, size)
            )));
        }
        Ok(Grouping {
            axis,
            size: size as usize,
            count: (elements / size) as usize,
        })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.size * self.count
    }

    /// hqq's matrix, `[rows, cols]`: it packs runs of rows.
    pub fn matrix(&self) -> [usize; 2] {
        match self.axis {
            Axis::Strided => [self.size, self.count],
            Axis::Consecutive => [self.count, self.size],
        }
    }

    /// A range of groups that contains those of the elements.
    pub fn around(&self, elements: Range<usize>) -> Range<usize> {
        match self.axis {
            Axis::Consecutive => elements.start / self.size..elements.end.div_ceil(self.size),
            Axis::Strided => {
                let first = elements.start % self.count;
                match first + elements.len() {
                    end if end <= self.count => first..end,
                    _ => 0..self.count,
                }
            }
        }
    }

    /// The same for the host's kernels.
    pub fn block_map(&self) -> BlockMap {
        match self.axis {
            Axis::Strided => BlockMap::Strided {
                count: self.count as u64,
            },
            Axis::Consecutive => BlockMap::Flat {
                size: self.size as u64,
            },
        }
    }

    /// Calls `body(out[i], weight[i], scale, zero)` with the numbers of the group of each element.
    ///
    /// # Shapes
    /// `weight` and `out`: the elements of the flat weight from number `first` on.
    #[inline(always)]
    pub fn each<T>(
        &self,
        first: usize,
        weight: &[f32],
        affine: Affine,
        out: &mut [T],
        body: impl Fn(&mut T, f32, f32, f32),
    ) {
        let mut at = 0;
        while at < weight.len() {
            let end = match self.axis {
                Axis::Consecutive => {
                    let group = (first + at) / self.size;
                    let end = weight.len().min((group + 1) * self.size - first);
                    let (scale, zero) = (affine.scale[group], affine.zero[group]);
                    for (o, &w) in out[at..end].iter_mut().zip(&weight[at..end]) {
                        body(o, w, scale, zero);
                    }
                    end
                }
                Axis::Strided => {
                    let group = (first + at) % self.count;
                    let end = weight.len().min(at + self.count - group);
                    let numbers = affine.scale[group..].iter().zip(&affine.zero[group..]);
                    let elements = out[at..end].iter_mut().zip(&weight[at..end]);
                    for ((o, &w), (&scale, &zero)) in elements.zip(numbers) {
                        body(o, w, scale, zero);
                    }
                    end
                }
            };
            at = end;
        }
    }
}

/// The nearest sizes that divide `elements`, in words.
fn fitting(elements: u64, size: u64) -> String {
    let fits = |candidate: &u64| elements.is_multiple_of(*candidate);
    let below = (8..size).rev().filter(|n| n % 8 == 0).find(fits);
    let above = (size + 1..=elements.min(1 << 16))
        .filter(|n| n % 8 == 0)
        .find(fits);
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} and {above} do"),
        (Some(one), None) | (None, Some(one)) => format!("{one} does"),
        (None, None) => {
            "no multiple of 8 does: leave it dense, or pack it with another quantizer, through [[sites]]".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_fit_are_named() {
        let message = |size, shape| {
            let error = Grouping::of(Axis::Consecutive, size, shape).expect_err("it does not fit");
            error.message
        };
        let found = message(64, [5, 40]);
        assert!(found.contains("shape [5, 40]; 40 and 200 do"), "{found}");
        let found = message(64, [8, 4]);
        assert!(found.contains("shape [8, 4]; 32 does"), "{found}");
        let found = message(64, [5, 37]);
        assert!(found.contains("no multiple of 8 does"), "{found}");
        let found = message(64, [u64::MAX, 2]);
        assert!(found.contains("fewer than 2^64"), "{found}");
    }

    #[test]
    fn every_element_gets_the_numbers_of_its_group() {
        let weight: Vec<f32> = (0..240).map(|i| i as f32).collect();
        for axis in [Axis::Strided, Axis::Consecutive] {
            let groups = Grouping::of(axis, 24, [12, 20]).expect("it fits");
            let zero: Vec<f32> = (0..10).map(|i| i as f32).collect();
            let map = groups.block_map();
            for range in [0..240, 7..9, 5..239, 100..100] {
                let mut found = vec![0.0; range.len()];
                let affine = Affine {
                    scale: &zero,
                    zero: &zero,
                };
                groups.each(
                    range.start,
                    &weight[range.clone()],
                    affine,
                    &mut found,
                    |o, _, _, z| *o = z,
                );
                let expected = range.map(|i| map.block(0, i as u64, 240) as f32);
                assert_eq!(found, expected.collect::<Vec<_>>());
            }
        }
    }
}
