//! A plan -> its memory in parts, each with the products that it is the sum of.

use std::fmt;

use espalier_interface::{DType, WeightLayout};
use espalier_plan::plan::{MemoryPlan, RunPlan};
use serde::Serialize;

/// A product that can be checked by hand: `3212749824 trained params x 2 bytes`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Product {
    /// Number of things.
    pub count: u64,
    /// What they are.
    pub of: String,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A part of a plan's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPart {
    /// Its name.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// The products that it is the sum of; empty where it has no short arithmetic.
    pub products: Vec<Product>,
}

impl Product {
    /// `count` things that take `bytes` together; none without things.
    fn of(count: u64, of: impl Into<String>, bytes: u64) -> Option<Self> {
        let of = of.into();
        (count > 0 && bytes > 0).then_some(Product { count, of, bytes })
    }
}

/// The count, what is counted and the size of each, in bits where it is less than a byte and a
/// half.
impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { count, of, bytes } = self;
        let each = *bytes as f64 / *count as f64;
        let is_whole = |number: f64| (number - number.round()).abs() < 5e-4;
        let (each, unit) = if each < 1.5 && !is_whole(each) {
            (8.0 * each, "bits")
        } else {
            (each, "bytes")
        };
        if is_whole(each) {
            write!(f, "{count} {of} x {each:.0} {unit}")
        } else {
            write!(f, "{count} {of} x {each:.3} {unit}")
        }
    }
}

/// The parts of a step's memory on a rank; their sum is `memory.step_peak()`.
pub(super) fn parts(plan: &RunPlan, memory: &MemoryPlan) -> Vec<MemoryPart> {
    let tokens = plan.demand.limits.max_tokens;
    let trained = plan.num_params().1;
    let layout = &plan.shard_layout;
    let reduce = plan.dtypes.reduce;
    let whole = |count, of: String, bytes| Product::of(count, of, bytes).into_iter().collect();
    let of_type = |dtype: DType, what: &str| format!("{} in {}", what, dtype.name());
    let head = plan.program.units.last();
    let chunk = head.map_or(tokens, |head| head.max_tokens.min(tokens));
    let gradients = if layout.gradients_beyond_blocks() > 0 {
        let count = memory.gradients / reduce.bytes();
        let what = of_type(reduce, "gradients beyond activations");
        whole(count, what, memory.gradients)
    } else {
        whole(trained, of_type(reduce, "gradients"), memory.gradients)
    };
    // Other ranks and offload put more than gradients in flight.
    let in_flight = if layout.updates_in_backward && plan.is_alone() {
        let count = memory.collective / reduce.bytes();
        let what = of_type(reduce, "gradients at a time");
        whole(count, what, memory.collective)
    } else {
        Vec::new()
    };
    vec![
        MemoryPart {
            name: "weights",
            bytes: memory.weights + memory.trainable,
            products: weights(plan, memory),
        },
        MemoryPart {
            name: "gradients",
            bytes: memory.gradients,
            products: gradients,
        },
        MemoryPart {
            name: "in flight",
            bytes: memory.collective,
            products: in_flight,
        },
        MemoryPart {
            name: "optimizer state",
            bytes: memory.optimizer,
            products: whole(trained, "trained params".to_owned(), memory.optimizer),
        },
        MemoryPart {
            name: "activations",
            bytes: memory.saved_activations,
            products: whole(tokens, "tokens".to_owned(), memory.saved_activations),
        },
        MemoryPart {
            name: "logits",
            bytes: memory.logits,
            products: whole(chunk, "tokens at once".to_owned(), memory.logits),
        },
        MemoryPart {
            name: "working memory",
            bytes: memory.arena + memory.kv_cache + memory.workspace,
            products: whole(tokens, "tokens".to_owned(), memory.arena),
        },
        MemoryPart {
            name: "program",
            bytes: memory.program,
            products: Vec::new(),
        },
    ]
}

/// The frozen weights by how they are stored, and the trained ones. `bytes` are those of a rank.
fn weights(plan: &RunPlan, memory: &MemoryPlan) -> Vec<Product> {
    let by_layout = plan.weights_by_layout();
    let frozen = plan.params.iter().filter(|param| !param.trainable);
    let products = if by_layout.values().sum::<u64>() == memory.weights {
        let products = by_layout.iter().filter_map(|(name, bytes)| {
            let stored = frozen.clone().filter(|param| match &param.layout {
                WeightLayout::Packed(format) => format.quantizer == *name,
                WeightLayout::Dense(dtype) => dtype.name() == *name,
            });
            let count = stored.map(|param| param.elements()).sum();
            Product::of(count, format!("frozen params in {name}"), *bytes)
        });
        products.collect()
    } else {
        let count = frozen.map(|param| param.elements()).sum();
        Vec::from_iter(Product::of(count, "frozen params", memory.weights))
    };
    let trained = format!("trained params in {}", plan.dtypes.params.name());
    let trained = Product::of(plan.num_params().1, trained, memory.trainable);
    products.into_iter().chain(trained).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_says_what_each_takes() {
        let product = |count, bytes| Product {
            count,
            of: "params".to_owned(),
            bytes,
        };
        assert_eq!(product(1000, 4000).to_string(), "1000 params x 4 bytes");
        assert_eq!(product(1000, 2031).to_string(), "1000 params x 2.031 bytes");
        assert_eq!(product(1000, 516).to_string(), "1000 params x 4.128 bits");
        assert_eq!(product(1000, 1000).to_string(), "1000 params x 1 bytes");
    }
}
