//! Memory with strides -> rows of elements that follow each other, and back.
#![allow(unsafe_code)] // The memory of launches is read and written.

use candle_core::{Device, Result, Tensor, WithDType};
use espalier_tensor_ops::Memory;

/// The places where runs of elements begin, and the length of each run.
struct Runs {
    /// Offsets in elements.
    begins: Vec<usize>,
    len: usize,
}

impl Runs {
    fn of(memory: &Memory) -> Self {
        let (shape, strides) = (memory.shape(), memory.strides());
        if memory.elements() == 0 {
            return Runs {
                begins: Vec::new(),
                len: 0,
            };
        }
        // Trailing dimensions whose elements follow each other.
        let (mut outer, mut len) = (shape.len(), 1);
        while outer > 0 && (strides[outer - 1] == len || shape[outer - 1] == 1) {
            outer -= 1;
            len *= shape[outer];
        }
        let mut begins = vec![0];
        for dim in 0..outer {
            let places = 0..shape[dim];
            begins = begins
                .iter()
                .flat_map(|begin| places.clone().map(move |at| begin + at * strides[dim]))
                .collect();
        }
        Runs { begins, len }
    }
}

/// A tensor with a copy of the elements at `memory`.
///
/// # Safety
/// The memory holds elements of `T` that may be read.
pub unsafe fn read<T: WithDType>(memory: &Memory) -> Result<Tensor> {
    let runs = Runs::of(memory);
    let from = memory.address().cast::<T>().as_ptr();
    let mut values: Vec<T> = Vec::with_capacity(memory.elements());
    for &begin in &runs.begins {
        // SAFETY: the run lies in the memory, which the caller may read.
        let run = unsafe { std::slice::from_raw_parts(from.add(begin), runs.len) };
        values.extend_from_slice(run);
    }
    Tensor::from_vec(values, memory.shape(), &Device::Cpu)
}

/// Copies the elements of `x`, which has the memory's dtype and shape, to `memory`.
///
/// # Safety
/// The memory holds elements of `T` that may be written and are used by nothing else meanwhile.
pub unsafe fn write<T: WithDType>(x: &Tensor, memory: &Memory) -> Result<()> {
    let x = x.contiguous()?;
    let (storage, layout) = x.storage_and_layout();
    let candle_core::Storage::Cpu(storage) = &*storage else {
        candle_core::bail!("a tensor that is not on the processor");
    };
    let values: &[T] = <T as WithDType>::cpu_storage_as_slice(storage)?;
    let values = &values[layout.start_offset()..];
    let runs = Runs::of(memory);
    let to = memory.address().cast::<T>().as_ptr();
    for (index, &begin) in runs.begins.iter().enumerate() {
        let run = &values[index * runs.len..(index + 1) * runs.len];
        // SAFETY: the run lies in the memory, which the caller may write; the tensor's elements
        // are candle's own.
        unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), to.add(begin), runs.len) };
    }
    Ok(())
}

/// A tensor of the rows of the matrix at `memory` with the numbers of `index`.
///
/// # Safety
/// As [`read`].
pub unsafe fn read_rows<T: WithDType>(memory: &Memory, index: &[i32]) -> Result<Tensor> {
    let [rows, cols] = memory.shape()[..] else {
        candle_core::bail!("rows of {:?}", memory.shape());
    };
    let from = memory.address().cast::<T>().as_ptr();
    let mut values: Vec<T> = Vec::with_capacity(index.len() * cols);
    for &row in index {
        let Some(row) = usize::try_from(row).ok().filter(|row| *row < rows) else {
            candle_core::bail!("row {row} of a matrix of {rows} rows");
        };
        // SAFETY: the row lies in the memory, which the caller may read.
        let row = unsafe { std::slice::from_raw_parts(from.add(row * memory.strides()[0]), cols) };
        values.extend_from_slice(row);
    }
    Tensor::from_vec(values, (index.len(), cols), &Device::Cpu)
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use espalier_interface::DType;

    use super::*;

    #[test]
    fn heads_are_read_and_written_where_they_lie() {
        let mut values: Vec<f32> = (0..24).map(|x| x as f32).collect();
        let address = NonNull::new(values.as_mut_ptr().cast()).expect("a vector has an address");
        // Rows [4, 6] as heads [3, 4, 2]; the last two rows of heads 1 and 2.
        let rows = Memory::new(address, DType::F32, &[4, 6]);
        let heads = rows.heads(2).narrowed(0, 1, 2).narrowed(1, 2, 2);
        // SAFETY: the memory is the vector's, which is used by nothing else.
        let read = unsafe { read::<f32>(&heads) }.unwrap();
        let expected = [[[14., 15.], [20., 21.]], [[16., 17.], [22., 23.]]];
        assert_eq!(read.to_vec3::<f32>().unwrap(), expected);
        // SAFETY: as above.
        unsafe { write::<f32>(&read.affine(-1.0, 0.0).unwrap(), &heads) }.unwrap();
        assert_eq!(
            values[12..],
            [
                12., 13., -14., -15., -16., -17., 18., 19., -20., -21., -22., -23.
            ]
        );
    }
}
