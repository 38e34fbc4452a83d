//! A seed -> random cases of an op, each run on several devices, which are compared with the oracle
//! and with each other.

use espalier_interface::Device;

use super::case::OpCase;
use super::draw::Draw;
use super::launch::{self, Ran};
use super::{OpCheck, compare};
use crate::checked::{Checked, Fault, calm};

/// What came of a case on one device.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// All outputs are within their bounds. The largest error as a share of what is allowed.
    Within(f64),
    /// The device does not have the kernel, in its own words.
    NotOffered(String),
    /// What is wrong.
    Failed(String),
}

/// What came of a case on several devices.
#[derive(Clone, Debug)]
pub struct OpTrial {
    /// What the case is: dtype, shapes, attributes.
    pub case: String,
    /// The answers, in the order of the devices.
    pub answers: Vec<Answer>,
    /// The largest difference between two devices, as a share of what both are allowed. None where
    /// fewer than two answered.
    pub apart: Option<f64>,
    /// Devices that differ by more.
    pub disagreement: Option<String>,
}

impl OpTrial {
    /// What is wrong: the failures of devices, and what they disagree on.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        let failed = self.answers.iter().filter_map(|answer| match answer {
            Answer::Failed(reason) => Some(reason.as_str()),
            _ => None,
        });
        failed.chain(self.disagreement.as_deref())
    }
}

/// Runs the random cases of `op` that `seed` gives, one or a few, on each of the named devices.
///
/// Results must be within the bounds of the oracle, as in [`check`](super::check), and within the
/// sum of both bounds of each other.
pub fn trials(devices: &[(&str, &dyn Device)], op: &OpCheck, seed: u64) -> Vec<OpTrial> {
    let cases = cases(op, seed);
    cases.iter().map(|case| run(devices, case)).collect()
}

/// The random cases of a seed.
pub(super) fn cases(op: &OpCheck, seed: u64) -> Vec<OpCase> {
    let draw = Draw::seeded(seed);
    let mut cases = op.all_cases(&draw);
    for case in &mut cases {
        let request = &mut case.request;
        if request.max_tokens > 0 {
            // Prepared for as many tokens, or for some more.
            let more = draw.or(0, |dice| dice.one_of(&[0, 3, 17]));
            request.max_tokens = (case.tokens + more).max(1);
        }
    }
    cases
}

/// The bytes of each output of a device, and the largest error as a share of what is allowed.
type Outputs = (Vec<Vec<u8>>, f64);

/// The outputs of a device, which are within their bounds; or why there are none.
fn outputs(device: &dyn Device, case: &OpCase) -> Result<Outputs, Answer> {
    let ran = || {
        let (outputs, same) = match launch::run(device, case, launch::prepare(device, case)?)? {
            Ran::NotOffered(why) => return Ok(Err(why)),
            Ran::Outputs { first, same } => (first, same),
        };
        let mut most: f64 = 0.0;
        for (index, bytes) in outputs.iter().enumerate() {
            let (operand, expected) = (&case.request.outputs[index], &case.outputs[index].expected);
            compare::check(index, operand, bytes, expected)?;
            most = most.max(compare::share(operand.dtype, bytes, expected));
        }
        same?;
        Ok(Ok((outputs, most)))
    };
    match calm(ran) {
        Ok(Ok(outputs)) => Ok(outputs),
        Ok(Err(why)) => Err(Answer::NotOffered(why)),
        Err(Fault::Failed(reason) | Fault::Skipped(reason)) => Err(Answer::Failed(reason)),
    }
}

fn run(devices: &[(&str, &dyn Device)], case: &OpCase) -> OpTrial {
    let (mut answers, mut answered) = (Vec::new(), Vec::new());
    for (name, device) in devices {
        answers.push(match outputs(*device, case) {
            Ok((outputs, share)) => {
                answered.push((*name, outputs));
                Answer::Within(share)
            }
            Err(Answer::Failed(reason)) => Answer::Failed(format!("{name}: {reason}")),
            Err(answer) => answer,
        });
    }
    let (mut apart, mut disagreement) = (None, None);
    for (index, (name, outputs)) in answered.iter().enumerate() {
        for (other, others) in &answered[..index] {
            match compared(case, outputs, others) {
                Ok(share) => apart = Some(f64::max(share, apart.unwrap_or(0.0))),
                Err(Fault::Failed(reason) | Fault::Skipped(reason)) => {
                    disagreement = Some(format!("{name} and {other}: {reason}"));
                }
            }
        }
    }
    OpTrial {
        case: case.name.clone(),
        answers,
        apart,
        disagreement,
    }
}

/// The largest difference between the outputs of two devices.
fn compared(case: &OpCase, a: &[Vec<u8>], b: &[Vec<u8>]) -> Checked<f64> {
    let mut most: f64 = 0.0;
    for (index, target) in case.outputs.iter().enumerate() {
        let dtype = case.request.outputs[index].dtype;
        let apart = compare::apart(index, dtype, [&a[index], &b[index]], &target.expected)?;
        most = most.max(apart);
    }
    Ok(most)
}
