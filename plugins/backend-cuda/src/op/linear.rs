//! `linear`, `linear_input_backward` and `linear_weight_backward`, over dense and packed weights.

use espalier_host_device::{Asked, Call, Epilogue as Asks, Made};
use espalier_interface::{DType, Result};

use super::few_rows::{self, FewRows};
use super::product::{Direction, Epilogue, Finish, Product, ProductLaunch};
use super::weight::{Weight, workspace};
use super::{Op, computed, gradient, op, stored, version};
use crate::arguments::address;
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
    let kinds = [dtype, weight.dtype];
    let product = Product::new(kit, kinds, [Direction::Deep; 2], Some([m, m]))?;
    let few_rows = FewRows::new(asked, kit, dtype)?;
    let (asks, bytes) = (Asks::after(1, asked), weight.workspace_bytes(n));
    let made = Made::new(move |call| {
        let mut finish = epilogue(asks, call);
        if let Some((range, slot)) = bias {
            finish.bias[slot] = address(call.param_place(range));
        }
        let few_rows = few_rows.as_ref().filter(|_| call.tokens <= few_rows::MOST);
        if let Some(few_rows) = few_rows {
            return few_rows.launch(call, finish);
        }
        let values = weight.all(call, workspace(call))?;
        product.launch(&ProductLaunch {
            matrices: [address(call.input_place(0)), values],
            strides: [m, m],
            result: address(call.output_place(0)),
            extents: [call.tokens, n, m],
            finish: Finish::Write(finish),
        })
    });
    Ok(asks.in_place(made.with_workspace(bytes)))
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
        let kinds = [dtype, weight.dtype];
        let directions = [Direction::Deep, Direction::Wide];
        Ok(InputGradient {
            product: Product::new(kit, kinds, directions, Some([n, m]))?,
            asks: Asks::after(inputs, asked),
            weight,
        })
    }

    fn workspace_bytes(&self) -> usize {
        self.weight.workspace_bytes(self.weight.size[0])
    }

    fn launch(&self, call: &Call<'_>) -> Result<()> {
        let [n, m] = self.weight.size;
        let values = self.weight.all(call, workspace(call))?;
        self.product.launch(&ProductLaunch {
            matrices: [address(call.input_place(0)), values],
            strides: [n, m],
            result: address(call.output_place(0)),
            extents: [call.tokens, m, n],
            finish: Finish::Write(epilogue(self.asks, call)),
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
        Ok(WeightGradient {
            product: Product::new(kit, [dtype; 2], [Direction::Wide; 2], Some(size))?,
            size,
            alpha: asked.alpha() as f32,
            dtype: asked.output(output).dtype,
            output,
        })
    }

    fn launch(&self, call: &Call<'_>) -> Result<()> {
        let [n, m] = self.size;
        self.product.launch(&ProductLaunch {
            matrices: [0, 1].map(|index| address(call.input_place(index))),
            strides: [n, m],
            result: address(call.output_place(self.output)),
            extents: [n, m, call.tokens],
            finish: Finish::Accumulate(self.alpha, self.dtype),
        })
    }
}

fn input_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let gradient = InputGradient::new(asked, kit, 1)?;
    let (asks, bytes) = (gradient.asks, gradient.workspace_bytes());
    let made = Made::new(move |call| gradient.launch(call));
    Ok(asks.in_place(made.with_workspace(bytes)))
}

fn weight_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let size = [0, 1].map(|index| asked.columns(asked.input(index)));
    let gradient = WeightGradient::new(asked, kit, size, 0)?;
    Ok(Made::new(move |call| gradient.launch(call)))
}

/// Both gradients.
fn both_backward(asked: &Asked<'_>, kit: &Kit) -> Result<Made> {
    let of_input = InputGradient::new(asked, kit, 2)?;
    let of_weight = WeightGradient::new(asked, kit, of_input.weight.size, 1)?;
    let (asks, bytes) = (of_input.asks, of_input.workspace_bytes());
    let made = Made::new(move |call| {
        of_weight.launch(call)?;
        of_input.launch(call)
    });
    Ok(asks.in_place(made.with_workspace(bytes)))
}
