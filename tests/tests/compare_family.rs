//! Error rates for families of arms with a known truth, drawn from a fixed key. Counted are wrong
//! verdicts for equal arms, intervals that hold the truth, and planted differences that are found.
#![allow(clippy::print_stdout)] // Figures, for whoever looks.

use espalier_compare::statistics::{Basis, ComparedPair, Family};
use espalier_engine::document_loss::DocumentLoss;
use espalier_interface::random::{Purpose, key, normal, philox};
use espalier_tests::{Golden, interval_coverage};
use espalier_trainer::train::HeldOut;

/// Number of evaluated pairs of arms of each kind, and the most families. 1000 families give a rate
/// of 5 % to 0.7 points (standard deviation), 400 to 1.1.
const PAIRS: usize = 10_000;
const FAMILIES: usize = 1000;
/// Draws of an interval.
const DRAWS: u32 = 1000;
const DOCUMENTS: usize = 16;

/// A distribution of families, in nats a token.
#[derive(Clone, Debug)]
struct Kind {
    seeds: usize,
    /// Each arm's true loss above the first's, and its own standard deviation over seeds.
    arms: Vec<(f64, f64)>,
    /// Standard deviation over seeds that all arms share, which pairing removes.
    of_seeds: f64,
    /// Standard deviation of an arm's own effect on each document.
    of_documents: f64,
}

/// Results of families, as shares of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    /// One arm is better than every other.
    winner: f64,
    /// At least two arms are distinguished.
    any: f64,
    /// The first arm leads, and every other is distinguished from it.
    first: f64,
    /// All comparisons' intervals hold the truth.
    covered: f64,
}

fn runs(kind: &Kind, index: u32) -> Vec<Vec<HeldOut>> {
    let key = key(u64::from(index), Purpose::SYNTHETIC, kind.arms.len() as u64);
    let noise =
        |what: [u32; 4]| f64::from(normal(philox(key, what)[..2].try_into().expect("two"))[0]);
    let run = |arm: usize, seed: usize| {
        let (excess, own) = kind.arms[arm];
        let of_seed = kind.of_seeds * noise([1, seed as u32, 0, 0])
            + own * noise([2, seed as u32, arm as u32, 0]);
        let document = |document: usize| {
            let shared = noise([3, document as u32, 0, 0]);
            let of_arm = kind.of_documents * noise([4, document as u32, arm as u32, 0]);
            DocumentLoss {
                loss: 20.0 * (3.0 + excess + of_seed + shared + of_arm),
                correct: 0,
                trained: 20,
            }
        };
        HeldOut {
            step: 1,
            documents: (0..DOCUMENTS).map(document).collect(),
        }
    };
    let arms = 0..kind.arms.len();
    arms.map(|arm| (0..kind.seeds).map(|seed| run(arm, seed)).collect())
        .collect()
}

/// The results of a family.
fn judged(kind: &Kind, index: u32) -> [bool; 4] {
    let runs = runs(kind, index);
    let runs: Vec<Vec<&HeldOut>> = runs.iter().map(|arm| arm.iter().collect()).collect();
    let basis = match kind.seeds {
        1 => Basis::Documents,
        seeds => Basis::of_seeds(seeds),
    };
    let family = Family::compare(&runs, basis, DRAWS).expect("the same documents");
    let mut others = (0..runs.len()).filter(|place| *place != family.leader);
    let winner = others.all(|place| {
        family
            .with_leader(place)
            .is_some_and(|found| found.is_significant)
    });
    let truth = |place: usize| kind.arms[place].0;
    let holds = |comparison: &ComparedPair| {
        let [first, second] = comparison.places;
        let together = comparison.difference.together;
        together.contains(truth(first) - truth(second))
    };
    [
        winner,
        family
            .comparisons
            .iter()
            .any(|comparison| comparison.is_significant),
        winner && family.leader == 0,
        family.comparisons.iter().all(holds),
    ]
}

fn rates(kind: &Kind) -> Rates {
    let pairs = kind.arms.len() * (kind.arms.len() - 1) / 2;
    let families = (PAIRS / pairs).min(FAMILIES) as u32;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = |thread: usize| {
        let indices = (0..families).skip(thread).step_by(threads);
        indices.map(|index| judged(kind, index)).collect::<Vec<_>>()
    };
    let judged: Vec<[bool; 4]> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || each(thread)))
            .collect();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().expect("judged"));
        ended.flatten().collect()
    });
    let [winner, any, first, covered] = [0, 1, 2, 3].map(|what| {
        let count = judged.iter().filter(|found| found[what]).count();
        count as f64 / f64::from(families)
    });
    let rates = Rates {
        winner,
        any,
        first,
        covered,
    };
    println!("{rates:?} {kind:?}");
    rates
}

fn equal_arms(seeds: usize, arms: &[f64], of_documents: f64) -> Kind {
    Kind {
        seeds,
        arms: arms.iter().map(|own| (0.0, *own)).collect(),
        of_seeds: 2.0,
        of_documents,
    }
}

#[test]
fn equal_arms_are_distinguished_in_about_one_comparison_of_twenty() {
    for (seeds, arms) in [(3, 2), (3, 3), (3, 5), (3, 8), (5, 5)] {
        // Seeds make nearly all of the noise, or documents as much.
        for of_documents in [0.05, 2.0] {
            let kind = equal_arms(seeds, &vec![1.0; arms], of_documents);
            let rates = rates(&kind);
            assert!(rates.any <= 0.065, "{rates:?} of {kind:?}");
            assert!(rates.covered >= 0.935, "{rates:?} of {kind:?}");
        }
    }
}

#[test]
fn arms_with_unequal_scatter_have_a_slightly_higher_error_rate() {
    for (seeds, arms) in [
        (3, vec![1.0, 1.0, 3.0]),
        (3, vec![1.0, 1.0, 1.0, 1.0, 3.0]),
        (3, vec![1.0, 1.0, 1.0, 1.0, 10.0]),
        (3, vec![1.0, 2.0, 4.0, 8.0, 16.0]),
        (5, vec![1.0, 2.0, 4.0, 8.0, 16.0]),
    ] {
        let kind = equal_arms(seeds, &arms, 0.05);
        let rates = rates(&kind);
        assert!(
            rates.any <= 0.15 && rates.winner <= 0.05,
            "{rates:?} of {kind:?}"
        );
    }
}

#[test]
fn differences_of_five_deviations_are_named() {
    // Four arms are worse than the first by the stated number of standard deviations of a run.
    for (seeds, arms, deviations) in [(3, 5, 5.0), (3, 3, 5.0), (3, 2, 6.0), (5, 5, 3.0)] {
        let mut kind = equal_arms(seeds, &vec![1.0; arms], 0.05);
        kind.arms[1..].iter_mut().for_each(|arm| arm.0 = deviations);
        let rates = rates(&kind);
        assert!(rates.first >= 0.9, "{rates:?} of {kind:?}");
    }
    // A far worse arm with a far larger scatter hides no difference of the others.
    let mut kind = equal_arms(3, &[0.1, 0.1, 0.1, 0.1, 3.0], 0.01);
    kind.arms[1..4].iter_mut().for_each(|arm| arm.0 = 0.6);
    kind.arms[4].0 = 30.0;
    let rates = rates(&kind);
    assert!(rates.first >= 0.9, "{rates:?} of {kind:?}");
}

#[test]
fn documents_alone_show_large_differences() {
    // Nothing was trained: one evaluation, 16 documents.
    let mut kind = Kind {
        of_seeds: 0.0,
        ..equal_arms(1, &[0.0; 4], 1.0)
    };
    let none = rates(&kind);
    assert!(none.any <= 0.07 && none.covered >= 0.93, "{none:?}");
    // Slightly more than a standard deviation of the documents' differences.
    kind.arms[1..].iter_mut().for_each(|arm| arm.0 = 1.8);
    let some = rates(&kind);
    assert!(some.first >= 0.9, "{some:?}");
}

/// 600 runs of the tiny model recorded by `cargo xtask interval-coverage --record`: nf4 under LoRA,
/// with different seeds only.
#[test]
fn real_runs_with_different_seeds_have_the_expected_coverage() {
    let file = Golden::open("compare/null_pairs.safetensors");
    let judged = interval_coverage::evaluate(&interval_coverage::recorded(&file), 3);
    assert_eq!(judged.pairs, 100);
    assert!(judged.has_expected_coverage(), "{judged:?}");
    // Intervals are as wide as needed, but not wider: 2 x 4.3 standard errors of 2 degrees of
    // freedom.
    assert!(judged.width < 12.0 * judged.deviation, "{judged:?}");
}

/// The same runs as families of four equal arms: an arm is distinguished in about one of twenty.
#[test]
fn real_runs_with_different_seeds_have_no_best_arm() {
    let file = Golden::open("compare/null_pairs.safetensors");
    let runs = interval_coverage::recorded(&file);
    let families = runs.chunks_exact(12).map(|runs| {
        let arms: Vec<Vec<&HeldOut>> = runs
            .chunks_exact(3)
            .map(|arm| arm.iter().collect())
            .collect();
        Family::compare(&arms, Basis::DocumentsAndSeeds, 2000).expect("the same documents")
    });
    let reported = families.map(|family| {
        let reported = family
            .comparisons
            .iter()
            .filter(|comparison| comparison.is_significant)
            .count();
        [
            reported > 0,
            (0..4)
                .filter(|at| {
                    family
                        .with_leader(*at)
                        .is_some_and(|one| one.is_significant)
                })
                .count()
                == 3,
        ]
    });
    let reported: Vec<[bool; 2]> = reported.collect();
    let count = |what: usize| reported.iter().filter(|one| one[what]).count();
    assert_eq!(reported.len(), 50);
    println!("any {} winner {}", count(0), count(1));
    // The true rate is 5 of 100: more than 6 of 50 occur in 1 case of 30.
    assert!(count(0) <= 6 && count(1) <= 2, "{} {}", count(0), count(1));
}
