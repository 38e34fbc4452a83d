//! Several members' parts of one tensor -> its sum, added in member order: the same bits on every
//! member.
#![allow(unsafe_code)] // The parts are in memory of other threads, and one of them may be the output.

use espalier_interface::{DType, PluginError, Result};
use half::{bf16, f16};

use crate::element::{Element, Real};

/// Dtypes that are summed.
pub const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

/// Elements that are added at once: all of them are read before the first is written.
const BLOCK: usize = 256;

/// `out[i] = ((p_0[i] + p_1[i]) + p_2[i]) + ...`, `[count]` each, in the accumulator of `dtype` and
/// rounded once.
///
/// # Errors
/// `INVALID` for a dtype that is not summed.
///
/// # Safety
/// Every part is valid for reads, and `out` for writes, of `count` elements of `dtype`. `out` is
/// one of the parts or overlaps none. The parts are not written meanwhile.
pub unsafe fn ordered_sum(
    dtype: DType,
    parts: &[*const u8],
    out: *mut u8,
    count: usize,
) -> Result<()> {
    // SAFETY: the caller's promise, with the element that the dtype names.
    unsafe {
        match dtype {
            DType::F64 => sum::<f64>(parts, out, count),
            DType::F32 => sum::<f32>(parts, out, count),
            DType::BF16 => sum::<bf16>(parts, out, count),
            DType::F16 => sum::<f16>(parts, out, count),
            other => {
                let known = DTYPES.map(|dtype| dtype.name()).join(", ");
                let message = format!("expected a sum in one of {known}, found {other}");
                return Err(PluginError::invalid(message));
            }
        }
    }
    Ok(())
}

/// # Safety
/// As [`ordered_sum`], for elements `E`.
unsafe fn sum<E: Element>(parts: &[*const u8], out: *mut u8, count: usize) {
    let out = out.cast::<E>();
    let mut total = [<E::Acc as Real>::ZERO; BLOCK];
    for start in (0..count).step_by(BLOCK) {
        let total = &mut total[..BLOCK.min(count - start)];
        for (index, part) in parts.iter().enumerate() {
            // SAFETY: `start + i < count`, and the part holds `count` elements.
            let part = unsafe { part.cast::<E>().add(start) };
            for (i, total) in total.iter_mut().enumerate() {
                // SAFETY: as above; an address need not be aligned.
                let value = unsafe { part.add(i).read_unaligned() }.load();
                *total = if index == 0 { value } else { *total + value };
            }
        }
        for (i, total) in total.iter().enumerate() {
            // SAFETY: `start + i < count`, and `out` has room for `count` elements.
            unsafe { out.add(start + i).write_unaligned(E::store(*total)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers<E>(parts: &[Vec<E>]) -> Vec<*const u8> {
        parts.iter().map(|part| part.as_ptr().cast()).collect()
    }

    #[test]
    fn parts_are_added_in_order_and_rounded_once() {
        // Adding from the back would give 1 + 2^-24 + 2^-24, which is not 1.
        let tiny = f32::EPSILON / 2.0;
        let parts = vec![vec![1.0f32; 300], vec![tiny; 300], vec![tiny; 300]];
        let mut out = vec![0.0f32; 300];
        // SAFETY: vectors of 300 elements.
        unsafe { ordered_sum(DType::F32, &pointers(&parts), out.as_mut_ptr().cast(), 300) }
            .expect("a float");
        assert_eq!(out, vec![1.0; 300]);

        // Rounded at each step, 256 + 1 stays 256 in bf16.
        let one = vec![bf16::from_f32(1.0); 5];
        let parts = vec![vec![bf16::from_f32(256.0); 5], one.clone(), one];
        let mut out = vec![bf16::ZERO; 5];
        // SAFETY: vectors of 5 elements.
        unsafe { ordered_sum(DType::BF16, &pointers(&parts), out.as_mut_ptr().cast(), 5) }
            .expect("a float");
        assert_eq!(out, vec![bf16::from_f32(258.0); 5]);
    }

    #[test]
    fn the_sum_may_overwrite_a_part() {
        let mut parts = vec![vec![1.0f64; 999], vec![2.0; 999], vec![4.0; 999]];
        let pointers = pointers(&parts);
        let out = parts[1].as_mut_ptr().cast();
        // SAFETY: vectors of 999 elements; the sum's place is the second of them.
        unsafe { ordered_sum(DType::F64, &pointers, out, 999) }.expect("a float");
        assert_eq!(parts[1], vec![7.0; 999]);
    }

    #[test]
    fn integers_are_refused() {
        // SAFETY: nothing is read or written.
        let sum = unsafe { ordered_sum(DType::U8, &[], std::ptr::null_mut(), 0) };
        assert!(sum.expect_err("no float").message.contains("found u8"));
    }
}
