//! Many runs of one arm under other seeds -> how often equal arms appear to differ.
//!
//! Usage: `cargo run --release -p espalier-tests --example interval_coverage -- PAIRS SEEDS
//! [RECORD.safetensors]`
#![allow(clippy::print_stdout, clippy::print_stderr)] // A tool of the developer's.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use espalier_compare::statistics::{DRAWS, Difference, Paired};
use espalier_config::{Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::step;
use espalier_plan::plan::Purpose;
use espalier_system::memory::Meter;
use espalier_system::stop::StopFlag;
use espalier_tests::{golden_path, interval_coverage};
use espalier_trainer::session::{ProcessContext, Session};
use espalier_trainer::train::HeldOut;
use espalier_trainer::{Error, weights};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// Steps of a run.
const STEPS: u64 = 15;
/// The first run's seed.
const FIRST_SEED: u64 = 1000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [pairs, seeds, record @ ..] = words.as_slice() else {
        panic!("usage: interval_coverage PAIRS SEEDS [RECORD.safetensors]");
    };
    let [pairs, seeds] = [pairs, seeds].map(|word| word.parse::<usize>().expect("a number"));
    let runs = train_all("nf4", 2 * pairs * seeds);
    if let [record] = record {
        save(&runs, Path::new(record));
    }
    let judged = interval_coverage::evaluate(&runs, seeds);
    println!(
        "{} of {} pairs of {seeds} against {seeds} other seeds of nf4 hold 0 within their 95 % interval",
        judged.holding, judged.pairs
    );
    println!(
        "their differences scatter by {:.5} nats (standard deviation; the largest is {:.5}), their intervals are {:.5} wide",
        judged.deviation, judged.largest, judged.width
    );
    show_power(&runs[..seeds]);
    if judged.has_expected_coverage() {
        ExitCode::SUCCESS
    } else {
        eprintln!("expected 90 to 99 of 100");
        ExitCode::FAILURE
    }
}

/// Arms that differ, under the seeds of the first runs of nf4.
fn show_power(nf4: &[HeldOut]) {
    let other = |quantizer: &str| train_all(quantizer, nf4.len());
    let (dense, int8) = (other("none"), other("int8"));
    let arms = [("dense", &dense[..]), ("int8", &int8), ("nf4", nf4)];
    for (first, second) in [(1, 0), (2, 0), (2, 1)] {
        let [first, second] = [first, second].map(|arm: usize| arms[arm]);
        let runs = [first.1, second.1].map(|runs| runs.iter().collect::<Vec<_>>());
        let paired = Paired::new(&runs[0], &runs[1]).expect("the same documents");
        let difference = Difference::trained(&paired, DRAWS);
        let [low, high] = difference.interval.0;
        let verdict = if difference.is_real() {
            "real"
        } else {
            "within noise"
        };
        println!(
            "{} less {}: {:+.5} nats ({low:+.5} to {high:+.5}), {verdict}",
            first.0, second.0, difference.estimate
        );
    }
}

/// Trains `runs` runs under consecutive seeds, one run per core at a time.
fn train_all(quantizer: &str, runs: usize) -> Vec<HeldOut> {
    let next = AtomicU64::new(0);
    let work = || {
        let config = resolve(&sources(quantizer, 0)).expect("a config");
        let process_context =
            ProcessContext::start(config.config(), &StopFlag::new()).expect("threads");
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= runs as u64 {
                return done;
            }
            let run = train_one(quantizer, FIRST_SEED + index, &process_context);
            done.push((index, run.unwrap_or_else(|error| panic!("{error}"))));
            if index % 50 == 49 {
                eprintln!("{} of {runs} runs of {quantizer}", index + 1);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<(u64, HeldOut)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker that ends"));
        ended.flatten().collect()
    });
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, run)| run).collect()
}

/// A run of the tiny model on the quickstart's plain text. The seed determines the adapter's first
/// values, the order of the rows and the dropout.
fn sources(quantizer: &str, seed: u64) -> Sources {
    let data = |name: &str| {
        let root = golden_path("../../configs/quickstart/data");
        format!("[{:?}]", root.join(name))
    };
    let plugins = match quantizer {
        "none" => "[\"lora\"]".to_owned(),
        quantizer => format!("[{quantizer:?}, \"lora\"]"),
    };
    let keys = [
        (
            "model.path",
            format!("{:?}", golden_path("llama/tiny-trained")),
        ),
        ("plugins", plugins),
        ("model.compute", "\"f32\"".to_owned()),
        ("data.files", data("train.jsonl")),
        ("data.eval_files", data("held-out.jsonl")),
        ("data.max_seq_len", "64".to_owned()),
        ("data.too_long", "\"truncate\"".to_owned()), // most of a row is cut, as it always was
        ("data.batch_size", "4".to_owned()),
        ("data.micro_batch", "4".to_owned()),
        ("adapter.lora.rank", "4".to_owned()),
        ("adapter.lora.alpha", "8".to_owned()),
        ("adapter.lora.dropout", "0.1".to_owned()),
        ("optim.learning_rate", "1e-3".to_owned()),
        ("run.max_steps", STEPS.to_string()),
        ("run.threads", "1".to_owned()),
        ("run.seed", seed.to_string()),
    ];
    let set =
        |sources: Sources, (key, value): (&str, String)| sources.set(format!("{key}={value}"));
    keys.into_iter().fold(Sources::default(), set)
}

fn train_one(
    quantizer: &str,
    seed: u64,
    process_context: &ProcessContext,
) -> Result<HeldOut, Error> {
    let resolved = resolve(&sources(quantizer, seed))?;
    let (observer, meter) = (Unobserved, Meter::whole_process());
    let session = Session::open_among(
        &resolved,
        Purpose::Train,
        process_context,
        &meter,
        &observer,
        &StopFlag::new(),
    )?;
    let config = resolved.config();
    let data = session.data.expect("rows were named");
    let (executor, _) = weights::load(
        config,
        &session.directory,
        &session.components,
        session.run,
        &observer,
    )?;
    for index in 0..STEPS {
        let rows = data.train.step(index)?;
        step::train(&executor, &config.optim, &rows, [index, STEPS], seed)?;
    }
    let held_out = data.eval.expect("held-out rows were named");
    let outcome = step::evaluate(&executor, &held_out, seed, &mut |_| Ok(()))?;
    Ok(HeldOut {
        step: STEPS,
        documents: outcome.documents,
    })
}

fn save(runs: &[HeldOut], path: &Path) {
    let documents = || runs.iter().flat_map(|run| &run.documents);
    let losses = documents().flat_map(|document| (document.loss as f32).to_le_bytes());
    let losses: Vec<u8> = losses.collect();
    let count = runs[0].documents.len();
    let trained = documents().take(count);
    let trained: Vec<u8> = trained
        .flat_map(|document| (document.trained as i64).to_le_bytes())
        .collect();
    let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).expect("it fits");
    let tensors = HashMap::from([
        ("losses", view(Dtype::F32, vec![runs.len(), count], &losses)),
        ("trained", view(Dtype::I64, vec![count], &trained)),
    ]);
    safetensors::serialize_to_file(tensors, None, path).expect("a file");
}
