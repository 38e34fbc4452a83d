//! A number of layers and an expansion rate -> the layers of the expanded model, in order.

use espalier_system::failure::UsageError;

/// Most digits of a rate that a message names.
const DIGITS: i32 = 6;

/// One layer of an expanded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The layer of the original model that it is, or is a copy of.
    pub source: usize,
    /// Whether it is a copy, which computes an identity.
    pub added: bool,
}

/// The layers of an expanded model: `added` copies, one after every `split`-th layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expansion {
    layers: usize,
    added: usize,
    split: usize,
}

impl Expansion {
    /// The expansion of `layers` layers at `rate`: `added = floor(layers * rate)` copies, one after
    /// every `floor(layers / added)`-th layer. So 32 layers at 0.1 become 35.
    ///
    /// # Errors
    /// A rate that adds no layer, and one whose copies would be more or fewer than `added`. The
    /// message names the rates that work.
    ///
    /// # Source
    /// AnswerDotAI/fsdp_qlora, `scripts/block_expansion.py`.
    pub fn of(layers: usize, rate: f64) -> Result<Self, UsageError> {
        let refuse = |why: String| UsageError {
            message: format!("--rate {rate}: {why}"),
            next_step: format!("choose one of {}", working_rates(layers)),
        };
        let added = added(layers, rate);
        if rate.is_nan() || added == 0 {
            return Err(refuse(format!("it adds no layer to {layers}")));
        }
        if added > layers {
            let why = format!("it adds {added} layers to {layers}, and a layer is copied once");
            return Err(refuse(why));
        }
        let split = layers / added;
        if layers / split != added {
            return Err(refuse(format!(
                "it is to add {added} layers to {layers}, and one after every {} layer makes {}",
                ordinal(split),
                layers / split
            )));
        }
        Ok(Expansion {
            layers,
            added,
            split,
        })
    }

    /// Layers of the expanded model, in order.
    pub fn placed(&self) -> Vec<Placed> {
        let mut placed = Vec::with_capacity(self.layers + self.added);
        for source in 0..self.layers {
            placed.push(Placed {
                source,
                added: false,
            });
            if (source + 1) % self.split == 0 {
                placed.push(Placed {
                    source,
                    added: true,
                });
            }
        }
        placed
    }
}

/// Copies at `rate`; 0 for a rate that is not positive.
fn added(layers: usize, rate: f64) -> usize {
    (layers as f64 * rate) as usize
}

/// The rates that add each possible number of layers to `layers`, in words.
fn working_rates(layers: usize) -> String {
    let fits = |&count: &usize| layers / (layers / count) == count;
    let rates = (1..=layers).filter(fits).map(|count| {
        let rate = shortest_rate(layers, count);
        format!("{rate} ({count} more)")
    });
    let rates: Vec<String> = rates.collect();
    if rates.is_empty() {
        "a model with layers".to_owned()
    } else {
        rates.join(", ")
    }
}

/// The shortest decimal rate that adds `count` layers.
fn shortest_rate(layers: usize, count: usize) -> f64 {
    let exact = count as f64 / layers as f64;
    let rounded_up = |digits: i32| {
        let power = 10f64.powi(digits);
        (exact * power).ceil() / power
    };
    let mut rates = (1..=DIGITS).map(rounded_up);
    rates
        .find(|&rate| added(layers, rate) == count)
        .unwrap_or(exact)
}

/// `1st`, `2nd`, `3rd`, `4th` and so on.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added_at(layers: usize, rate: f64) -> Vec<usize> {
        let placed = Expansion::of(layers, rate).expect("it works").placed();
        let places = placed.iter().enumerate();
        let added = places.filter(|(_, layer)| layer.added);
        added.map(|(index, _)| index).collect()
    }

    #[test]
    fn copies_stand_where_the_original_script_puts_them() {
        // Its `new_layer_ids`: split + (split + 1) * i.
        assert_eq!(added_at(32, 0.1), [10, 21, 32]);
        assert_eq!(added_at(32, 0.25), [4, 9, 14, 19, 24, 29, 34, 39]);
        assert_eq!(added_at(4, 0.5), [2, 5]);
        assert_eq!(added_at(1, 1.0), [1]);
        let placed = Expansion::of(32, 0.1).expect("it works").placed();
        assert_eq!(placed.len(), 35);
        let sources: Vec<usize> = placed.iter().map(|layer| layer.source).collect();
        assert_eq!(&sources[8..13], [8, 9, 9, 10, 11]);
    }

    #[test]
    fn other_rates_are_refused_with_those_that_work() {
        let refused = |layers, rate| {
            let refused = Expansion::of(layers, rate).expect_err("refused");
            format!("{refused} | {}", refused.next_step)
        };
        let words = refused(8, 0.1);
        assert!(words.contains("adds no layer to 8"), "{words}");
        let listed = "0.2 (1 more), 0.3 (2 more), 0.5 (4 more), 1 (8 more)";
        assert!(words.ends_with(listed), "{words}");
        // 5 copies: after every 1st layer, which makes 8.
        let words = refused(8, 0.625);
        assert!(words.contains("add 5 layers to 8") && words.contains("1st layer makes 8"));
        for rate in [f64::NAN, -0.5, 0.0] {
            assert!(refused(8, rate).contains("adds no layer"));
        }
        assert!(refused(8, 1.5).contains("copied once"));
    }

    #[test]
    fn every_named_rate_works() {
        for layers in 1..=128 {
            let Err(refused) = Expansion::of(layers, 0.0) else {
                panic!("0 adds nothing")
            };
            let named = refused.next_step.strip_prefix("choose one of ");
            let mut rates = named.expect("a list").split(", ").peekable();
            assert!(rates.peek().is_some());
            for named in rates {
                let rate = named.split(' ').next().and_then(|word| word.parse().ok());
                Expansion::of(layers, rate.expect("a number")).expect(named);
            }
        }
    }
}
