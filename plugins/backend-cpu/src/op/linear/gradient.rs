//! A weight's gradient, to which the product of a launch is added: in the dtype of sums or in bf16.

use espalier_host_device::{Asked, Call, Number};
use espalier_interface::{DType, Result};
use espalier_kernels::element::Element;
use espalier_kernels::linear::{self as kernel, WeightGradient};
use espalier_kernels::matmul::{Isa, Scalar};

/// The gradient of a weight among the outputs.
#[derive(Clone, Copy)]
pub(super) struct Gradient {
    /// Index of the output.
    index: usize,
    /// Its rows and columns.
    size: (usize, usize),
    /// Factor of the product.
    alpha: f64,
    /// Whether it has the dtype of tokens, where that is narrower than that of sums.
    is_narrow: bool,
}

impl Gradient {
    /// Output `index`, of `size`.
    ///
    /// # Errors
    /// A dtype that this backend does not add to.
    pub fn of(asked: &Asked<'_>, index: usize, size: (usize, usize), alpha: f64) -> Result<Self> {
        let (tokens, found) = (asked.input(0).dtype, asked.output(index).dtype);
        let is_narrow = found == DType::BF16;
        if is_narrow && tokens != found {
            return Err(asked.bad_dtype(found, "that of sums, or bf16 where tokens are bf16"));
        }
        Ok(Gradient {
            index,
            size,
            alpha,
            is_narrow,
        })
    }

    /// Adds the product of a launch.
    pub fn add<E: Element + Number>(
        self,
        isa: Isa,
        call: &Call<'_>,
        [dy, x]: [&[E]; 2],
        space: &mut [u8],
    ) where
        E::Acc: Scalar + Number,
    {
        let (size, alpha) = (self.size, self.alpha);
        if self.is_narrow {
            let values = call.output::<E>(self.index);
            let dweight = WeightGradient {
                values,
                size,
                alpha,
            };
            kernel::narrow_weight_backward(isa, call.services, dy, x, dweight, space);
        } else {
            let values = call.output::<E::Acc>(self.index);
            let dweight = WeightGradient {
                values,
                size,
                alpha,
            };
            kernel::weight_backward(isa, call.services, dy, x, dweight, space);
        }
    }

    /// Bytes of workspace of a launch on `tokens` tokens.
    pub fn workspace_bytes<E: Element>(self, isa: Isa, threads: usize, tokens: usize) -> usize
    where
        E::Acc: Scalar,
    {
        let most = [self.size.0, self.size.1, tokens];
        if self.is_narrow {
            kernel::sum_workspace_bytes::<E>(isa, threads, most)
        } else {
            kernel::workspace_bytes::<E::Acc>(isa, threads, most)
        }
    }
}
