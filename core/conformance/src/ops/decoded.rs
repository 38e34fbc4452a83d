//! A packed weight on a device -> its values there.

use espalier_interface::format::{DeviceCode, Format};
use espalier_interface::graph::Dim;
use espalier_interface::{DType, Device};

use super::case::{Near, OpCase};
use super::launch::{Ran, prepare, run};
use super::packed::Packed;
use crate::checked::{Checked, Fault};

/// The values of a weight `[N, M]`, in f32, by the op `param_value`. `code` is the quantizer's
/// device code, for a format without a description.
///
/// # Errors
/// Skipped where the device does not have the kernel, in its own words. Failed for an error of the
/// device, and where two launches give other bits.
pub fn decoded(
    device: &dyn Device,
    format: &Format,
    segments: &[&[u8]],
    code: Option<&DeviceCode>,
) -> Checked<Vec<f32>> {
    let [rows, columns] = format.shape;
    let param = Packed {
        name: String::new(),
        format: format.clone(),
        segments: segments.iter().map(|bytes| bytes.to_vec()).collect(),
        decoder: None,
        device_code: code.cloned(),
        values: Vec::new(),
    };
    // The values give the output its size; they are compared by the caller.
    let open = Near::exact(vec![0.0; (rows * columns) as usize]);
    let shape = [rows, columns].map(Dim::Fixed);
    let case = OpCase::new("param_value", 0, String::new()).packed(&param);
    let case = case.output(&shape, DType::F32, open);
    match run(device, &case, prepare(device, &case)?)? {
        Ran::NotOffered(why) => Err(Fault::Skipped(why)),
        Ran::Outputs { first, same } => {
            same?;
            let numbers = first[0].chunks_exact(4);
            let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("of four"));
            Ok(numbers.map(number).collect())
        }
    }
}
