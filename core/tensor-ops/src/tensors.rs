//! What a tensor library does for the ops: memory in and out, shapes, arithmetic, products.

pub mod attention;
mod functions;
mod split;

use std::borrow::Cow;

use espalier_interface::{DType, Result};

use crate::Memory;
use attention::AttentionMask;
pub use functions::{Binary, Compare, Reduce, Unary};
pub use split::{Split, Threads};

/// A tensor library on one device.
///
/// A failure of the library has the code `DEVICE`, or `OUT_OF_MEMORY` where it had no memory, and
/// the library's words. The op is named by the caller.
///
/// Legend: dimensions count from 0. Both sides of a function of two tensors have one dtype and
/// broadcast as in NumPy: extents of 1 are repeated, and leading dimensions may be missing. Float
/// tensors that are computed with are f32, or f64 where an op says so; bf16 and f16 are cast first.
/// Integers are i64, codes and segments are u8. A mask is what [`Tensors::compare`] returns, of a
/// dtype of the library's.
///
/// Same operands give the same bits at every call.
pub trait Tensors: Send + Sync + Sized + 'static {
    /// A tensor. A clone shares its numbers. It may move to another thread, where the library asks
    /// for the host's threads ([`Threads::Host`]).
    type Tensor: Clone + Send;

    /// The elements in `memory` as a tensor of its dtype and shape: in place where the library can,
    /// else a copy. Dtypes are f64, f32, bf16, f16, i64, i32 and u8.
    ///
    /// # Safety
    /// The memory may be read until the launch ends. Where it is written meanwhile, by
    /// [`Tensors::write`], the tensor and all that shares its numbers are used no more.
    ///
    /// # Errors
    /// As above, and `UNSUPPORTED` for a dtype that the library lacks.
    #[allow(unsafe_code)]
    unsafe fn read(&self, memory: &Memory) -> Result<Self::Tensor>;

    /// Writes `x` to `memory`, of its shape, rounded to the memory's dtype: to nearest, ties to
    /// even.
    ///
    /// # Safety
    /// The memory may be written, and nothing else uses it meanwhile. `x` may be made of tensors
    /// that were read from the same memory.
    ///
    /// # Errors
    /// As [`Tensors::read`].
    #[allow(unsafe_code)]
    unsafe fn write(&self, x: &Self::Tensor, memory: &Memory) -> Result<()>;

    /// f32 numbers of the host, row major.
    ///
    /// # Errors
    /// As above.
    fn floats(&self, values: &[f32], shape: &[usize]) -> Result<Self::Tensor>;

    /// i64 numbers of the host, row major.
    ///
    /// # Errors
    /// As above.
    fn longs(&self, values: &[i64], shape: &[usize]) -> Result<Self::Tensor>;

    /// The integers in memory, `[n]` i32, on the host: boundaries, places in a cache. A device that
    /// finishes later waits for them.
    ///
    /// # Safety
    /// As [`Tensors::read`].
    ///
    /// # Errors
    /// As above.
    #[allow(unsafe_code)]
    unsafe fn to_host(&self, memory: &Memory) -> Result<Vec<i32>>;

    /// The bytes of a segment on the host, for a quantizer that decodes it there. The default is
    /// for a library whose memory is the host's. A device with memory of its own copies them, and
    /// waits for the copy.
    ///
    /// # Safety
    /// As [`Tensors::read`], and nothing writes the memory until the launch ends.
    ///
    /// # Errors
    /// As above.
    #[allow(unsafe_code)]
    unsafe fn bytes_to_host<'m>(&self, memory: &'m Memory) -> Result<Cow<'m, [u8]>> {
        let (address, len) = (memory.address().as_ptr(), memory.bytes());
        // SAFETY: the host has the memory, and the caller keeps it unwritten.
        Ok(Cow::Borrowed(unsafe {
            std::slice::from_raw_parts(address, len)
        }))
    }

    /// `value` everywhere, in a float dtype, i64 or u8.
    ///
    /// # Errors
    /// As above.
    fn full(&self, value: f64, shape: &[usize], dtype: DType) -> Result<Self::Tensor>;

    /// The extents of `x`.
    fn shape(&self, x: &Self::Tensor) -> Vec<usize>;

    /// The dtype of `x`, which is no mask.
    fn dtype(&self, x: &Self::Tensor) -> DType;

    /// `x` in another dtype: floats to the nearest, ties to even; integers exactly. A mask becomes
    /// 1 and 0. `x` itself where it has the dtype.
    ///
    /// # Errors
    /// As above.
    fn cast(&self, x: &Self::Tensor, dtype: DType) -> Result<Self::Tensor>;

    /// The same numbers, row major, in other extents.
    ///
    /// # Errors
    /// As above.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor>;

    /// Two dimensions exchanged; a view where the library has views.
    ///
    /// # Errors
    /// As above.
    fn transpose(&self, x: &Self::Tensor, a: usize, b: usize) -> Result<Self::Tensor>;

    /// `len` of the elements along `dim`, from `start` on.
    ///
    /// # Errors
    /// As above.
    fn narrow(
        &self,
        x: &Self::Tensor,
        dim: usize,
        start: usize,
        len: usize,
    ) -> Result<Self::Tensor>;

    /// The tensors one after the other along `dim`.
    ///
    /// # Errors
    /// As above.
    fn concat(&self, parts: &[Self::Tensor], dim: usize) -> Result<Self::Tensor>;

    /// `x` repeated to `shape`, as two sides of a function are.
    ///
    /// # Errors
    /// As above.
    fn expand(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor>;

    /// The slices of `x` along `dim` at `index`, `[n]` of i64 or u8.
    ///
    /// # Errors
    /// As above, also for an index outside.
    fn select(&self, x: &Self::Tensor, dim: usize, index: &Self::Tensor) -> Result<Self::Tensor>;

    /// Of each row of x `[T, N]` the number at index `[T, 1]` of i64, as `[T, 1]`.
    ///
    /// # Errors
    /// As [`Tensors::select`].
    fn pick(&self, x: &Self::Tensor, index: &Self::Tensor) -> Result<Self::Tensor>;

    /// x with the slices of `values` added to its slices along `dim` at `index`, `[n]` of i64, in
    /// the order of `index`. An index may occur more than once.
    ///
    /// # Errors
    /// As [`Tensors::select`].
    fn add_at(
        &self,
        x: &Self::Tensor,
        dim: usize,
        index: &Self::Tensor,
        values: &Self::Tensor,
    ) -> Result<Self::Tensor>;

    /// A function of each number.
    ///
    /// # Errors
    /// As above.
    fn unary(&self, function: Unary, x: &Self::Tensor) -> Result<Self::Tensor>;

    /// A function of two numbers each. Each of add, sub, mul and div is rounded once.
    ///
    /// # Errors
    /// As above, also for shapes that do not broadcast.
    fn binary(&self, function: Binary, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    /// `x mul + add`, the numbers in the dtype of x.
    ///
    /// # Errors
    /// As above.
    fn affine(&self, x: &Self::Tensor, mul: f64, add: f64) -> Result<Self::Tensor>;

    /// The mask of the pairs for which a comparison holds.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn compare(
        &self,
        comparison: Compare,
        a: &Self::Tensor,
        b: &Self::Tensor,
    ) -> Result<Self::Tensor>;

    /// `a` where the mask holds, else `b`. The three broadcast.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn choose(
        &self,
        mask: &Self::Tensor,
        a: &Self::Tensor,
        b: &Self::Tensor,
    ) -> Result<Self::Tensor>;

    /// The numbers along `dim` reduced to one, in a dimension of 1.
    ///
    /// # Errors
    /// As above, also for a maximum or minimum of no numbers.
    fn reduce(&self, how: Reduce, x: &Self::Tensor, dim: usize) -> Result<Self::Tensor>;

    /// Matrix products of the last two dimensions: `[I, K] [K, J]`, or `[B, I, K] [B, K, J]`. Sides
    /// may be transposed views. Sums are in f32, or f64 for f64.
    ///
    /// # Errors
    /// As above.
    fn matmul(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor>;

    /// The product of two matrices whose result is rounded to the compute dtype next, which is the
    /// dtype of `a`. `b` has any float dtype. A library may return the rounded product, and may
    /// round `b` to bf16 where `a` is bf16. The default is f32's product.
    ///
    /// # Shapes
    /// a `[T, K]`, b `[K, J]`, either a transposed view -> `[T, J]`.
    ///
    /// # Errors
    /// As above.
    fn rounded_product(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        let (a, b) = (self.cast(a, DType::F32)?, self.cast(b, DType::F32)?);
        self.matmul(&a, &b)
    }

    /// `x W^T + bias`, rounded as [`Tensors::rounded_product`] is: once, after the bias is added.
    ///
    /// # Shapes
    /// x `[T, M]`, w `[N, M]`, bias `[N]` -> `[T, N]`.
    ///
    /// # Errors
    /// As above.
    fn rounded_linear(
        &self,
        x: &Self::Tensor,
        w: &Self::Tensor,
        bias: Option<&Self::Tensor>,
    ) -> Result<Self::Tensor> {
        let transposed = self.transpose(w, 0, 1)?;
        let Some(bias) = bias else {
            return self.rounded_product(x, &transposed);
        };
        let (x, w) = (
            self.cast(x, DType::F32)?,
            self.cast(&transposed, DType::F32)?,
        );
        let product = self.matmul(&x, &w)?;
        self.add(&product, &self.cast(bias, DType::F32)?)
    }

    /// Rows of a matrix in memory, `[V, D]`, at `index`, `[T]` i32 in memory, as `[T, D]`. The
    /// default makes a tensor of the whole matrix.
    ///
    /// # Safety
    /// As [`Tensors::read`].
    ///
    /// # Errors
    /// As [`Tensors::select`].
    #[allow(unsafe_code)]
    unsafe fn read_rows(&self, matrix: &Memory, index: &Memory) -> Result<Self::Tensor> {
        // SAFETY: as this function.
        let (matrix, index) = unsafe { (self.read(matrix)?, self.read(index)?) };
        self.select(&matrix, 0, &self.cast(&index, DType::I64)?)
    }

    /// Attention of a sequence, or of the part of its heads that a call is given; see
    /// [`attention`].
    ///
    /// # Shapes
    /// q `[H, n, K]`, k and v `[J, m, K]`, f32 -> out `[H, n, K]` and lse `[H, n, 1]`.
    ///
    /// # Errors
    /// As above.
    fn attention(
        &self,
        mask: &AttentionMask,
        [q, k, v]: [&Self::Tensor; 3],
    ) -> Result<[Self::Tensor; 2]> {
        attention::forward(self, mask, [q, k, v])
    }

    /// The gradients of [`Tensors::attention`], from dout, q, k, v, out and lse, the last
    /// `[H, n, 1]`.
    ///
    /// # Shapes
    /// f32 -> dq `[H, n, K]`, dk and dv `[J, n, K]`.
    ///
    /// # Errors
    /// As above.
    fn attention_backward(
        &self,
        mask: &AttentionMask,
        operands: [&Self::Tensor; 6],
    ) -> Result<[Self::Tensor; 3]> {
        attention::backward(self, mask, operands)
    }

    /// The dtype in which attention is given q, k, v, out and dout of dtype `compute`. With bf16, a
    /// library overrides both methods. Then the results may be bf16, each rounded once; lse is f32.
    fn attention_dtype(&self, compute: DType) -> DType {
        let _ = compute;
        DType::F32
    }

    /// Most logits of a block of queries, for all heads of a call together: a constant of at most
    /// 2^20.
    fn logits_at_once(&self) -> usize {
        1 << 20
    }

    /// How many elements an expression over rows or runs takes at once, and on whose threads the
    /// parts are computed. It does not depend on the number of threads, as results must not.
    fn split(&self) -> Split {
        Split {
            elements: 1 << 20,
            threads: Threads::Library,
        }
    }

    /// `a + b`.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        self.binary(Binary::Add, a, b)
    }

    /// `a - b`.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn sub(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        self.binary(Binary::Sub, a, b)
    }

    /// `a b`.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn mul(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        self.binary(Binary::Mul, a, b)
    }

    /// `a / b`.
    ///
    /// # Errors
    /// As [`Tensors::binary`].
    fn div(&self, a: &Self::Tensor, b: &Self::Tensor) -> Result<Self::Tensor> {
        self.binary(Binary::Div, a, b)
    }

    /// `factor x`; `x` itself for a factor of 1.
    ///
    /// # Errors
    /// As above.
    fn scaled(&self, x: &Self::Tensor, factor: f64) -> Result<Self::Tensor> {
        if factor == 1.0 {
            return Ok(x.clone());
        }
        self.affine(x, factor, 0.0)
    }

    /// The sum along `dim`, in a dimension of 1.
    ///
    /// # Errors
    /// As above.
    fn sum(&self, x: &Self::Tensor, dim: usize) -> Result<Self::Tensor> {
        self.reduce(Reduce::Sum, x, dim)
    }

    /// The integers from `start` to `end - 1`, `[end - start]` of i64.
    ///
    /// # Errors
    /// As above.
    fn range(&self, start: usize, end: usize) -> Result<Self::Tensor> {
        let numbers: Vec<i64> = (start as i64..end as i64).collect();
        self.longs(&numbers, &[numbers.len()])
    }
}
