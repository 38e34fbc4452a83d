//! Ranges of a device's memory -> slices to write, or copies that are uploaded.
#![allow(unsafe_code)] // Ranges of a device's memory as slices.

use espalier_interface::{BufferRange, Device, Stream};

use crate::Error;
use crate::error::BackendCall;

/// Lets `fill` write into device memory where the host can address it, else into a copy that is
/// uploaded.
pub(super) fn in_place(
    device: &dyn Device,
    ranges: &[BufferRange],
    fill: impl FnOnce(&mut [&mut [u8]]) -> Result<(), Error>,
) -> Result<(), Error> {
    let addresses: Option<Vec<_>> = ranges
        .iter()
        .map(|&range| device.host_address(range))
        .collect();
    if let Some(addresses) = addresses {
        let mut segments: Vec<&mut [u8]> = addresses
            .iter()
            .zip(ranges)
            // SAFETY: the ranges of a param are disjoint, allocated, and used by nobody else while
            // it is loaded.
            .map(|(address, range)| unsafe {
                std::slice::from_raw_parts_mut(address.as_ptr(), range.bytes as usize)
            })
            .collect();
        return fill(&mut segments);
    }
    let mut copies: Vec<Vec<u8>> = ranges.iter().map(|r| vec![0; r.bytes as usize]).collect();
    let mut segments: Vec<&mut [u8]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
    fill(&mut segments)?;
    let mut copies = copies.iter().zip(ranges);
    copies
        .try_for_each(|(copy, &range)| device.upload(copy, range, Stream(0)))
        .during("upload")
}
