//! Work memory of loading, mapped so that the system gets all of it back.
#![allow(unsafe_code)] // Bytes of a mapping as numbers.

use espalier_interface::bytes::Bytes;
use espalier_system::memory::{self, OutOfMemory};
use memmap2::MmapMut;

use crate::Error;

/// Memory that is mapped while weights are loaded. The system gets all of it back.
#[derive(Default)]
pub struct Scratch(Option<MmapMut>);

impl Scratch {
    pub fn bytes(&mut self, len: usize) -> Result<&mut [u8], Error> {
        if self.0.as_ref().is_none_or(|map| map.len() < len) {
            self.0 = None;
            let map = MmapMut::map_anon(len.max(1)).map_err(|_| {
                Error::OutOfMemory(OutOfMemory {
                    kind: "host".to_owned(),
                    needed: Bytes(len as u64),
                    available: Bytes(memory::available_bytes().unwrap_or(0)),
                })
            })?;
            self.0 = Some(map);
        }
        Ok(&mut self.0.as_mut().expect("mapped above")[..len])
    }

    pub fn floats(&mut self, len: usize) -> Result<&mut [f32], Error> {
        let bytes = self.bytes(len * 4)?;
        // SAFETY: a mapping is page-aligned, zeroed or written as f32, and every bit pattern is an
        // f32.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) })
    }
}
