//! A launch's ranges as memories with extents, and their way into tensors and back.
#![allow(unsafe_code)] // Memory of a launch is read and written.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use espalier_host_device::{Asked, Call, Expected, Place};
use espalier_interface::graph::Dim;
use espalier_interface::{DType, PluginError, Result, Services};

use crate::{Memory, Tensors, Threads};

/// A launch as an expression sees it.
///
/// Its methods read and write memory of the launch only: a [`Memory`] is made of the launch's
/// ranges in this file alone. An expression writes an output after it has read what lies there.
pub struct Launch<'a, L> {
    /// The tensor library.
    pub library: &'a L,
    /// The host's threads.
    pub services: &'a dyn Services,
    /// `T`.
    pub tokens: usize,
    /// Scalars in the op's order.
    pub scalars: &'a [f64],
    inputs: Vec<Memory>,
    params: Vec<Memory>,
    outputs: Vec<Memory>,
    workspace: Option<Memory>,
}

/// The ranges of a kernel's launches, by what they are.
pub struct Ranges {
    expected: Vec<Expected>,
    /// Indices of the first param and the first output.
    begins: [usize; 2],
    workspace_bytes: usize,
}

impl Ranges {
    /// The ranges of a request.
    pub fn of(asked: &Asked<'_>, workspace_bytes: usize) -> Self {
        let expected = asked.ranges();
        let outputs = asked.request.outputs.len();
        Ranges {
            begins: [asked.request.inputs.len(), expected.len() - outputs],
            expected,
            workspace_bytes,
        }
    }

    /// The launch of a call.
    pub fn launch<'a, L: Tensors>(&self, library: &'a L, call: &'a Call<'_>) -> Launch<'a, L> {
        let [params, outputs] = self.begins;
        let memory = |index: usize, place: Place| {
            let expected = &self.expected[index];
            let shape = expected.shape.iter().map(|dim| match dim {
                Dim::Tokens => call.tokens,
                Dim::Boundaries => call.sequences + 1,
                Dim::Fixed(extent) => *extent as usize,
            });
            let shape: Vec<usize> = shape.collect();
            let memory = Memory::new(place.address, place.dtype, &shape);
            assert_eq!(memory.bytes(), place.bytes, "a range of other extents");
            memory
        };
        let all = 0..self.expected.len();
        let part = |from: usize, to: usize| all.clone().skip(from).take(to - from);
        Launch {
            library,
            services: call.services,
            tokens: call.tokens,
            scalars: call.scalars,
            inputs: part(0, params)
                .map(|i| memory(i, call.input_place(i)))
                .collect(),
            params: part(params, outputs)
                .map(|i| memory(i, call.param_place(i - params)))
                .collect(),
            outputs: part(outputs, all.len())
                .map(|i| memory(i, call.output_place(i - outputs)))
                .collect(),
            workspace: (self.workspace_bytes > 0).then(|| {
                let place = call.workspace_place().expect("a kernel asked for it");
                Memory::new(place.address, DType::U8, &[self.workspace_bytes])
            }),
        }
    }
}

impl<L: Tensors> Launch<'_, L> {
    /// Input `index`.
    pub fn input(&self, index: usize) -> &Memory {
        &self.inputs[index]
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Range `index` of the params.
    pub fn param(&self, index: usize) -> &Memory {
        &self.params[index]
    }

    /// Output `index`.
    pub fn output(&self, index: usize) -> &Memory {
        &self.outputs[index]
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The workspace as `len` numbers of `dtype`.
    pub fn workspace(&self, dtype: DType, len: usize) -> Memory {
        let workspace = self.workspace.as_ref().expect("a kernel asked for it");
        let bytes = len * dtype.bytes() as usize;
        assert!(bytes <= workspace.bytes(), "the workspace is too small");
        Memory::new(workspace.address(), dtype, &[len])
    }

    /// The scalars at `places`.
    pub fn scalars_at<const N: usize>(&self, places: [usize; N]) -> [f64; N] {
        places.map(|place| self.scalars[place])
    }

    /// The tensor at `memory`, in its own dtype.
    pub fn read(&self, memory: &Memory) -> Result<L::Tensor> {
        // SAFETY: the launch has the memory until it ends, and its callers in this crate write an
        // output only after they have read what lies there.
        unsafe { self.library.read(memory) }
    }

    /// The tensor at `memory` in f32.
    pub fn float(&self, memory: &Memory) -> Result<L::Tensor> {
        self.library.cast(&self.read(memory)?, DType::F32)
    }

    /// The tensor at `memory` in i64.
    pub fn index(&self, memory: &Memory) -> Result<L::Tensor> {
        self.library.cast(&self.read(memory)?, DType::I64)
    }

    /// Writes `x` to `memory`, rounded to its dtype.
    pub fn write(&self, x: &L::Tensor, memory: &Memory) -> Result<()> {
        // SAFETY: it is memory that the launch writes, and parts of it are written by one thread
        // each.
        unsafe { self.library.write(x, memory) }
    }

    /// Rows of the matrix at `memory` at an index of i32.
    pub fn rows(&self, matrix: &Memory, index: &Memory) -> Result<L::Tensor> {
        // SAFETY: as in `read`.
        unsafe { self.library.read_rows(matrix, index) }
    }

    /// Integers on the host.
    pub fn to_host(&self, memory: &Memory) -> Result<Vec<i32>> {
        // SAFETY: as in `read`.
        unsafe { self.library.to_host(memory) }
    }

    /// The bytes of a segment on the host.
    pub fn bytes<'m>(&self, memory: &'m Memory) -> Result<Cow<'m, [u8]>> {
        // SAFETY: the launch has the memory until it ends, and writes no segment.
        unsafe { self.library.bytes_to_host(memory) }
    }

    /// `x` as it is after it was rounded to `dtype`, in f32.
    pub fn rounded(&self, x: &L::Tensor, dtype: DType) -> Result<L::Tensor> {
        if dtype == DType::F32 && self.library.dtype(x) == DType::F32 {
            return Ok(x.clone());
        }
        self.library.cast(&self.library.cast(x, dtype)?, DType::F32)
    }

    /// Calls `body(first, count)` for the parts of `rows` rows of `width` elements.
    pub fn parts(
        &self,
        rows: usize,
        width: usize,
        body: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let most = self.rows_of_part(width);
        let part = |index: usize| body(index * most, most.min(rows - index * most));
        self.each(rows.div_ceil(most), part)
    }

    /// Calls `body` with `0..count`, on the threads that the library computes parts on.
    pub fn each(&self, count: usize, body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
        self.on_threads(count, self.library.split().threads, body)
    }

    /// `body(first, count)` for the parts of `rows` rows of `width` elements, one tensor after the
    /// other along dimension 0.
    pub fn gathered(
        &self,
        rows: usize,
        width: usize,
        body: impl Fn(usize, usize) -> Result<L::Tensor> + Sync,
    ) -> Result<L::Tensor> {
        let most = self.rows_of_part(width);
        let parts: Vec<Mutex<Option<L::Tensor>>> =
            (0..rows.div_ceil(most)).map(|_| Mutex::new(None)).collect();
        self.parts(rows, width, |begin, len| {
            let part = body(begin, len)?;
            *lock(&parts[begin / most]) = Some(part);
            Ok(())
        })?;
        let parts = parts.iter().map(|part| lock(part).take());
        let parts: Option<Vec<L::Tensor>> = parts.collect();
        let parts = parts.expect("all parts were computed");
        self.library.concat(&parts, 0)
    }

    /// Calls `body(part, first, count)` for the parts of the rows of `x`, `[rows, width]`.
    pub fn parts_of(
        &self,
        x: &L::Tensor,
        body: impl Fn(L::Tensor, usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let shape = self.library.shape(x);
        let [rows, width] = [shape[0], shape[1]];
        let most = self.rows_of_part(width);
        let mut parts = Vec::with_capacity(rows.div_ceil(most));
        for begin in (0..rows).step_by(most) {
            let part = self.library.narrow(x, 0, begin, most.min(rows - begin))?;
            parts.push(Mutex::new(Some(part)));
        }
        self.parts(rows, width, |begin, len| {
            let part = lock(&parts[begin / most]).take();
            body(part.expect("a part is taken once"), begin, len)
        })
    }

    /// Rows of `width` elements in a part.
    fn rows_of_part(&self, width: usize) -> usize {
        (self.library.split().elements / width.max(1)).max(1)
    }

    /// Calls `body` with `0..count` on `threads`.
    pub fn on_threads(
        &self,
        count: usize,
        threads: Threads,
        body: impl Fn(usize) -> Result<()> + Sync,
    ) -> Result<()> {
        if threads == Threads::Library || count < 2 {
            return (0..count).try_for_each(body);
        }
        // The failure of the first part that fails, so that it does not depend on threads.
        let first: Mutex<Option<(usize, PluginError)>> = Mutex::new(None);
        self.services.parallel_for(count, &|index| {
            if let Err(error) = body(index) {
                let mut first = lock(&first);
                if first.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                    *first = Some((index, error));
                }
            }
        });
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, error)) => Err(error),
        }
    }
}

/// The value of a mutex, also after a panic elsewhere.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
