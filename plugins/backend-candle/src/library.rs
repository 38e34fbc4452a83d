//! candle-core as the tensor library of the ops.
#![allow(unsafe_code)] // The memory of launches is read and written.

use std::sync::Arc;

use candle_core::{DType as Type, Device, Error, Tensor};
use espalier_interface::{DType, ErrorCode, PluginError, Result, Services};
use espalier_tensor_ops::{Binary, Compare, Memory, Reduce, Split, Tensors, Threads, Unary};
use half::{bf16, f16};

use crate::copies::Copies;
use crate::transfer;

/// Elements of a part. From twice as many on, candle splits functions of numbers over threads of
/// its own, which wait for each other without sleeping; the host's threads are faster.
const PART: usize = 1 << 15;

/// candle on the processor.
pub struct Candle {
    copies: Copies,
}

impl Candle {
    /// candle, which logs the bytes that were copied when it is dropped.
    pub fn new(services: Arc<dyn Services>) -> Self {
        Candle {
            copies: Copies::new(services),
        }
    }
}

/// An error of candle's.
fn failed(error: Error) -> PluginError {
    PluginError::new(ErrorCode::DEVICE, format!("candle: {error}"))
}

fn missing(dtype: DType) -> PluginError {
    PluginError::unsupported(format!("candle computes with no numbers of {dtype}"))
}

/// candle's dtype.
fn to_candle(dtype: DType) -> Result<Type> {
    Ok(match dtype {
        DType::F64 => Type::F64,
        DType::F32 => Type::F32,
        DType::BF16 => Type::BF16,
        DType::F16 => Type::F16,
        DType::I64 => Type::I64,
        DType::I32 => Type::I32,
        DType::U8 => Type::U8,
        other => return Err(missing(other)),
    })
}

/// The shape of several tensors that broadcast.
fn common_shape(all: &[&Tensor]) -> Result<candle_core::Shape> {
    let mut shape = all[0].shape().clone();
    for x in &all[1..] {
        shape = shape
            .broadcast_shape_binary_op(x.shape(), "choose")
            .map_err(failed)?;
    }
    Ok(shape)
}

impl Tensors for Candle {
    type Tensor = Tensor;

    unsafe fn read(&self, memory: &Memory) -> Result<Tensor> {
        self.copies.read(memory.bytes());
        // SAFETY: the caller may read the memory, whose dtype is that of the elements.
        let read = unsafe {
            match memory.dtype() {
                DType::F64 => transfer::read::<f64>(memory),
                DType::F32 => transfer::read::<f32>(memory),
                DType::BF16 => transfer::read::<bf16>(memory),
                DType::F16 => transfer::read::<f16>(memory),
                DType::I64 => transfer::read::<i64>(memory),
                DType::I32 => transfer::read::<i32>(memory),
                DType::U8 => transfer::read::<u8>(memory),
                other => return Err(missing(other)),
            }
        };
        read.map_err(failed)
    }

    unsafe fn write(&self, x: &Tensor, memory: &Memory) -> Result<()> {
        self.copies.written(memory.bytes());
        if x.dims() != memory.shape() {
            let message = format!("a result of {:?} for {:?}", x.dims(), memory.shape());
            return Err(PluginError::new(ErrorCode::DEVICE, message));
        }
        let x = self.cast(x, memory.dtype())?;
        // SAFETY: the caller may write the memory, whose dtype is that of the elements.
        let written = unsafe {
            match memory.dtype() {
                DType::F64 => transfer::write::<f64>(&x, memory),
                DType::F32 => transfer::write::<f32>(&x, memory),
                DType::BF16 => transfer::write::<bf16>(&x, memory),
                DType::F16 => transfer::write::<f16>(&x, memory),
                DType::I64 => transfer::write::<i64>(&x, memory),
                DType::I32 => transfer::write::<i32>(&x, memory),
                DType::U8 => transfer::write::<u8>(&x, memory),
                other => return Err(missing(other)),
            }
        };
        written.map_err(failed)
    }

    fn floats(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(values, shape, &Device::Cpu).map_err(failed)
    }

    fn longs(&self, values: &[i64], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(values, shape, &Device::Cpu).map_err(failed)
    }

    unsafe fn to_host(&self, memory: &Memory) -> Result<Vec<i32>> {
        // SAFETY: the caller may read the memory, which is the host's and aligned to 4 bytes.
        let values = unsafe {
            std::slice::from_raw_parts(memory.address().cast().as_ptr(), memory.elements())
        };
        Ok(values.to_vec())
    }

    fn full(&self, value: f64, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let full = match dtype {
            DType::F64 => Tensor::full(value, shape, &Device::Cpu),
            DType::F32 => Tensor::full(value as f32, shape, &Device::Cpu),
            DType::I64 => Tensor::full(value as i64, shape, &Device::Cpu),
            DType::U8 => Tensor::full(value as u8, shape, &Device::Cpu),
            other => return Err(missing(other)),
        };
        full.map_err(failed)
    }

    fn shape(&self, x: &Tensor) -> Vec<usize> {
        x.dims().to_vec()
    }

    fn dtype(&self, x: &Tensor) -> DType {
        match x.dtype() {
            Type::F64 => DType::F64,
            Type::F32 => DType::F32,
            Type::BF16 => DType::BF16,
            Type::F16 => DType::F16,
            Type::I64 => DType::I64,
            Type::I32 => DType::I32,
            _ => DType::U8,
        }
    }

    fn cast(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        x.to_dtype(to_candle(dtype)?).map_err(failed)
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        x.reshape(shape).map_err(failed)
    }

    fn transpose(&self, x: &Tensor, a: usize, b: usize) -> Result<Tensor> {
        x.transpose(a, b).map_err(failed)
    }

    fn narrow(&self, x: &Tensor, dim: usize, start: usize, len: usize) -> Result<Tensor> {
        x.narrow(dim, start, len).map_err(failed)
    }

    fn concat(&self, parts: &[Tensor], dim: usize) -> Result<Tensor> {
        match parts {
            [part] => Ok(part.clone()),
            parts => Tensor::cat(parts, dim).map_err(failed),
        }
    }

    fn expand(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        x.broadcast_as(shape).map_err(failed)
    }

    fn select(&self, x: &Tensor, dim: usize, index: &Tensor) -> Result<Tensor> {
        let select = || {
            // candle takes the largest number of an index's dtype for no index, so that byte 255
            // needs a wider one.
            let index = match index.dtype() {
                Type::U8 => &index.to_dtype(Type::U32)?,
                _ => index,
            };
            x.contiguous()?.index_select(index, dim)
        };
        select().map_err(failed)
    }

    fn pick(&self, x: &Tensor, index: &Tensor) -> Result<Tensor> {
        let pick = || x.contiguous()?.gather(&index.contiguous()?, 1);
        pick().map_err(failed)
    }

    fn add_at(&self, x: &Tensor, dim: usize, index: &Tensor, values: &Tensor) -> Result<Tensor> {
        let add = || x.index_add(&index.contiguous()?, &values.contiguous()?, dim);
        add().map_err(failed)
    }

    fn unary(&self, function: Unary, x: &Tensor) -> Result<Tensor> {
        let applied = match function {
            Unary::Exp => x.exp(),
            Unary::Log => x.log(),
            Unary::Sqrt => x.sqrt(),
            Unary::Tanh => x.tanh(),
            Unary::Erf => x.erf(),
            Unary::Sigmoid => x
                .neg()
                .and_then(|x| x.exp())
                .and_then(|x| x.affine(1.0, 1.0))
                .and_then(|x| x.recip()),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Square => x.sqr(),
        };
        applied.map_err(failed)
    }

    fn binary(&self, function: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let applied = match function {
            Binary::Add => a.broadcast_add(b),
            Binary::Sub => a.broadcast_sub(b),
            Binary::Mul => a.broadcast_mul(b),
            Binary::Div => a.broadcast_div(b),
        };
        applied.map_err(failed)
    }

    fn affine(&self, x: &Tensor, mul: f64, add: f64) -> Result<Tensor> {
        x.affine(mul, add).map_err(failed)
    }

    fn compare(&self, comparison: Compare, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let compared = match comparison {
            Compare::Equal => a.broadcast_eq(b),
            Compare::Less => a.broadcast_lt(b),
            Compare::LessOrEqual => a.broadcast_le(b),
        };
        compared.map_err(failed)
    }

    fn choose(&self, mask: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let shape = common_shape(&[mask, a, b])?;
        let choose = || {
            let mask = mask.broadcast_as(&shape)?;
            mask.where_cond(&a.broadcast_as(&shape)?, &b.broadcast_as(&shape)?)
        };
        choose().map_err(failed)
    }

    fn reduce(&self, how: Reduce, x: &Tensor, dim: usize) -> Result<Tensor> {
        let reduce = || match how {
            // candle adds along other dimensions than the last one by one, and a product does not.
            Reduce::Sum if x.rank() == 2 && dim == 0 && x.dtype() == Type::F32 => {
                let ones = Tensor::ones((1, x.dims()[0]), Type::F32, &Device::Cpu)?;
                ones.matmul(x)
            }
            Reduce::Sum => x.contiguous()?.sum_keepdim(dim),
            Reduce::Max => x.contiguous()?.max_keepdim(dim),
            Reduce::Min => x.contiguous()?.min_keepdim(dim),
        };
        reduce().map_err(failed)
    }

    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        a.matmul(b).map_err(failed)
    }

    unsafe fn read_rows(&self, matrix: &Memory, index: &Memory) -> Result<Tensor> {
        // SAFETY: as this function.
        let index = unsafe { self.to_host(index)? };
        let row = matrix.bytes() / matrix.shape()[0].max(1);
        self.copies.read(index.len() * row);
        // SAFETY: the caller may read the memory, whose dtype is that of the elements.
        let read = unsafe {
            match matrix.dtype() {
                DType::F32 => transfer::read_rows::<f32>(matrix, &index),
                DType::BF16 => transfer::read_rows::<bf16>(matrix, &index),
                DType::F16 => transfer::read_rows::<f16>(matrix, &index),
                other => return Err(missing(other)),
            }
        };
        read.map_err(failed)
    }

    fn logits_at_once(&self) -> usize {
        2 * PART - 1
    }

    fn split(&self) -> Split {
        Split {
            elements: PART,
            threads: Threads::Host,
        }
    }
}
