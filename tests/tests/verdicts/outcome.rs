//! A number -> the findings of a comparison of any outcome.

use std::collections::BTreeMap;

use espalier_compare::record::{Arm, Base, Comparison, Divergence, DocumentDivergence, Failure};
use espalier_compare::report::{ArmFindings, Findings, RunFindings};
use espalier_engine::document_loss::DocumentLoss;
use espalier_tests::Random;
use espalier_trainer::train::HeldOut;

const STEP: u64 = 9;

/// Properties shared by all arms of a comparison.
struct Setting {
    eval_only: bool,
    has_dense: bool,
    vocab: u64,
    /// The differences between arms, and the scatter of an arm's own runs and documents.
    apart: f64,
    of_runs: f64,
    of_both: f64,
    level: f64,
    /// Trained tokens of each document, and its loss above the level.
    trained: Vec<u64>,
    shared: Vec<f64>,
    by_seed: Vec<f64>,
}

/// A comparison of any outcome.
pub fn outcome(index: u64) -> Findings {
    let mut random = Random::of(index, 11);
    let arms = random.pick(&[0, 1, 2, 2, 3, 3, 4, 5, 6]);
    let setting = Setting::draw(&mut random);
    let found: Vec<ArmFindings> = (0..arms)
        .map(|number| setting.arm(&mut random, number))
        .collect();
    let eval_only = setting.eval_only;
    Findings {
        comparison: Comparison {
            dense_baseline: (setting.has_dense && arms > 0).then(|| "arm0".to_owned()),
            seeds: (0..setting.by_seed.len() as u64).collect(),
            eval_only,
            arms: found.iter().map(|arm| arm.arm.clone()).collect(),
            ..Comparison::default()
        },
        arms: found,
        step: (!eval_only).then_some(STEP),
        planned: Some(STEP),
        notes: Vec::new(),
    }
}

impl Setting {
    fn draw(random: &mut Random) -> Self {
        let seeds = random.pick(&[1, 2, 3, 3, 3, 4, 5]);
        let documents = random.pick(&[0, 1, 2, 3, 8, 12]);
        let eval_only = random.once_in(4);
        let has_dense = !random.once_in(4);
        let vocab = random.pick(&[0, 8, 512]);
        let scales = [0.0, 0.0, 1e-3, 0.1, 1.0];
        let [apart, of_seeds, of_runs, of_both] =
            [(); 4].map(|()| random.pick(&scales) * random.pick(&[1.0, 1.0, 30.0]));
        let trained = (0..documents)
            .map(|_| random.pick(&[0, 1, 7, 20]))
            .collect();
        let level = random.pick(&[1.0, 3.0, 9.0]);
        let shared = (0..documents).map(|_| random.normal()).collect();
        let by_seed = (0..seeds).map(|_| of_seeds * random.normal()).collect();
        Setting {
            eval_only,
            has_dense,
            vocab,
            apart,
            of_runs,
            of_both,
            level,
            trained,
            shared,
            by_seed,
        }
    }

    fn arm(&self, random: &mut Random, number: u64) -> ArmFindings {
        // Ties, and arms with a different scatter.
        let excess = self.apart * random.pick(&[0.0, 0.0, 1.0, 2.0, -1.5, 8.0]);
        let own = self.of_runs * random.pick(&[0.0, 1.0, 1.0, 10.0]);
        let before = self.held_out(random, [excess, 0.0], 0);
        let runs = self.runs(random, excess, own);
        let failures = match random.below(20) {
            0 => vec![None],
            1 => vec![Some(0)],
            _ => Vec::new(),
        };
        let failures = failures.into_iter().map(|seed| Failure {
            seed,
            step: 3,
            message: "it broke".to_owned(),
        });
        let is_dense = self.has_dense && number == 0;
        let divergence = (self.has_dense && !is_dense).then(|| self.divergence(random, excess));
        let base = Base {
            vocab: self.vocab,
            divergence,
            held_out: Some(before),
            ..Base::default()
        };
        ArmFindings {
            arm: Arm {
                name: format!("arm{number}"),
                failures: failures.collect(),
                ..Arm::default()
            },
            base: (!random.once_in(15)).then_some(base),
            runs,
        }
    }

    /// Losses of the documents, shifted by each of `shifts`.
    fn held_out(&self, random: &mut Random, [excess, shift]: [f64; 2], step: u64) -> HeldOut {
        let document = |(trained, shared): (&u64, &f64)| {
            let loss = self.level + excess + shift + shared + self.of_both * random.normal();
            let loss = match random.below(4000) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => 1e300,
                _ => loss * *trained as f64,
            };
            DocumentLoss {
                loss,
                correct: 0,
                trained: *trained,
            }
        };
        let mut documents: Vec<DocumentLoss> = self
            .trained
            .iter()
            .zip(&self.shared)
            .map(document)
            .collect();
        if random.once_in(60) {
            documents.pop();
        }
        HeldOut { step, documents }
    }

    /// An arm's runs, some of them missing.
    fn runs(&self, random: &mut Random, excess: f64, own: f64) -> Vec<RunFindings> {
        let mut runs = Vec::new();
        let seeds = self.by_seed.iter().enumerate();
        for (seed, of_seed) in seeds.filter(|_| !self.eval_only) {
            let shift = of_seed + own * random.normal();
            let run = self.held_out(random, [excess, shift], STEP);
            if !random.once_in(25) {
                runs.push(RunFindings {
                    seed: seed as u64,
                    held_out: BTreeMap::from([(STEP, run)]),
                    ..RunFindings::default()
                });
            }
        }
        runs
    }

    fn divergence(&self, random: &mut Random, excess: f64) -> Divergence {
        let size = excess.abs() + 0.01;
        let each = self.trained.iter().map(|tokens| DocumentDivergence {
            sum: *tokens as f64 * (size + self.of_both * random.normal()).abs(),
            tokens: *tokens,
        });
        let documents: Vec<DocumentDivergence> = each.collect();
        let documents = if random.once_in(15) {
            Vec::new()
        } else {
            documents
        };
        Divergence {
            tokens: self.trained.iter().sum(),
            mean: size,
            documents,
            ..Divergence::default()
        }
    }
}
