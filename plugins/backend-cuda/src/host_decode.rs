//! A weight that only its quantizer's function decodes -> its values in the card's memory, by way
//! of the host: the option `host_decode`. Its launches wait, unlike all others.
#![allow(unsafe_code)] // Copies between the card and the host.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use espalier_host_device::{Asked, Call, Callback};
use espalier_interface::format::Format;
use espalier_interface::{DType, Decoder, LogLevel, Result, Services};
use half::bf16;

use crate::arguments::address;
use crate::card::Card;
use crate::current;

/// Most bytes of values that are decoded at a time, if a row has no more.
const WINDOW_BYTES: usize = 16 << 20;

/// Rows that one call of a parallel loop decodes.
const ROWS_AT_ONCE: usize = 8;

/// Alignment of segments.
const ALIGNMENT: usize = 64;

/// The host's part of a card, for decoding.
pub struct HostDecode {
    card: Arc<Card>,
    services: Arc<dyn Services>,
    areas: Mutex<Areas>,
    /// Set once the user knows that steps are slow.
    is_told: AtomicBool,
}

/// Memory of the host, for one launch at a time. It has room for the largest weight's segments, and
/// for a window of values.
#[derive(Default)]
struct Areas {
    packed: Vec<u8>,
    values: Vec<u8>,
}

/// A weight `[rows, columns]` that the host decodes.
pub struct HostWeight {
    host: Arc<HostDecode>,
    callback: Callback,
    /// Where each segment is among the packed bytes.
    segments: Vec<Range<usize>>,
    columns: usize,
    dtype: DType,
}

impl HostDecode {
    /// For the weights of `card`.
    pub fn new(card: Arc<Card>, services: Arc<dyn Services>) -> Self {
        HostDecode {
            card,
            services,
            areas: Mutex::default(),
            is_told: AtomicBool::new(false),
        }
    }

    fn tell(&self, quantizer: &str) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            let what = format!(
                "backend.cuda.host_decode: weights of quantizer `{quantizer}` are decoded on the processor each time that the card needs them, while it waits; steps take many times longer than with a quantizer that has device code"
            );
            self.services.log(LogLevel::WARN, &what);
        }
    }

    /// Waits for what this thread put on its stream.
    fn wait(&self) -> Result<()> {
        // SAFETY: the stream of a launch lives.
        let code = unsafe { (self.card.driver.synchronize)(current::stream()) };
        self.card.called("wait for a weight", code)
    }
}

impl HostWeight {
    /// Param `index` of a request, as values of `dtype`, f32 or bf16.
    ///
    /// # Errors
    /// `INVALID` where the request has no decoder for it.
    pub fn new(
        host: &Arc<HostDecode>,
        asked: &Asked<'_>,
        decoders: &[Option<Decoder>],
        (index, format): (usize, &Format),
        dtype: DType,
    ) -> Result<Self> {
        let callback = Callback::of(asked, decoders, index, &format.quantizer)?;
        host.tell(&format.quantizer);
        let mut end = 0usize;
        let segments = format.segments.iter().map(|segment| {
            let begin = end.next_multiple_of(ALIGNMENT);
            end = begin + segment.bytes() as usize;
            begin..end
        });
        let weight = HostWeight {
            segments: segments.collect(),
            host: host.clone(),
            callback,
            columns: format.shape[1] as usize,
            dtype,
        };
        let rows = weight.window(format.shape[0] as usize);
        let mut areas = host.areas.lock().unwrap_or_else(PoisonError::into_inner);
        let packed = end.max(areas.packed.len());
        areas.packed.resize(packed, 0);
        let values = (rows * weight.row_bytes()).max(areas.values.len());
        areas.values.resize(values, 0);
        drop(areas);
        Ok(weight)
    }

    fn row_bytes(&self) -> usize {
        self.columns * self.dtype.bytes() as usize
    }

    /// Rows of `rows` that are decoded at a time.
    fn window(&self, rows: usize) -> usize {
        (WINDOW_BYTES / self.row_bytes().max(1)).clamp(1, rows.max(1))
    }

    /// Puts the values of `count` rows from row `begin` on to address `to` of the card; `first` is
    /// the weight's first range of the launch. They are there on return.
    ///
    /// # Errors
    /// The quantizer's failure; `DEVICE`.
    pub fn decode(
        &self,
        call: &Call<'_>,
        first: usize,
        [begin, count]: [usize; 2],
        to: u64,
    ) -> Result<()> {
        let (host, driver) = (&self.host, self.host.card.driver);
        let mut areas = host.areas.lock().unwrap_or_else(PoisonError::into_inner);
        let Areas { packed, values } = &mut *areas;
        for (index, segment) in self.segments.iter().enumerate() {
            let part = &mut packed[segment.clone()];
            let from = address(call.param_place(first + index));
            let (at, bytes) = (part.as_mut_ptr().cast(), part.len());
            // SAFETY: both places have the bytes, and the area is not used before the wait.
            let code = unsafe { (driver.copy_to_host)(at, from, bytes, current::stream()) };
            host.card.called("copy of a weight to the host", code)?;
        }
        host.wait()?;
        let segments: Vec<&[u8]> = self.segments.iter().map(|at| &packed[at.clone()]).collect();
        let window = self.window(count);
        for row in (0..count).step_by(window) {
            let rows = window.min(count - row);
            let values = &mut values[..rows * self.row_bytes()];
            self.decode_rows(call.services, &segments, begin + row, values)?;
            let to = to + (row * self.row_bytes()) as u64;
            let (from, bytes) = (values.as_ptr().cast(), values.len());
            // SAFETY: as above.
            let code = unsafe { (driver.copy_to_device)(to, from, bytes, current::stream()) };
            host.card.called("copy of a weight to the card", code)?;
            host.wait()?;
        }
        Ok(())
    }

    /// Decodes rows from row `begin` on into `values`.
    fn decode_rows(
        &self,
        services: &dyn Services,
        segments: &[&[u8]],
        begin: usize,
        values: &mut [u8],
    ) -> Result<()> {
        let pieces = values.chunks_mut(ROWS_AT_ONCE * self.row_bytes());
        let pieces: Vec<_> = pieces.map(|piece| Mutex::new((piece, Ok(())))).collect();
        services.parallel_for(pieces.len(), &|index| {
            let mut piece = pieces[index].lock().unwrap_or_else(PoisonError::into_inner);
            let (values, done) = &mut *piece;
            let mut decoded = vec![0.0f32; self.columns];
            for (row, values) in values.chunks_exact_mut(self.row_bytes()).enumerate() {
                let row = begin + index * ROWS_AT_ONCE + row;
                *done = self.callback.decode(segments, row as u64, &mut decoded);
                if done.is_err() {
                    return;
                }
                self.store(&decoded, values);
            }
        });
        let done = pieces.into_iter().map(|piece| {
            let (_, done) = piece.into_inner().unwrap_or_else(PoisonError::into_inner);
            done
        });
        done.collect()
    }

    /// Writes numbers as values of the dtype.
    fn store(&self, numbers: &[f32], values: &mut [u8]) {
        if self.dtype == DType::F32 {
            for (value, x) in values.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                *value = x.to_le_bytes();
            }
            return;
        }
        for (value, x) in values.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
            *value = bf16::from_f32(*x).to_le_bytes();
        }
    }
}
