//! The cases of an op's check, with the values of the oracle -> what a device makes of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use espalier_interface::Device;

use super::case::OpCase;
use super::draw::Draw;
use super::launch::{self, Ran};
use super::{OpCheck, compare};
use crate::checked::{Checked, Fault, ensure};

/// The cases of the kit for one op, made once for any number of devices.
pub struct KitCases {
    name: &'static str,
    pub(super) cases: Vec<OpCase>,
}

impl KitCases {
    /// The cases of an op.
    pub fn of(op: &OpCheck) -> Self {
        KitCases {
            name: op.name,
            cases: op.all_cases(&Draw::KIT),
        }
    }

    /// The cases of an op, which stay in memory until the process ends, for the next call: for
    /// tests of many devices.
    pub fn kept(op: &OpCheck) -> Arc<Self> {
        static KEPT: Mutex<BTreeMap<&str, Arc<KitCases>>> = Mutex::new(BTreeMap::new());
        let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(op.name).cloned();
        // Other threads may ask for theirs while these are made.
        known.unwrap_or_else(|| {
            let made = Arc::new(KitCases::of(op));
            kept().entry(op.name).or_insert(made).clone()
        })
    }

    /// Those whose names begin with `begin`, such as a dtype.
    ///
    /// # Errors
    /// Where there is none.
    pub fn that_begin_with(mut self, begin: &str) -> Checked<Self> {
        self.cases.retain(|case| case.name.starts_with(begin));
        ensure(!self.cases.is_empty(), || {
            format!(
                "expected cases of {} that begin with `{begin}`, found none",
                self.name
            )
        })?;
        Ok(self)
    }

    /// Runs the cases on a device.
    ///
    /// # Errors
    /// The first case that fails; else, where the device lacks some of them, what it does not
    /// offer.
    pub fn check(&self, device: &dyn Device) -> Checked {
        // All before the first launch, at which a device may compile what it has prepared.
        let prepared = self.cases.iter().map(|case| {
            let kernel = launch::prepare(device, case);
            kernel.map_err(|fault| fault.at(&case.name))
        });
        let kernels: Vec<launch::Kernel> = prepared.collect::<Checked<_>>()?;
        let mut lacking = Vec::new();
        for (case, kernel) in self.cases.iter().zip(kernels) {
            let ran = launch::run(device, case, kernel).map_err(|fault| fault.at(&case.name))?;
            let (outputs, same) = match ran {
                Ran::Outputs { first, same } => (first, same),
                Ran::NotOffered(why) => {
                    lacking.push(format!("{}: {why}", case.name));
                    continue;
                }
            };
            for (index, bytes) in outputs.iter().enumerate() {
                let operand = &case.request.outputs[index];
                let expected = &case.outputs[index].expected;
                let checked = compare::check(index, operand, bytes, expected);
                checked.map_err(|fault| fault.at(&case.name))?;
            }
            same.map_err(|fault| fault.at(&case.name))?;
        }
        self.offered(&lacking)
    }

    /// Whether all cases are offered.
    fn offered(&self, lacking: &[String]) -> Checked {
        match (lacking.len(), lacking.first()) {
            (0, _) | (_, None) => Ok(()),
            (count, Some(first)) if count == self.cases.len() => {
                Err(Fault::Skipped(format!("not offered: {first}")))
            }
            (count, Some(first)) => Err(Fault::Skipped(format!(
                "{} of {} cases pass, {count} are not offered, the first: {first}",
                self.cases.len() - count,
                self.cases.len()
            ))),
        }
    }
}
