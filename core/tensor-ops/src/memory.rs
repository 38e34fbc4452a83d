//! A place in memory where a tensor lies: address, dtype, extents and strides.

use std::ptr::NonNull;

use espalier_interface::DType;

/// Elements in memory that a kernel may use during a launch.
///
/// The element at index `(i_0, .., i_n)` lies `i_0 strides[0] + .. + i_n strides[n]` elements after
/// the address. The last stride is 1, unless there are no dimensions.
#[derive(Clone, Debug)]
pub struct Memory {
    address: NonNull<u8>,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

// SAFETY: it is an address with numbers. Reads and writes of it are unsafe methods of `Tensors`,
// whose callers order them.
#[allow(unsafe_code)]
unsafe impl Send for Memory {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Memory {}

impl Memory {
    /// Elements that follow each other, row major.
    pub fn new(address: NonNull<u8>, dtype: DType, shape: &[usize]) -> Self {
        Memory {
            address,
            dtype,
            shape: shape.to_vec(),
            strides: contiguous(shape),
        }
    }

    /// The first byte; of a device where that has its own memory.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distances in elements along each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes() as usize
    }

    /// Whether the elements follow each other, row major.
    pub fn is_contiguous(&self) -> bool {
        self.elements() == 0 || self.strides == contiguous(&self.shape)
    }

    /// The same elements in other extents.
    ///
    /// # Panics
    /// Where they do not follow each other, or are more or fewer.
    pub fn reshaped(&self, shape: &[usize]) -> Self {
        assert!(self.is_contiguous(), "elements apart are reshaped");
        let elements: usize = shape.iter().product();
        assert_eq!(elements, self.elements(), "a shape of other elements");
        Memory::new(self.address, self.dtype, shape)
    }

    /// The same memory as bytes, `[n]`.
    ///
    /// # Panics
    /// Where the elements do not follow each other.
    pub fn as_bytes(&self) -> Self {
        assert!(self.is_contiguous(), "bytes of elements apart");
        Memory::new(self.address, DType::U8, &[self.bytes()])
    }

    /// `len` of the elements along dimension `dim`, from `start` on.
    ///
    /// # Panics
    /// Where the dimension has fewer.
    pub fn narrowed(&self, dim: usize, start: usize, len: usize) -> Self {
        assert!(start + len <= self.shape[dim], "elements beyond the extent");
        let offset = start * self.strides[dim] * self.dtype.bytes() as usize;
        let mut narrowed = self.clone();
        // An empty one keeps its address, which may be the end of the range.
        if len > 0 {
            narrowed.address = NonNull::new(self.address.as_ptr().wrapping_add(offset))
                .expect("an address within a range");
        }
        narrowed.shape[dim] = len;
        narrowed
    }

    /// Rows `[T, H K]` as heads `[H, T, K]`.
    ///
    /// # Panics
    /// Where they are no rows, or `K` does not divide the columns.
    pub fn heads(&self, head_dim: usize) -> Self {
        let ([rows, cols], [stride, 1]) = (&self.shape[..], &self.strides[..]) else {
            panic!("heads of {:?} by {:?}", self.shape, self.strides);
        };
        assert!(cols.is_multiple_of(head_dim), "heads of {head_dim} columns");
        Memory {
            shape: vec![cols / head_dim, *rows, head_dim],
            strides: vec![head_dim, *stride, 1],
            ..self.clone()
        }
    }
}

fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_narrowed_rows_lie_where_the_rows_are() {
        let mut bytes = [0u8; 4 * 5 * 6];
        let address = NonNull::new(bytes.as_mut_ptr()).expect("an array has an address");
        let rows = Memory::new(address, DType::F32, &[5, 6]);
        assert!(rows.is_contiguous() && rows.bytes() == 120);
        let heads = rows.narrowed(0, 2, 3).heads(2).narrowed(0, 1, 2);
        assert_eq!(
            (heads.shape(), heads.strides()),
            (&[2, 3, 2][..], &[2, 6, 1][..])
        );
        let offset = heads.address().addr().get() - address.addr().get();
        assert_eq!(offset, 4 * (2 * 6 + 2));
        assert!(!heads.is_contiguous());
        assert_eq!(rows.reshaped(&[30]).narrowed(0, 30, 0).elements(), 0);
    }
}
