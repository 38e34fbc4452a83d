//! The runs of a case -> its line of the table: medians of the rounds, and the largest difference
//! of the losses.

use anyhow::{Context, Result};
use serde::Serialize;

use super::case::Case;
use super::timed_run::{Allocator, Side, TimedRun};
use crate::median::median;

/// The peer that ratios relate to: the faster one.
const PEER: Side = Side::Peer(Allocator::Tuned);

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    pub case: Case,
    pub host: Medians,
    pub peer: Medians,
    /// The peer with the allocator as it is installed, where it ran.
    pub installed: Option<Medians>,
    /// The peer's seconds of a step over the host's, least and most of a round.
    pub ratios: [f64; 2],
    /// The largest difference of a step's losses, relative to the peer's.
    pub loss_difference: f64,
    /// The most that it may be.
    pub bound: f64,
}

/// Medians over the rounds of one side.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Medians {
    pub step_secs: f64,
    pub peak_bytes: f64,
    pub load_secs: f64,
}

impl Summary {
    /// Of all runs of a case. `encoded` are seconds of loading and encoding that the peer needed
    /// once, before its runs.
    ///
    /// # Errors
    /// Where the host or the peer did not run.
    pub fn of(case: Case, runs: &[TimedRun], encoded: Option<f64>) -> Result<Self> {
        let side = |side: Side| runs.iter().filter(move |run| run.side == side);
        let medians = |who: Side, encoded: Option<f64>| {
            let runs: Vec<&TimedRun> = side(who).collect();
            Medians::of(&runs, encoded)
        };
        let missing = |who: Side| format!("no run of {case} by the {who}");
        let rounds = || side(Side::Host).zip(side(PEER));
        let ratios = rounds().map(|(host, peer)| peer.median_secs() / host.median_secs());
        let ratios: Vec<f64> = ratios.collect();
        let peers = || runs.iter().filter(|run| run.side != Side::Host);
        let pairs = side(Side::Host).flat_map(|host| peers().map(move |peer| (host, peer)));
        let differences = pairs.map(|(host, peer)| {
            let steps = case.compared_steps(host.instruction_set.as_deref());
            difference(&host.losses, &peer.losses, steps)
        });
        Ok(Summary {
            case,
            host: medians(Side::Host, None).with_context(|| missing(Side::Host))?,
            peer: medians(PEER, encoded).with_context(|| missing(PEER))?,
            installed: medians(Side::Peer(Allocator::Installed), encoded),
            ratios: [
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            ],
            loss_difference: differences.fold(0.0, f64::max),
            bound: case.bound(),
        })
    }

    /// What is wrong with the losses, in words.
    pub fn too_far(&self) -> Option<String> {
        (self.loss_difference > self.bound).then(|| {
            format!(
                "{} by {:.1e}, expected at most {:.1e}",
                self.case, self.loss_difference, self.bound
            )
        })
    }
}

impl Medians {
    fn of(runs: &[&TimedRun], encoded: Option<f64>) -> Option<Self> {
        let of = |value: fn(&TimedRun) -> f64| median(runs.iter().map(|run| value(run)).collect());
        (!runs.is_empty()).then(|| Medians {
            step_secs: of(TimedRun::median_secs),
            peak_bytes: of(|run| run.peak_bytes as f64),
            load_secs: encoded.unwrap_or_else(|| of(|run| run.load_secs)),
        })
    }
}

/// The largest difference of two runs' losses at one of the first `steps`, relative to the peer's.
fn difference(host: &[f64], peer: &[f64], steps: usize) -> f64 {
    let steps = host.iter().zip(peer).take(steps);
    steps
        .map(|(host, peer)| ((host - peer) / peer).abs())
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::case::{Dtype, Method};
    use super::*;

    const CASE: Case = Case {
        method: Method::Lora,
        dtype: Dtype::F32,
    };

    fn run(side: Side, round: u64, secs: f64, last_loss: f64) -> TimedRun {
        TimedRun {
            case: CASE,
            round,
            side,
            losses: vec![8.0, 8.0, last_loss],
            step_secs: vec![99.0, 99.0, secs],
            load_secs: secs,
            start_secs: 0.0,
            peak_bytes: 1000 * round,
            instruction_set: None,
        }
    }

    #[test]
    fn a_line_has_medians_ratios_of_rounds_and_the_largest_difference() {
        let runs: Vec<TimedRun> = [(1, 1.0, 2.0), (2, 2.0, 3.0), (3, 4.0, 5.0)]
            .into_iter()
            .flat_map(|(round, host, peer)| {
                [
                    run(Side::Host, round, host, 8.0),
                    run(PEER, round, peer, 10.0),
                ]
            })
            .collect();
        let line = Summary::of(CASE, &runs, None).unwrap();
        assert_eq!((line.host.step_secs, line.peer.step_secs), (2.0, 3.0));
        assert_eq!(line.host.peak_bytes, 2000.0);
        assert_eq!(line.ratios, [1.25, 2.0]);
        assert!((line.loss_difference - 0.2).abs() < 1e-12);
        assert!(line.installed.is_none());
        assert!(line.too_far().unwrap().contains("lora f32"));
        assert_eq!(line.peer.load_secs, 3.0);
        let encoded = Summary::of(CASE, &runs, Some(60.0)).unwrap();
        assert_eq!(encoded.peer.load_secs, 60.0);
    }

    #[test]
    fn full_training_whose_weights_the_peer_alone_rounds_is_compared_at_the_first_step() {
        let case = Case {
            method: Method::Full,
            dtype: Dtype::Bf16,
        };
        let difference = |instructions: &str| {
            let mut host = run(Side::Host, 1, 1.0, 8.0);
            host.instruction_set = Some(instructions.to_owned());
            let peer = run(PEER, 1, 1.0, 10.0);
            Summary::of(case, &[host, peer], None)
                .unwrap()
                .loss_difference
        };
        assert_eq!(difference("avx512"), 0.0);
        for rounding in ["avx512+bf16", "libtorch-2.13.0+threads-2+avx512"] {
            assert!((difference(rounding) - 0.2).abs() < 1e-12, "{rounding}");
        }
    }

    #[test]
    fn equal_losses_pass_and_a_missing_side_is_named() {
        let runs = [run(Side::Host, 1, 1.0, 8.0), run(PEER, 1, 1.0, 8.0)];
        assert_eq!(Summary::of(CASE, &runs, None).unwrap().too_far(), None);
        let failure = Summary::of(CASE, &runs[..1], None).unwrap_err();
        assert!(failure.to_string().contains("by the peer"), "{failure}");
    }
}
