//! The published ladders and their rungs as data: their settings, and the published peaks.

/// A published ladder.
#[derive(Debug)]
pub(super) struct PublishedLadder {
    /// Its name, as `--ladder=NAME` takes it.
    pub name: &'static str,
    /// Its subject in a few words.
    pub about: &'static str,
    /// The publication.
    pub source: &'static str,
    /// The model that was measured there.
    pub preset: &'static str,
    /// Settings of that model's ladder where the user sets nothing else.
    pub rows: &'static [(&'static str, u64)],
    /// Name and bytes of the unit of its numbers.
    pub unit: (&'static str, f64),
    /// The rungs, in order.
    pub rungs: &'static [PublishedRung],
}

/// A rung of a ladder: settings over those of an earlier rung.
#[derive(Debug)]
pub(super) struct PublishedRung {
    /// Its name.
    pub name: &'static str,
    /// Index of the rung that it changes; the first one changes the user's config.
    pub from: usize,
    /// Its settings.
    pub settings: &'static [RungSetting],
    /// The logits that exist at once.
    pub logits: LogitsKept,
    /// The published peak, in the ladder's unit.
    pub published: f64,
}

/// The logits of a micro-batch that exist at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogitsKept {
    /// All, for comparison only: no run keeps them.
    All,
    /// Those of a chunk of tokens, as in every run.
    Chunk,
}

/// A setting of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RungSetting {
    /// `key=value`, as `--set` takes it.
    Set(&'static str),
    /// Trains all weights: without adapter and quantizer.
    Whole,
    /// Trains the user's adapter, else `lora`, on dense weights.
    Adapter,
    /// The same on weights that the user's quantizer packs, else `nf4`.
    PackedAdapter,
    /// Rows of a sixteenth of `data.max_seq_len`, where no rows are read.
    ShortRows,
    /// Rows packed up to `data.max_seq_len` tokens for each row of a micro-batch.
    PackedRows,
    /// One micro-batch a step.
    OneMicroBatch,
}

use RungSetting::{Adapter, OneMicroBatch, PackedAdapter, PackedRows, Set, ShortRows, Whole};

/// Bytes of a GB and of a GiB.
const GB: (&str, f64) = ("GB", 1e9);
const GIB: (&str, f64) = ("GiB", (1_u64 << 30) as f64);

/// All ladders; the first one whose preset is the user's is the default, else the last one.
pub(super) const LADDERS: [PublishedLadder; 2] = [
    PublishedLadder {
        name: "optimizers",
        about: "number types, optimizers, and updates in the backward pass",
        source: "torchtune's RFC on full fine-tuning in 16 GB, Llama 2 7B, one row, whose length it does not name; \
                 its rungs from 4 on have gradients and moments in bf16",
        preset: "llama2-7b",
        rows: &[
            ("data.max_seq_len", 64),
            ("data.batch_size", 1),
            ("data.micro_batch", 1),
        ],
        unit: GB,
        rungs: &OPTIMIZERS,
    },
    PublishedLadder {
        name: "recipe",
        about: "rows, logits, recompute and optimizer one after the other, then adapters",
        source: "torchtune's README, Llama 3.2 3B on an A100, 2 rows of 4096 tokens, gradients and \
                 moments in bf16; its first rung has rows of unequal length, and `compile` (51.0 GiB, between \
                 2 and 3) has no counterpart",
        preset: "llama3.2-3b",
        rows: &[
            ("data.max_seq_len", 4096),
            ("data.batch_size", 2),
            ("data.micro_batch", 2),
        ],
        unit: GIB,
        rungs: &RECIPE,
    },
];

const OPTIMIZERS: [PublishedRung; 10] = [
    PublishedRung {
        name: "adamw, all in f32",
        from: 0,
        settings: &[
            Whole,
            Set("model.compute=f32"),
            Set("model.params=f32"),
            Set("model.recompute=none"),
            Set("optim.name=adamw"),
            Set("optim.in_backward=false"),
        ],
        logits: LogitsKept::Chunk,
        published: 108.0,
    },
    PublishedRung {
        name: "sgd, all in f32",
        from: 0,
        settings: &[Set("optim.name=sgd")],
        logits: LogitsKept::Chunk,
        published: 54.0,
    },
    PublishedRung {
        name: "sgd, products in bf16",
        from: 1,
        settings: &[Set("model.compute=bf16")],
        logits: LogitsKept::Chunk,
        published: 54.0,
    },
    PublishedRung {
        name: "sgd, params in bf16",
        from: 2,
        settings: &[Set("model.params=bf16")],
        logits: LogitsKept::Chunk,
        published: 27.02,
    },
    PublishedRung {
        name: "adamw, params in bf16",
        from: 3,
        settings: &[Set("optim.name=adamw")],
        logits: LogitsKept::Chunk,
        published: 54.0,
    },
    PublishedRung {
        name: "adamw8bit",
        from: 4,
        settings: &[Set("optim.name=adamw8bit")],
        logits: LogitsKept::Chunk,
        published: 40.73,
    },
    PublishedRung {
        name: "adamw in the backward pass",
        from: 4,
        settings: &IN_BACKWARD,
        logits: LogitsKept::Chunk,
        published: 41.05,
    },
    PublishedRung {
        name: "adamw8bit in the backward pass",
        from: 6,
        settings: &[Set("optim.name=adamw8bit")],
        logits: LogitsKept::Chunk,
        published: 27.55,
    },
    PublishedRung {
        name: "the same on 8 rows",
        from: 7,
        settings: &[Set("data.batch_size=8"), Set("data.micro_batch=8")],
        logits: LogitsKept::Chunk,
        published: 35.0,
    },
    PublishedRung {
        name: "sgd in the backward pass",
        from: 3,
        settings: &IN_BACKWARD,
        logits: LogitsKept::Chunk,
        published: 14.4,
    },
];

const RECIPE: [PublishedRung; 8] = [
    PublishedRung {
        name: "short rows",
        from: 0,
        settings: &[
            Whole,
            Set("model.compute=bf16"),
            Set("model.params=bf16"),
            Set("model.recompute=none"),
            Set("optim.name=adamw"),
            Set("optim.in_backward=false"),
            ShortRows,
        ],
        logits: LogitsKept::All,
        published: 25.5,
    },
    PublishedRung {
        name: "packed rows",
        from: 0,
        settings: &[PackedRows],
        logits: LogitsKept::All,
        published: 60.0,
    },
    PublishedRung {
        name: "logits in chunks",
        from: 1,
        settings: &[],
        logits: LogitsKept::Chunk,
        published: 42.9,
    },
    PublishedRung {
        name: "recompute",
        from: 2,
        settings: &[Set("model.recompute=layer")],
        logits: LogitsKept::Chunk,
        published: 24.9,
    },
    PublishedRung {
        name: "in the backward pass",
        from: 3,
        settings: &IN_BACKWARD,
        logits: LogitsKept::Chunk,
        published: 23.1,
    },
    PublishedRung {
        name: "adamw8bit",
        from: 4,
        settings: &[Set("optim.name=adamw8bit")],
        logits: LogitsKept::Chunk,
        published: 17.6,
    },
    PublishedRung {
        name: "an adapter",
        from: 5,
        settings: &[Adapter],
        logits: LogitsKept::Chunk,
        published: 8.5,
    },
    PublishedRung {
        name: "packed weights",
        from: 6,
        settings: &[PackedAdapter],
        logits: LogitsKept::Chunk,
        published: 4.6,
    },
];

const IN_BACKWARD: [RungSetting; 3] = [
    Set("optim.clip_norm=0"),
    Set("optim.in_backward=true"),
    OneMicroBatch,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_changes_an_earlier_one() {
        for ladder in &LADDERS {
            assert_eq!(ladder.rungs[0].from, 0, "{}", ladder.name);
            for (index, rung) in ladder.rungs.iter().enumerate().skip(1) {
                assert!(rung.from < index, "{}: {}", ladder.name, rung.name);
            }
        }
    }
}
