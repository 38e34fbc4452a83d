//! `linear`, `linear_input_backward` and `linear_weight_backward`, over dense and packed weights.

use espalier_host_device::{Asked, Call, Epilogue as Asks, Made};
use espalier_interface::{DType, Result};

use super::few_rows::{self, FewRows};
use super::product::{Epilogue, Finish, Product, ProductLaunch, ProductRequest};
use super::weight::{Weight, workspace};
use super::{Op, computed, gradient, op, stored, version};
use crate::arguments::address;
use crate::direction::Direction;
use crate::kit::Kit;

pub const OPS: &[Op] = &[
    op("linear", forward),
    version(2, "linear", forward),
    version(3, "linear", forward),
    op("linear_input_backward", input_backward),
    version(2, "linear_input_backward", input_backward),
    version(3, "linear_input_backward", both_backward),
    op("linear_weight_backward", weight_backward),
    version(2, "linear_weight_backward", weight_backward),
];

/// Dtypes of a weight's values that products in `dtype` read.
fn readable(dtype: DType) -> &'static [DType] {
    match dtype {
        DType::F32 => &[DType::F32, DType::BF16, DType::F16],
        _ => &[DType::BF16],
    }
}

/// The epilogue of a launch.
fn epilogue(asks: Asks, call: &Call<'_>) -> Epilogue {
    let at = |index: Option<usize>| index.map_or(0, |index| address(call.input_place(index)));
    Epilogue {
        added: at(asks.added),
        residual: at(asks.residual),
        alpha: asks.alpha as f32,
        ..Epilogue::SUM
    }
}

fn forward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let dtype = asked.input(0).dtype;
    computed(asked, dtype)?;
    let weight = Weight::new(asked, kit, [0, 0], readable(dtype))?;
    let bias = match asked.request.params.len() {
        2 => Some((weight.ranges, bias_slot(asked)?)),
        _ => None,
    };
    let [n, m] = weight.size;
    let asks = Asks::after(1, asked);
    let product = Product::new(
        kit,
        &ProductRequest {
            dtypes: [dtype, weight.dtype],
            directions: [Direction::Deep; 2],
            strides: [m, m],
            has_fixed_strides: true,
            extents: [most_tokens(asked), n, m],
            result: dtype,
            bias: bias.map(|_| asked.stored(1)).transpose()?,
            alpha: asks.alpha as f32,
            is_added_to: asks.added.is_some(),
            has_residual: asks.residual.is_some(),
        },
    )?;
    let few_rows = FewRows::new(asked, kit, dtype)?;
    let values_bytes = weight.workspace_bytes(n);
    let bytes = values_bytes + product.workspace_bytes();
    let made = Made::new(move |call| {
        let mut finish = epilogue(asks, call);
        if let Some((range, slot)) = bias {
            finish.bias[slot] = address(call.param_place(range));
        }
        let few_rows = few_rows.as_ref().filter(|_| call.tokens <= few_rows::MOST);
        if let Some(few_rows) = few_rows {
            return few_rows.launch(call, finish);
        }
        let workspace = workspace(call);
        let values = weight.all(call, workspace)?;
        product.launch(&ProductLaunch {
            matrices: [address(call.input_place(0)), values],
            strides: [m, m],
            result: address(call.output_place(0)),
            extents: [call.tokens, n, m],
            finish: Finish::Write(finish),
            workspace: workspace + values_bytes as u64,
        })
    });
    Ok(asks.in_place(made.with_workspace(bytes)))
}

/// Tokens of the largest launch.
fn most_tokens(asked: &Asked<'_>) -> usize {
    asked.request.max_tokens as usize
}

/// The place of a bias of its dtype among those of an epilogue.
fn bias_slot(asked: &Asked<'_>) -> Result<usize> {
    let dtype = asked.stored(1)?;
    stored(asked, dtype)?;
    let slots = [DType::F32, DType::BF16, DType::F16];
    let slot = slots.iter().position(|slot| *slot == dtype);
    Ok(slot.expect("a dtype of stored weights"))
}

/// The gradient of the input: dy `[T, N]`, weight `[N, M]` -> dx `[T, M]`.
struct InputGradient {
    weight: Weight,
    product: Product,
    asks: Asks,
}

impl InputGradient {
    /// The gradient of a request with `inputs` inputs before what is added.
    fn new(asked: &Asked<'_>, kit: &Kit, inputs: usize) -> Result<Self> {
        let dtype = asked.input(0).dtype;
        computed(asked, dtype)?;
        let weight = Weight::new(asked, kit, [0, 0], readable(dtype))?;
        let [n, m] = weight.size;
        let asks = Asks::after(inputs, asked);
        let products = ProductRequest {
            dtypes: [dtype, weight.dtype],
            directions: [Direction::Deep, Direction::Wide],
            strides: [n, m],
            has_fixed_strides: true,
            extents: [most_tokens(asked), m, n],
            result: dtype,
            bias: None,
            alpha: asks.alpha as f32,
            is_added_to: asks.added.is_some(),
            has_residual: asks.residual.is_some(),
        };
        Ok(InputGradient {
            product: Product::new(kit, &products)?,
            asks,
            weight,
        })
    }

    /// Bytes of the weight's values, which stand first in a launch's workspace.
    fn values_bytes(&self) -> usize {
        self.weight.workspace_bytes(self.weight.size[0])
    }

    fn workspace_bytes(&self) -> usize {
        self.values_bytes() + self.product.workspace_bytes()
    }

    /// Puts the product on this thread's stream, with the launch's workspace.
    fn launch(&self, call: &Call<'_>, workspace: u64) -> Result<()> {
        let [n, m] = self.weight.size;
        let values = self.weight.all(call, workspace)?;
        self.product.launch(&ProductLaunch {
            matrices: [address(call.input_place(0)), values],
            strides: [n, m],
            result: address(call.output_place(0)),
            extents: [call.tokens, m, n],
            finish: Finish::Write(epilogue(self.asks, call)),
            workspace: workspace + self.values_bytes() as u64,
        })
    }
}

/// The gradient of the weight: dy `[T, N]`, x `[T, M]` -> dweight `[N, M]`, added to.
struct WeightGradient {
    product: Product,
    size: [usize; 2],
    alpha: f32,
    /// Of the gradient that is added to.
    dtype: DType,
    output: usize,
}

impl WeightGradient {
    /// The gradient of a weight `[N, M]`, output `output` of a request.
    fn new(asked: &Asked<'_>, kit: &Kit, size: [usize; 2], output: usize) -> Result<Self> {
        let dtype = asked.input(0).dtype;
        computed(asked, dtype)?;
        gradient(asked, output)?;
        let [n, m] = size;
        let products = ProductRequest {
            dtypes: [dtype; 2],
            directions: [Direction::Wide; 2],
            strides: size,
            has_fixed_strides: true,
            extents: [n, m, most_tokens(asked)],
            result: asked.output(output).dtype,
            bias: None,
            alpha: asked.alpha() as f32,
            is_added_to: true,
            has_residual: false,
        };
        Ok(WeightGradient {
            product: Product::new(kit, &products)?,
            size,
            alpha: products.alpha,
            dtype: products.result,
            output,
        })
    }

    /// Puts the product on this thread's stream, with the workspace of its own at `workspace`.
    fn launch(&self, call: &Call<'_>, workspace: u64) -> Result<()> {
        let [n, m] = self.size;
        self.product.launch(&ProductLaunch {
            matrices: [0, 1].map(|index| address(call.input_place(index))),
            strides: [n, m],
            result: address(call.output_place(self.output)),
            extents: [n, m, call.tokens],
            finish: Finish::Accumulate(self.alpha, self.dtype),
            workspace,
        })
    }
}

fn input_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let gradient = InputGradient::new(asked, kit, 1)?;
    let (asks, bytes) = (gradient.asks, gradient.workspace_bytes());
    let made = Made::new(move |call| gradient.launch(call, workspace(call)));
    Ok(asks.in_place(made.with_workspace(bytes)))
}

fn weight_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let size = [0, 1].map(|index| asked.columns(asked.input(index)));
    let gradient = WeightGradient::new(asked, kit, size, 0)?;
    let bytes = gradient.product.workspace_bytes();
    Ok(Made::new(move |call| gradient.launch(call, workspace(call))).with_workspace(bytes))
}

/// Both gradients.
fn both_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let of_input = InputGradient::new(asked, kit, 2)?;
    let of_weight = WeightGradient::new(asked, kit, of_input.weight.size, 1)?;
    let asks = of_input.asks;
    let values_bytes = of_input.values_bytes();
    // One after the other, in the same workspace.
    let of_products = [&of_input.product, &of_weight.product].map(Product::workspace_bytes);
    let bytes = values_bytes + of_products[0].max(of_products[1]);
    let made = Made::new(move |call| {
        let workspace = workspace(call);
        of_weight.launch(call, workspace + values_bytes as u64)?;
        of_input.launch(call, workspace)
    });
    Ok(asks.in_place(made.with_workspace(bytes)))
}
