//! torch's own values of the ops in f64, by op, case and tensor.
#![allow(dead_code)] // Each test takes what it needs.

use espalier_tests::{Golden, largest};

/// Sums of some ten terms in f64, in other orders, and functions good to some ulp.
pub const CLOSE: f64 = 1e-13;

/// The tensors of one op.
pub struct GoldenOp<'a> {
    golden: &'a Golden,
    op: &'static str,
}

/// One case of an op.
pub struct GoldenCase<'a> {
    golden: &'a Golden,
    /// Op and case, `OP.CASE`.
    pub prefix: String,
}

impl<'a> GoldenOp<'a> {
    /// The tensors of `op` in `golden`.
    pub fn new(golden: &'a Golden, op: &'static str) -> Self {
        GoldenOp { golden, op }
    }

    /// The cases, at least one.
    pub fn cases(&self) -> Vec<GoldenCase<'a>> {
        let mine = |name: &str| {
            let (op, rest) = name.split_once('.')?;
            let (case, _) = rest.split_once('.')?;
            (op == self.op).then(|| format!("{op}.{case}"))
        };
        let mut prefixes: Vec<String> = self.golden.names().filter_map(mine).collect();
        prefixes.dedup();
        assert!(!prefixes.is_empty(), "no golden case of {}", self.op);
        let golden = self.golden;
        let cases = prefixes
            .into_iter()
            .map(|prefix| GoldenCase { golden, prefix });
        cases.collect()
    }
}

impl GoldenCase<'_> {
    /// The numbers of tensor `name`.
    pub fn get(&self, name: &str) -> &[f64] {
        self.golden.numbers(&format!("{}.{name}", self.prefix))
    }

    /// The whole numbers of tensor `name`.
    pub fn integers(&self, name: &str) -> Vec<i32> {
        self.get(name).iter().map(|&x| x as i32).collect()
    }

    /// Checks the oracle's numbers against tensor `name`, to [`CLOSE`] of its largest.
    pub fn check(&self, name: &str, found: &[f64]) {
        let expected = self.get(name);
        assert_eq!(found.len(), expected.len(), "{} {name}", self.prefix);
        let most = largest(expected.iter().map(|x| x.abs()).chain([f64::MIN_POSITIVE]));
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let off = (found - expected).abs() / most;
            assert!(
                off <= CLOSE || found == expected,
                "{} {name}: element {at} is {found:e}, torch has {expected:e}",
                self.prefix
            );
        }
    }
}

/// torch's values of all ops.
pub fn golden() -> Golden {
    Golden::open("ops.safetensors")
}
