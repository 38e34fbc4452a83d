//! The attentions of the kit, and random ones: heads, lengths of sequences, masks, and where in a
//! cache sequences are.

use espalier_interface::DType;
use serde_json::json;

use crate::ops::case::OpCase;
use crate::ops::dice::Dice;
use crate::ops::draw::Draw;
use crate::ops::oracle::Mask;

/// Tokens that a slot of the kit's caches holds.
const CAPACITY: usize = 300;
/// Most products of a query's number with a key's of a random attention, and of one in four.
const MOST_PRODUCTS: [f64; 2] = [3e5, 1.5e6];

/// An attention and the lengths of its sequences.
pub struct Shape {
    /// `[H, J, K]`.
    pub heads: [usize; 3],
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    window: Option<usize>,
    softcap: Option<f64>,
    causal: bool,
    /// The scale times `sqrt(K)`.
    sharpness: f64,
}

/// Where sequences are in a cache.
pub struct Slots {
    /// Slots of the cache.
    pub count: usize,
    /// Tokens of a slot.
    pub capacity: usize,
    /// Tokens that each sequence has there before the launch.
    pub held: Vec<usize>,
    /// The slot of each sequence.
    pub slot: Vec<usize>,
}

/// The shapes of the kit, or a random one.
pub fn all(draw: &Draw) -> Vec<Shape> {
    draw.or_else(kit, |dice| vec![random(dice)])
}

/// As [`all`], without those in which tokens see later ones.
pub fn causal(draw: &Draw) -> Vec<Shape> {
    let of_kit = || kit().into_iter().filter(|shape| shape.causal).collect();
    draw.or_else(of_kit, |dice| {
        vec![Shape {
            causal: true,
            ..random(dice)
        }]
    })
}

/// Sequences of none, one, and more than 128 and 256 tokens; heads of odd widths and of multiples
/// of 16, shared in pairs and by three. Windows of one, inside and beyond a sequence; caps; later
/// tokens in sight.
fn kit() -> Vec<Shape> {
    let plain = |heads, lengths: &[usize]| Shape {
        heads,
        lengths: lengths.to_vec(),
        window: None,
        softcap: None,
        causal: true,
        sharpness: 1.3,
    };
    vec![
        plain([2, 1, 4], &[]),
        plain([1, 1, 1], &[1]),
        plain([3, 1, 5], &[3, 0, 14]),
        plain([4, 2, 16], &[0, 65, 1]),
        Shape {
            window: Some(7),
            ..plain([2, 2, 33], &[17, 33])
        },
        Shape {
            window: Some(1),
            ..plain([6, 2, 8], &[3, 17])
        },
        Shape {
            window: Some(130),
            ..plain([2, 1, 17], &[5, 263, 2])
        },
        Shape {
            softcap: Some(2.5),
            ..plain([2, 1, 64], &[141])
        },
        Shape {
            window: Some(20),
            softcap: Some(1.0),
            ..plain([4, 1, 7], &[9, 31])
        },
        Shape {
            causal: false,
            ..plain([2, 1, 9], &[5, 1, 130])
        },
        plain([2, 1, 128], &[2, 135]),
        Shape {
            window: Some(40),
            causal: false,
            ..plain([3, 1, 48], &[150])
        },
        Shape {
            window: Some(70),
            softcap: Some(4.0),
            ..plain([2, 2, 32], &[128, 0, 290])
        },
    ]
}

fn random(dice: &Dice) -> Shape {
    let (kv_heads, shared) = (dice.between(1, 3), dice.between(1, 4));
    let head_dim = dice.extent(if dice.once_in(6) { 260 } else { 80 });
    let heads = kv_heads * shared;
    // Longest sequence for which the products are not too many.
    let products = MOST_PRODUCTS[usize::from(dice.once_in(4))];
    let most = (products / (heads * head_dim) as f64).sqrt() as usize;
    let mut left = most.clamp(4, 300);
    let mut lengths = Vec::new();
    for _ in 0..dice.below(5) {
        let length = if dice.once_in(5) {
            0
        } else {
            dice.extent(left)
        };
        left = (left - length).max(1);
        lengths.push(length);
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    Shape {
        heads: [heads, kv_heads, head_dim],
        lengths,
        window: dice.once_in(2).then(|| dice.extent(longest + 40)),
        softcap: dice.once_in(3).then(|| dice.scale(0.5, 60.0)),
        causal: !dice.once_in(5),
        sharpness: dice.scale(0.2, 2.0),
    }
}

impl Shape {
    /// Its attributes.
    pub fn mask(&self) -> Mask {
        let [heads, kv_heads, head_dim] = self.heads;
        Mask {
            heads,
            kv_heads,
            head_dim,
            scale: self.sharpness / (head_dim as f64).sqrt(),
            causal: self.causal,
            window: self.window,
            softcap: self.softcap,
        }
    }

    /// The first token of each sequence, and the end.
    pub fn cu_seqlens(&self) -> Vec<i32> {
        let ends = self.lengths.iter().scan(0, |end, length| {
            *end += *length as i32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    fn tokens(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Elements of a token's queries, and of its keys.
    pub fn widths(&self) -> [usize; 2] {
        let [heads, kv_heads, head_dim] = self.heads;
        [heads * head_dim, kv_heads * head_dim]
    }

    fn name(&self, dtype: DType) -> String {
        let [heads, kv_heads, head_dim] = self.heads;
        let mut name = format!(
            "{dtype}, sequences of {:?}, H {heads}, J {kv_heads}, K {head_dim}",
            self.lengths
        );
        if let Some(window) = self.window {
            name += &format!(", window {window}");
        }
        if let Some(softcap) = self.softcap {
            name += &format!(", softcap {softcap}");
        }
        if !self.causal {
            name += ", not causal";
        }
        name
    }

    /// A launch of `op` with the attributes.
    pub fn case(&self, op: &str, dtype: DType) -> OpCase {
        let mask = self.mask();
        let case = OpCase::new(op, self.tokens(), self.name(dtype)).sequences(self.lengths.len());
        let case = case.attribute("heads", mask.heads);
        let case = case.attribute("kv_heads", mask.kv_heads);
        let case = case.attribute("head_dim", mask.head_dim);
        let case = case.attribute("scale", mask.scale);
        let case = case.attribute("causal", mask.causal);
        let case = case.attribute("window", json!(mask.window));
        case.attribute("softcap", json!(mask.softcap))
    }

    /// q, k and v.
    pub fn operands(&self, draw: &Draw, dtype: DType) -> [Vec<f64>; 3] {
        let [q, kv] = self.widths().map(|width| self.tokens() * width);
        [
            draw.numbers(q, dtype, 1),
            draw.numbers(kv, dtype, 2),
            draw.numbers(kv, dtype, 3),
        ]
    }

    /// Slots out of order, most of which hold tokens.
    pub fn slots(&self, draw: &Draw) -> Slots {
        let sequences = self.lengths.len();
        let count = draw.or(sequences + 2, |dice| sequences + dice.between(1, 3));
        let kit = || {
            (0..sequences)
                .map(|sequence| [0, 37, 7][sequence % 3])
                .collect()
        };
        let held: Vec<usize> = draw.or_else(kit, |dice| {
            (0..sequences).map(|_| dice.tokens(150)).collect()
        });
        let backwards = || {
            (0..sequences)
                .map(|sequence| count - 1 - sequence)
                .collect()
        };
        let slot = draw.or_else(backwards, |dice| dice.order(count));
        let ends = held
            .iter()
            .zip(&self.lengths)
            .map(|(held, length)| held + length);
        let most = ends.max().unwrap_or(0);
        Slots {
            count,
            capacity: draw.or(CAPACITY, |dice| {
                most + dice.between(1, 20) - usize::from(most > 0)
            }),
            held,
            slot,
        }
    }
}
