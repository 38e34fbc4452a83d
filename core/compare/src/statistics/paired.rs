//! The held-out losses of two arms -> their differences by seed and document.

use espalier_trainer::train::HeldOut;

/// The differences of two arms' losses, over S seeds and D documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// Trained tokens of each document, `[D]`; all above 0.
    pub trained: Vec<f64>,
    /// Summed loss of the first arm less that of the second, in nats, `[S][D]`.
    pub differences: Vec<Vec<f64>>,
}

/// Why the runs of two arms cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpaired {
    /// One of them has no run, or their numbers of runs differ.
    #[error("there are {first} runs of the one and {second} of the other")]
    Runs {
        /// Runs of the first arm.
        first: usize,
        /// Runs of the second arm.
        second: usize,
    },
    /// The documents of two runs are not the same.
    #[error("they were not evaluated on the same held-out documents")]
    Documents,
    /// No document has a trained token.
    #[error("no held-out document has a trained token")]
    Untrained,
    /// A document's loss is not finite.
    #[error("the loss of a held-out document is not a number")]
    NotFinite,
}

impl Paired {
    /// Pairs runs of two arms in the given order, document by document. Documents without a trained
    /// token are skipped.
    ///
    /// # Errors
    /// [`Unpaired`] where the runs cannot be paired.
    pub fn new(first: &[&HeldOut], second: &[&HeldOut]) -> Result<Self, Unpaired> {
        if first.is_empty() || first.len() != second.len() {
            let (first, second) = (first.len(), second.len());
            return Err(Unpaired::Runs { first, second });
        }
        let counts = |run: &HeldOut| -> Vec<u64> {
            let trained = run.documents.iter().map(|document| document.trained);
            trained.collect()
        };
        let trained = counts(first[0]);
        if first.iter().chain(second).any(|run| counts(run) != trained) {
            return Err(Unpaired::Documents);
        }
        let pair = |(first, second): (&&HeldOut, &&HeldOut)| -> Vec<f64> {
            let documents = first.documents.iter().zip(&second.documents);
            let bearing = documents.filter(|(document, _)| document.trained > 0);
            bearing.map(|(a, b)| a.loss - b.loss).collect()
        };
        let differences: Vec<Vec<f64>> = first.iter().zip(second).map(pair).collect();
        let bearing = trained.into_iter().filter(|trained| *trained > 0);
        let trained: Vec<f64> = bearing.map(|trained| trained as f64).collect();
        if trained.is_empty() {
            return Err(Unpaired::Untrained);
        }
        if differences.iter().flatten().any(|x| !x.is_finite()) {
            return Err(Unpaired::NotFinite);
        }
        Ok(Paired {
            trained,
            differences,
        })
    }

    /// All trained tokens.
    pub fn tokens(&self) -> f64 {
        self.trained.iter().sum()
    }

    /// Each document's difference, mean over seeds, `[D]`.
    pub fn by_document(&self) -> Vec<f64> {
        let sum = |document: usize| -> f64 {
            let seeds = self.differences.iter().map(|seed| seed[document]);
            seeds.sum::<f64>() / self.differences.len() as f64
        };
        (0..self.trained.len()).map(sum).collect()
    }

    /// Each seed's difference per token, `[S]`.
    pub fn by_seed(&self) -> Vec<f64> {
        let tokens = self.tokens();
        let mean = |seed: &Vec<f64>| seed.iter().sum::<f64>() / tokens;
        self.differences.iter().map(mean).collect()
    }

    /// The mean over seeds of the difference per token.
    pub fn estimate(&self) -> f64 {
        let by_seed = self.by_seed();
        by_seed.iter().sum::<f64>() / by_seed.len() as f64
    }
}
