//! [`Tensors`] by libtorch.

use std::borrow::{Borrow, Cow};
use std::ops::Deref;
use std::sync::Arc;

use espalier_interface::{DType, Result};
use espalier_tensor_ops::attention::{self as products, AttentionMask};
use espalier_tensor_ops::{Binary, Compare, Memory, Reduce, Split, Tensors, Threads, Unary};
use tch::{Device, Kind, Scalar, Tensor};

use crate::error::checked;
use crate::kinds::{dtype_of, kind_of};
use crate::{attention, threads};

/// Elements that an expression takes at once. Packed weights are decoded so many at a time.
const PART: usize = 1 << 21;

/// A tensor of libtorch. Clones share it.
#[derive(Clone)]
pub struct Shared(Arc<Held>);

/// A tensor that several threads may read.
struct Held(Tensor);

// SAFETY: libtorch counts references to a tensor atomically, and its functions may read one tensor
// from several threads. A shared tensor is never written here: `write` wraps memory anew.
#[allow(unsafe_code)]
unsafe impl Sync for Held {}

impl Deref for Shared {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0.0
    }
}

impl Borrow<Tensor> for Shared {
    fn borrow(&self) -> &Tensor {
        self
    }
}

impl From<Tensor> for Shared {
    fn from(tensor: Tensor) -> Self {
        Shared(Arc::new(Held(tensor)))
    }
}

/// The kind of device that libtorch's functions are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    /// Processors: attention is blocked, and sums are in the order of loops.
    Processors,
    /// A card: attention is products, and sums at an index are sorted by it. Without that they
    /// would be in the order in which its threads come.
    Card,
}

/// libtorch on one device.
pub struct Torch {
    /// Where tensors lie. Operands are wrapped, so it is where the host's buffers are.
    device: Device,
    chosen: Chosen,
    /// Threads of a loop.
    threads: i32,
    /// Whether a copy of the host's numbers to the device waits for it. Else it returns once they
    /// are read.
    waits: bool,
}

impl Torch {
    /// libtorch on the processors, with loops of `threads` threads.
    pub fn on_cpu(threads: usize) -> Self {
        Torch {
            device: Device::Cpu,
            chosen: Chosen::Processors,
            threads: i32::try_from(threads).unwrap_or(i32::MAX),
            waits: true,
        }
    }

    /// libtorch on a card, with loops of `threads` threads on the processors. `waits` where a copy
    /// from the host's memory may read it after the call. The driver says which stream a thread's
    /// work goes to.
    pub fn on_card(device: Device, threads: usize, waits: bool) -> Self {
        Torch {
            device,
            chosen: Chosen::Card,
            waits,
            ..Torch::on_cpu(threads)
        }
    }

    /// A tensor of the host's numbers on the device.
    fn placed(&self, numbers: Tensor, shape: &[usize]) -> Result<Shared> {
        let shaped = checked(numbers.f_reshape(longs(shape)))?;
        if self.device == Device::Cpu {
            return Ok(Shared::from(shaped));
        }
        let kind = shaped.kind();
        shared(shaped.f_to_device_(self.device, kind, !self.waits, false))
    }

    /// The elements in `memory`, in place.
    ///
    /// # Safety
    /// As [`Tensors::read`].
    #[allow(unsafe_code)]
    unsafe fn wrapped(&self, memory: &Memory) -> Result<Tensor> {
        threads::enter(self.threads);
        let extents = longs(memory.shape());
        let strides = longs(memory.strides());
        let kind = kind_of(memory.dtype())?;
        // An address behind the end of a range may be no address of the device.
        if memory.elements() == 0 {
            return checked(Tensor::f_empty(extents, (kind, self.device)));
        }
        let address = memory.address().as_ptr().cast_const();
        // SAFETY: the caller keeps the memory for the life of the tensor.
        checked(unsafe { Tensor::f_from_blob(address, &extents, &strides, kind, self.device) })
    }
}

/// Extents or strides in libtorch's type.
fn longs(extents: &[usize]) -> Vec<i64> {
    extents.iter().map(|&extent| extent as i64).collect()
}

fn shared(result: std::result::Result<Tensor, tch::TchError>) -> Result<Shared> {
    checked(result).map(Shared::from)
}

/// An index as libtorch takes it: i32 or i64. A tensor of u8 would be a mask.
fn index_of(index: &Shared) -> Result<Shared> {
    match index.kind() {
        Kind::Uint8 => shared(index.f_to_kind(Kind::Int)),
        _ => Ok(index.clone()),
    }
}

#[allow(unsafe_code)] // The trait's functions on memory.
impl Tensors for Torch {
    type Tensor = Shared;

    unsafe fn read(&self, memory: &Memory) -> Result<Shared> {
        // SAFETY: as the caller promises.
        unsafe { self.wrapped(memory) }.map(Shared::from)
    }

    unsafe fn write(&self, x: &Shared, memory: &Memory) -> Result<()> {
        // SAFETY: as the caller promises.
        let mut to = unsafe { self.wrapped(memory) }?;
        checked(to.f_copy_(x))
    }

    fn floats(&self, values: &[f32], shape: &[usize]) -> Result<Shared> {
        threads::enter(self.threads);
        self.placed(checked(Tensor::f_from_slice(values))?, shape)
    }

    fn longs(&self, values: &[i64], shape: &[usize]) -> Result<Shared> {
        threads::enter(self.threads);
        self.placed(checked(Tensor::f_from_slice(values))?, shape)
    }

    unsafe fn to_host(&self, memory: &Memory) -> Result<Vec<i32>> {
        // SAFETY: as the caller promises.
        let there = unsafe { self.wrapped(memory) }?;
        let mut numbers = vec![0; memory.elements()];
        let count = numbers.len();
        if count > 0 {
            checked(checked(there.f_contiguous())?.f_copy_data(&mut numbers, count))?;
        }
        Ok(numbers)
    }

    unsafe fn bytes_to_host<'m>(&self, memory: &'m Memory) -> Result<Cow<'m, [u8]>> {
        if self.chosen == Chosen::Processors {
            let (address, len) = (memory.address().as_ptr(), memory.bytes());
            // SAFETY: the memory is the host's, and the caller keeps it unwritten.
            let bytes = unsafe { std::slice::from_raw_parts(address, len) };
            return Ok(Cow::Borrowed(bytes));
        }
        // SAFETY: as the caller promises.
        let there = unsafe { self.wrapped(&memory.as_bytes()) }?;
        let mut bytes = vec![0; memory.bytes()];
        if !bytes.is_empty() {
            let count = bytes.len();
            checked(there.f_copy_data(&mut bytes, count))?;
        }
        Ok(Cow::Owned(bytes))
    }

    fn full(&self, value: f64, shape: &[usize], dtype: DType) -> Result<Shared> {
        threads::enter(self.threads);
        let options = (kind_of(dtype)?, self.device);
        shared(Tensor::f_full(longs(shape), value, options))
    }

    fn shape(&self, x: &Shared) -> Vec<usize> {
        x.size().iter().map(|&extent| extent as usize).collect()
    }

    fn dtype(&self, x: &Shared) -> DType {
        dtype_of(x.kind())
    }

    fn cast(&self, x: &Shared, dtype: DType) -> Result<Shared> {
        let kind = kind_of(dtype)?;
        if x.kind() == kind {
            return Ok(x.clone());
        }
        shared(x.f_to_kind(kind))
    }

    fn reshape(&self, x: &Shared, shape: &[usize]) -> Result<Shared> {
        shared(x.f_reshape(longs(shape)))
    }

    fn transpose(&self, x: &Shared, a: usize, b: usize) -> Result<Shared> {
        shared(x.f_transpose(a as i64, b as i64))
    }

    fn narrow(&self, x: &Shared, dim: usize, start: usize, len: usize) -> Result<Shared> {
        shared(x.f_narrow(dim as i64, start as i64, len as i64))
    }

    fn concat(&self, parts: &[Shared], dim: usize) -> Result<Shared> {
        match parts {
            [part] => Ok(part.clone()),
            parts => shared(Tensor::f_cat(parts, dim as i64)),
        }
    }

    fn expand(&self, x: &Shared, shape: &[usize]) -> Result<Shared> {
        shared(x.f_expand(longs(shape), false))
    }

    fn select(&self, x: &Shared, dim: usize, index: &Shared) -> Result<Shared> {
        let index = index_of(index)?;
        // Of a table of numbers, the general form runs on all threads, and this one on one.
        if x.dim() == 1 {
            return shared(x.f_index(&[Some(&*index)]));
        }
        shared(x.f_index_select(dim as i64, &index))
    }

    fn pick(&self, x: &Shared, index: &Shared) -> Result<Shared> {
        shared(x.f_gather(1, index, false))
    }

    fn add_at(&self, x: &Shared, dim: usize, index: &Shared, values: &Shared) -> Result<Shared> {
        match self.chosen {
            Chosen::Processors => shared(x.f_index_add(dim as i64, index, values)),
            Chosen::Card => {
                let mut indices: Vec<Option<&Tensor>> = vec![None; dim];
                indices.push(Some(&**index));
                shared(x.f_index_put(&indices, values, true))
            }
        }
    }

    fn unary(&self, function: Unary, x: &Shared) -> Result<Shared> {
        shared(match function {
            Unary::Exp => x.f_exp(),
            Unary::Log => x.f_log(),
            Unary::Sqrt => x.f_sqrt(),
            Unary::Tanh => x.f_tanh(),
            Unary::Erf => x.f_erf(),
            Unary::Sigmoid => x.f_sigmoid(),
            Unary::Sin => x.f_sin(),
            Unary::Cos => x.f_cos(),
            Unary::Square => x.f_square(),
        })
    }

    fn binary(&self, function: Binary, a: &Shared, b: &Shared) -> Result<Shared> {
        shared(match function {
            Binary::Add => a.f_add(b),
            Binary::Sub => a.f_sub(b),
            Binary::Mul => a.f_mul(b),
            Binary::Div if dtype_of(a.kind()).is_float() => a.f_div(b),
            Binary::Div => a.f_div_tensor_mode(b, "floor"),
        })
    }

    fn affine(&self, x: &Shared, mul: f64, add: f64) -> Result<Shared> {
        let whole = !dtype_of(x.kind()).is_float();
        let number = |value: f64| {
            if whole {
                Scalar::int(value as i64)
            } else {
                Scalar::float(value)
            }
        };
        let times = |x: &Tensor| x.f_mul_scalar(number(mul));
        let plus = |x: &Tensor| x.f_add_scalar(number(add));
        match (mul == 1.0, add == 0.0) {
            (true, true) => Ok(x.clone()),
            (true, false) => shared(plus(x)),
            (false, true) => shared(times(x)),
            (false, false) => shared(plus(&checked(times(x))?)),
        }
    }

    fn compare(&self, comparison: Compare, a: &Shared, b: &Shared) -> Result<Shared> {
        shared(match comparison {
            Compare::Equal => a.f_eq_tensor(b),
            Compare::Less => a.f_lt_tensor(b),
            Compare::LessOrEqual => a.f_le_tensor(b),
        })
    }

    fn choose(&self, mask: &Shared, a: &Shared, b: &Shared) -> Result<Shared> {
        shared(a.f_where_self(mask, b))
    }

    fn reduce(&self, how: Reduce, x: &Shared, dim: usize) -> Result<Shared> {
        let dims = [dim as i64];
        shared(match how {
            Reduce::Sum => x.f_sum_dim_intlist(&dims[..], true, x.kind()),
            Reduce::Max => x.f_amax(dims, true),
            Reduce::Min => x.f_amin(dims, true),
        })
    }

    fn matmul(&self, a: &Shared, b: &Shared) -> Result<Shared> {
        shared(match a.dim() {
            2 => a.f_mm(b),
            _ => a.f_bmm(b),
        })
    }

    /// libtorch rounds a product of bf16 once, after sums in f32.
    fn rounded_product(&self, a: &Shared, b: &Shared) -> Result<Shared> {
        let b = self.cast(b, dtype_of(a.kind()))?;
        shared(a.f_mm(&b))
    }

    fn rounded_linear(&self, x: &Shared, w: &Shared, bias: Option<&Shared>) -> Result<Shared> {
        // libtorch adds a bias of the operands' dtype. A backend may round a weight to that dtype,
        // but no bias: where it has another one, all are f32.
        let dtype = match bias {
            Some(bias) if bias.kind() != x.kind() => DType::F32,
            _ => dtype_of(x.kind()),
        };
        let (x, w) = (self.cast(x, dtype)?, self.cast(w, dtype)?);
        let bias = bias.map(|bias| self.cast(bias, dtype)).transpose()?;
        shared(x.f_linear(&w, bias.as_deref()))
    }

    fn attention(&self, mask: &AttentionMask, operands: [&Shared; 3]) -> Result<[Shared; 2]> {
        match self.chosen {
            Chosen::Processors => attention::forward(self, mask, operands),
            Chosen::Card => products::forward(self, mask, operands),
        }
    }

    fn attention_backward(
        &self,
        mask: &AttentionMask,
        operands: [&Shared; 6],
    ) -> Result<[Shared; 3]> {
        match self.chosen {
            Chosen::Processors => attention::backward(self, mask, operands),
            Chosen::Card => products::backward(self, mask, operands),
        }
    }

    fn split(&self) -> Split {
        Split {
            elements: PART,
            threads: Threads::Library,
        }
    }
}
