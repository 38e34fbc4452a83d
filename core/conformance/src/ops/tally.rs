//! Trials of random cases -> a table: for each op how many there were, how many each device did not
//! have, and how near to their bounds the results were.

use std::collections::BTreeMap;
use std::fmt;

use super::trial::{Answer, OpTrial};

/// Sums over the trials of ops on devices.
#[derive(Clone, Debug)]
pub struct Tally {
    devices: Vec<String>,
    ops: BTreeMap<String, OfOp>,
}

#[derive(Clone, Debug)]
struct OfOp {
    cases: u64,
    wrong: u64,
    devices: Vec<OfDevice>,
    apart: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfDevice {
    not_offered: u64,
    share: f64,
}

impl Tally {
    /// No trials yet of the devices with these names.
    pub fn new<'a>(devices: impl IntoIterator<Item = &'a str>) -> Self {
        Tally {
            devices: devices.into_iter().map(str::to_owned).collect(),
            ops: BTreeMap::new(),
        }
    }

    /// Adds a trial of the check `op`.
    pub fn add(&mut self, op: &str, trial: &OpTrial) {
        let of = self.ops.entry(op.to_owned()).or_insert_with(|| OfOp {
            cases: 0,
            wrong: 0,
            devices: vec![OfDevice::default(); self.devices.len()],
            apart: 0.0,
        });
        of.cases += 1;
        of.wrong += u64::from(trial.faults().next().is_some());
        of.apart = of.apart.max(trial.apart.unwrap_or(0.0));
        for (device, answer) in of.devices.iter_mut().zip(&trial.answers) {
            match answer {
                Answer::Within(share) => device.share = device.share.max(*share),
                Answer::NotOffered(_) => device.not_offered += 1,
                Answer::Failed(_) => {}
            }
        }
    }

    /// Cases so far.
    pub fn cases(&self) -> u64 {
        self.ops.values().map(|of| of.cases).sum()
    }

    /// Cases in which a device failed or devices disagreed.
    pub fn wrong(&self) -> u64 {
        self.ops.values().map(|of| of.wrong).sum()
    }

    /// Cases that a device did not have, counted by device.
    pub fn not_offered(&self) -> u64 {
        let devices = self.ops.values().flat_map(|of| &of.devices);
        devices.map(|device| device.not_offered).sum()
    }
}

/// A table in Markdown. Errors are shares of what is allowed, at most 1.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| op | cases | wrong |")?;
        for device in &self.devices {
            write!(f, " {device} refused | {device} error |")?;
        }
        writeln!(f, " apart |")?;
        writeln!(f, "|---|{}", "---|".repeat(3 + 2 * self.devices.len()))?;
        for (op, of) in &self.ops {
            write!(f, "| {op} | {} | {} |", of.cases, of.wrong)?;
            for device in &of.devices {
                write!(f, " {} | {:.2} |", device.not_offered, device.share)?;
            }
            writeln!(f, " {:.2} |", of.apart)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_sums_of_an_op() {
        let mut tally = Tally::new(["a", "b"]);
        let trial = |answers, disagreement| OpTrial {
            case: String::new(),
            answers,
            apart: None,
            disagreement,
        };
        let refused = Answer::NotOffered("no".to_owned());
        tally.add("op.add", &trial(vec![Answer::Within(0.25), refused], None));
        let within = vec![Answer::Within(0.5), Answer::Within(0.125)];
        let wrong = Some("a and b".to_owned());
        tally.add(
            "op.add",
            &OpTrial {
                apart: Some(0.75),
                ..trial(within, wrong)
            },
        );
        assert_eq!(
            [tally.cases(), tally.wrong(), tally.not_offered()],
            [2, 1, 1]
        );
        let table = tally.to_string();
        let row = table.lines().last();
        assert_eq!(row, Some("| op.add | 2 | 1 | 0 | 0.50 | 1 | 0.12 | 0.75 |"));
    }
}
