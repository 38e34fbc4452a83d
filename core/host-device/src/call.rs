//! The ranges of a launch, checked, as typed slices.
#![allow(unsafe_code)] // Slices of mapped memory whose disjointness is checked here.

use std::cell::Cell;
use std::ptr::NonNull;

use espalier_interface::{DType, PluginError, Result, Services};
use half::{bf16, f16};

use crate::{Expected, Overlap, Span};

/// Most ranges of a launch.
pub const MOST_RANGES: usize = 32;

/// A plain number that memory may be read as.
///
/// # Safety
/// Every bit pattern must be a value, and the alignment at most 64 bytes.
pub unsafe trait Number: Copy + Send + Sync + 'static {
    /// Its id.
    const ID: DType;
}

// SAFETY: floats have no invalid bit patterns.
unsafe impl Number for f64 {
    const ID: DType = DType::F64;
}

// SAFETY: floats have no invalid bit patterns.
unsafe impl Number for f32 {
    const ID: DType = DType::F32;
}

// SAFETY: floats have no invalid bit patterns.
unsafe impl Number for bf16 {
    const ID: DType = DType::BF16;
}

// SAFETY: floats have no invalid bit patterns.
unsafe impl Number for f16 {
    const ID: DType = DType::F16;
}

// SAFETY: integers have no invalid bit patterns.
unsafe impl Number for i32 {
    const ID: DType = DType::I32;
}

/// A range's memory.
struct Slot {
    span: Span,
    dtype: DType,
    written: bool,
    /// Another slot of the launch has the same address.
    shared: bool,
    taken: Cell<bool>,
}

impl Slot {
    fn place(&self) -> Place {
        Place {
            address: self.span.start,
            bytes: self.span.bytes,
            dtype: self.dtype,
        }
    }
}

/// A launch as a kernel sees it.
pub struct Call<'a> {
    /// The host's threads.
    pub services: &'a dyn Services,
    /// `T`.
    pub tokens: usize,
    /// `S`.
    pub sequences: usize,
    /// Scalars in the op's order; their number was checked.
    pub scalars: &'a [f64],
    slots: [Option<Slot>; MOST_RANGES],
    params: usize,
    outputs: usize,
    workspace: Option<Span>,
    workspace_taken: Cell<bool>,
}

/// A range's memory as a library is given it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First byte, a multiple of 64.
    pub address: NonNull<u8>,
    /// Bytes of this launch.
    pub bytes: usize,
    /// Element type.
    pub dtype: DType,
}

impl<'a> Call<'a> {
    /// A call without ranges yet, of `[T, S]`; `[params, outputs]` are the indices of the first
    /// param and output.
    pub(crate) fn new(
        services: &'a dyn Services,
        [tokens, sequences]: [u64; 2],
        scalars: &'a [f64],
        [params, outputs]: [usize; 2],
    ) -> Self {
        Call {
            services,
            tokens: tokens as usize,
            sequences: sequences as usize,
            scalars,
            slots: [const { None }; MOST_RANGES],
            params,
            outputs,
            workspace: None,
            workspace_taken: Cell::new(false),
        }
    }

    /// Sets range `index`, of which the first `bytes` are used.
    pub(crate) fn set(&mut self, index: usize, mut span: Span, expected: &Expected, bytes: u64) {
        span.bytes = bytes as usize;
        self.slots[index] = Some(Slot {
            span,
            dtype: expected.dtype,
            written: expected.written,
            shared: false,
            taken: Cell::new(false),
        });
    }

    /// Sets the workspace.
    pub(crate) fn set_workspace(&mut self, span: Span) {
        self.workspace = Some(span);
    }

    /// Checks that no written range overlaps another, except as `allowed` permits.
    ///
    /// # Errors
    /// `INVALID`, with the indices of the two ranges.
    pub(crate) fn check_overlap(&mut self, allowed: Overlap) -> Result<()> {
        let count = self.slots.iter().flatten().count();
        let place = |span: &Span| (span.start.as_ptr() as usize, span.bytes);
        let meet = |a: &Span, b: &Span| {
            let ((a, n), (b, m)) = (place(a), place(b));
            n > 0 && m > 0 && a < b + m && b < a + n
        };
        let (mut clash, mut in_place) = (None, None);
        for i in 0..count {
            let Some(a) = &self.slots[i] else { continue };
            if self.workspace.as_ref().is_some_and(|w| meet(w, &a.span)) {
                clash = Some(format!("range {i} overlaps the workspace"));
            }
            for j in i + 1..count {
                let Some(b) = &self.slots[j] else { continue };
                if !(a.written || b.written) || !meet(&a.span, &b.span) {
                    continue;
                }
                let same = place(&a.span) == place(&b.span);
                if same && allowed == Overlap::InPlaceOf(i) && j == self.outputs {
                    in_place = Some(i);
                } else {
                    clash = Some(format!("ranges {i} and {j} overlap, and one is written"));
                }
            }
        }
        if let Some(input) = in_place.and_then(|index| self.slots[index].as_mut()) {
            input.shared = true;
        }
        match clash {
            None => Ok(()),
            Some(message) => Err(PluginError::invalid(message)),
        }
    }

    /// True where output 0 is an input's range: only the output may then be taken.
    pub fn in_place(&self) -> bool {
        self.slots.iter().flatten().any(|slot| slot.shared)
    }

    /// The scalars at `places` of a launch.
    pub fn scalars_at<const N: usize>(&self, places: [usize; N]) -> [f64; N] {
        places.map(|place| self.scalars[place])
    }

    /// Input `index`.
    pub fn input<N: Number>(&self, index: usize) -> &[N] {
        assert!(index < self.params, "input {index} does not exist");
        self.read(index, N::ID)
    }

    /// The memory of input `index`, which is read only. Where it is output 0's too, it is read
    /// before that is written.
    pub fn input_place(&self, index: usize) -> Place {
        assert!(index < self.params, "input {index} does not exist");
        self.slot(index).place()
    }

    /// The memory of range `index` after the inputs, of a dense param or a segment: read only.
    pub fn param_place(&self, index: usize) -> Place {
        self.slot(self.params + index).place()
    }

    /// The memory of output `index`, which no other range overlaps but that of an input which
    /// [`Overlap`] names. It can be taken once.
    pub fn output_place(&self, index: usize) -> Place {
        let slot = self.slot(self.outputs + index);
        assert!(slot.written, "an input is written");
        assert!(!slot.taken.replace(true), "an output was taken before");
        slot.place()
    }

    /// Input `index`, of i32.
    pub fn integers(&self, index: usize) -> &[i32] {
        assert!(index < self.params, "input {index} does not exist");
        self.read(index, DType::I32)
    }

    /// Range `index` after the inputs, of a dense param or a segment.
    pub fn param<N: Number>(&self, index: usize) -> &[N] {
        self.read(self.params + index, N::ID)
    }

    /// Range `index` after the inputs, as bytes.
    pub fn segment(&self, index: usize) -> &[u8] {
        let slot = self.slot(self.params + index);
        self.view(slot, slot.span.bytes)
    }

    /// Output `index`, which can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn output<N: Number>(&self, index: usize) -> &mut [N] {
        self.write(index, N::ID)
    }

    /// Output `index` of i32, which can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn output_integers(&self, index: usize) -> &mut [i32] {
        self.write(index, DType::I32)
    }

    /// Output `index` of i64, which can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn output_longs(&self, index: usize) -> &mut [i64] {
        self.write(index, DType::I64)
    }

    /// Output `index` of any dtype as bytes, which can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn output_bytes(&self, index: usize) -> &mut [u8] {
        let slot = self.slot(self.outputs + index);
        self.write_as(slot, slot.span.bytes)
    }

    /// The workspace's first `len` numbers; it can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace<N: Number>(&self, len: usize) -> &mut [N] {
        let bytes = self.workspace_bytes();
        let wanted = len * size_of::<N>();
        assert!(
            bytes.len() >= wanted,
            "the workspace is smaller than prepared"
        );
        // SAFETY: the memory is mapped, aligned to 64 bytes and borrowed here alone; `N` has no
        // invalid values.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
    }

    /// The whole workspace; it can be taken once.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace_bytes(&self) -> &mut [u8] {
        match self.take_workspace() {
            Some(w) => {
                w.assert_on_host();
                // SAFETY: the span is mapped as long as `self` lives, overlaps no other range
                // (`check_overlap`) and was not taken before.
                unsafe { std::slice::from_raw_parts_mut(w.start.as_ptr(), w.bytes) }
            }
            None => &mut [],
        }
    }

    /// The memory of the workspace, which no other range overlaps, if the kernel has one; it can be
    /// taken once.
    pub fn workspace_place(&self) -> Option<Place> {
        self.take_workspace().map(|span| Place {
            address: span.start,
            bytes: span.bytes,
            dtype: DType::U8,
        })
    }

    fn take_workspace(&self) -> Option<&Span> {
        assert!(
            !self.workspace_taken.replace(true),
            "the workspace was taken before"
        );
        self.workspace.as_ref()
    }

    fn slot(&self, index: usize) -> &Slot {
        self.slots[index]
            .as_ref()
            .expect("the operands were counted")
    }

    fn read<T>(&self, index: usize, dtype: DType) -> &[T] {
        let slot = self.slot(index);
        assert!(
            slot.dtype == dtype,
            "range {index} is {}, read as {dtype}",
            slot.dtype
        );
        self.view(slot, slot.span.bytes / size_of::<T>())
    }

    fn view<T>(&self, slot: &Slot, len: usize) -> &[T] {
        assert!(
            !slot.written && !slot.shared,
            "a range that is written is read"
        );
        slot.span.assert_on_host();
        // SAFETY: the span is mapped as long as `self` lives and aligned to 64 bytes. No written
        // range overlaps it (`check_overlap`), and its type has no invalid values (`Number`, or an
        // integer).
        unsafe { std::slice::from_raw_parts(slot.span.start.as_ptr().cast(), len) }
    }

    #[allow(clippy::mut_from_ref)]
    fn write<T>(&self, index: usize, dtype: DType) -> &mut [T] {
        let slot = self.slot(self.outputs + index);
        assert!(
            slot.dtype == dtype,
            "output {index} is {}, written as {dtype}",
            slot.dtype
        );
        self.write_as(slot, slot.span.bytes / size_of::<T>())
    }

    #[allow(clippy::mut_from_ref)]
    fn write_as<T>(&self, slot: &Slot, len: usize) -> &mut [T] {
        assert!(slot.written, "an input is written");
        assert!(!slot.taken.replace(true), "an output was taken before");
        slot.span.assert_on_host();
        // SAFETY: as in `view`; no other range overlaps it, and it was not taken before.
        unsafe { std::slice::from_raw_parts_mut(slot.span.start.as_ptr().cast(), len) }
    }
}
