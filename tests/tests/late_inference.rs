//! Evaluation, generation and merging on the backend `late`: every order of its tasks gives the
//! bits of `cpu`.

mod lately;
mod swapping;

use std::fs;
use std::path::Path;

use espalier_compile::program::CacheShape;
use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::Unobserved;
use espalier_engine::team::Team;
use espalier_interface::DType;
use espalier_plan::plan::Generation;
use espalier_system::stop::StopFlag;
use espalier_tests::{golden_path, row_logits};
use espalier_trainer::convert::Base;
use espalier_trainer::convert::merge::{self, MergeOptions};
use espalier_trainer::evaluate;
use espalier_trainer::generate::{Answer, Flow, Generator, Request, Sampling};
use espalier_trainer::session::Session;
use espalier_trainer::weights;

use lately::{ORDERS, add_library, named, on_late};
use swapping::{Job, plugin_folder};

/// The key of an adapter that was trained on `llama/tiny-trained`.
fn adapter(name: &str) -> String {
    format!("model.adapter={:?}", golden_path(&format!("llama/{name}")))
}

/// That of the adapters.
const NO_DROPOUT: &str = "adapter.lora.dropout=0.0";

/// A job of which every row has a question and its answer.
fn of_questions(keys: &[&str]) -> Job {
    let job = Job::new(keys);
    let row = |index: i32| {
        let asked: Vec<i32> = (0..3 + index).map(|at| 5 + 9 * index + at).collect();
        let answer = [60 + index, 70 + index, 1];
        let labels = [vec![-100; asked.len()], answer.to_vec()].concat();
        let tokens = [asked, answer.to_vec()].concat();
        format!(
            "{}\n",
            serde_json::json!({"input_ids": tokens, "labels": labels})
        )
    };
    let rows: String = (0..8).map(row).collect();
    fs::write(job.path("rows.jsonl"), rows).expect("written");
    job
}

/// Compares what `of` makes of a job on `late`, in every order, with what it makes on `cpu`. It is
/// given the job and the name of a folder that does not exist.
fn equals_cpu<T: PartialEq + std::fmt::Debug>(
    job: &Job,
    more: &[&str],
    of: impl Fn(&Job, &str) -> T,
) {
    let folder = plugin_folder(job, "late");
    add_library(&folder, "late-collective");
    let expected = of(job, "cpu");
    for order in ORDERS {
        let mut run = on_late(job, &folder, order);
        run.keys.extend(more.iter().map(|key| (*key).to_owned()));
        let found = of(&run, &named("late", order));
        assert!(found == expected, "{:?} {more:?} {order:?}", job.keys);
    }
}

/// The numbers of an evaluation.
fn evaluated(job: &Job, out: &str) -> (Vec<u64>, [Option<u64>; 2]) {
    let found = evaluate::run(&job.config(out), &Unobserved, &StopFlag::new());
    let found = found.expect("an evaluation");
    assert!(found.loss.is_finite() && found.trained_tokens > 0);
    let numbers = [found.loss, found.perplexity, found.token_accuracy];
    let mut bits: Vec<u64> = numbers.map(f64::to_bits).to_vec();
    bits.extend([found.sequences, found.tokens, found.trained_tokens]);
    let exact = found.exact_match.map(f64::to_bits);
    (bits, [exact, found.answers])
}

#[test]
fn evaluations_equal_cpu_in_every_order() {
    let adapter = adapter("adapter_trained_nf4");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["plugins=\"nf4\"", "run.eval_answers=3"], &[]),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.prefetch=0",
            ],
            &[],
        ),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "sharding.fsdp.offload=\"params\"",
                "sharding.fsdp.prefetch=2",
                "run.eval_answers=3",
            ],
            &[],
        ),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "sharding.fsdp.offload=\"params+optimizer\"",
                "sharding.fsdp.gather=\"host-direct\"",
                "sharding.fsdp.offload_activations=true",
            ],
            &[],
        ),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "run.ranks=2",
                "sharding.fsdp.offload=\"params\"",
            ],
            &[],
        ),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "run.ranks=2",
                "sharding.fsdp.offload=\"params\"",
                "run.eval_answers=3",
            ],
            &["run.device_collective=\"late-collective\""],
        ),
    ];
    for (keys, more) in cases {
        let job = of_questions(&[keys, &[adapter.as_str(), NO_DROPOUT]].concat());
        equals_cpu(&job, more, evaluated);
    }
}

/// A training run counts exact answers before, during and after its steps.
#[test]
fn answers_of_a_training_run_equal_cpu_in_every_order() {
    let cases: [&[&str]; 3] = [
        &["plugins=\"nf4,lora\""],
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "sharding.fsdp.offload=\"params+optimizer\"",
        ],
        &[
            "plugins=\"nf4,lora,fsdp\"",
            "run.ranks=2",
            "sharding.fsdp.offload=\"params\"",
            "sharding.fsdp.offload_activations=true",
        ],
    ];
    for keys in cases {
        let job = of_questions(&[keys, &["run.eval_answers=3"]].concat());
        equals_cpu(&job, &[], |job, out| {
            let found = job.run(out, &[]);
            let summary = found.summary.as_ref().expect("this process made the run");
            let evaluations = [&summary.eval_before, &summary.eval_after].map(|one| {
                let exact = one.as_ref().and_then(|one| one.exact_match());
                exact.expect("answers").to_string()
            });
            (found.metrics, found.state, evaluations)
        });
    }
}

const GENERATION: Generation = Generation {
    cache: CacheShape {
        slots: 2,
        capacity: 48,
    },
    max_tokens: 7,
};

/// The ranks of a model that generates.
fn generating(resolved: &ResolvedConfig) -> Team {
    let stop = StopFlag::new();
    let session = Session::open_to_generate(resolved, &stop, |_, _| Ok(GENERATION));
    let Session {
        directory,
        components,
        run,
        others,
        collectives,
        ..
    } = session.expect("a session");
    let runs = std::iter::once(run).chain(others).collect();
    let config = resolved.config();
    let loaded = weights::load_team(
        config,
        &directory,
        &components,
        runs,
        &collectives,
        &Unobserved,
    );
    loaded.expect("a model").0
}

/// Four prompts in two slots, longer than a part of a prompt.
fn answered(team: &Team, sampling: Sampling) -> Vec<Answer> {
    let prompts: Vec<Vec<i32>> = [3, 16, 9, 24]
        .map(|length| (0..length).map(|at| (7 + 29 * at) % 90 + 3).collect())
        .to_vec();
    let requests: Vec<Request<'_>> = prompts
        .iter()
        .map(|prompt| Request {
            prompt,
            max_new_tokens: 12,
        })
        .collect();
    let mut generator =
        Generator::new(team, sampling, &[1], &StopFlag::new()).expect("a generator");
    let all = generator.answer(&requests, &mut |_, _| Ok(Flow::Continue));
    all.expect("answers")
}

#[test]
fn generated_tokens_and_logits_equal_cpu_in_every_order() {
    let sampling = Sampling {
        temperature: 1.0,
        top_p: 0.95,
        top_k: Some(50),
        seed: 11,
    };
    let [f32, nf4] = ["adapter_trained_f32", "adapter_trained_nf4"].map(adapter);
    let streamed = "sharding.fsdp.offload=\"params\"";
    let cases: [(&[&str], &[&str]); 7] = [
        (&["plugins=\"lora\"", &f32], &[]),
        (&["plugins=\"nf4\"", &nf4], &[]),
        (&["plugins=\"nf4,fsdp\"", streamed, &nf4], &[]),
        (
            &[
                "plugins=\"nf4,fsdp\"",
                "sharding.fsdp.offload=\"params+optimizer\"",
                "sharding.fsdp.gather=\"host-direct\"",
                "sharding.fsdp.prefetch=2",
                &nf4,
            ],
            &[],
        ),
        (&["plugins=\"nf4,ddp\"", "run.ranks=2", &nf4], &[]),
        (
            &["plugins=\"nf4,fsdp\"", "run.ranks=2", streamed, &nf4],
            &[],
        ),
        (
            &["plugins=\"nf4,fsdp\"", "run.ranks=2", streamed, &nf4],
            &["run.device_collective=\"late-collective\""],
        ),
    ];
    for (keys, more) in cases {
        let job = Job::new(&[keys, &[NO_DROPOUT]].concat());
        equals_cpu(&job, more, |job, out| {
            let team = generating(&job.config(out));
            let row: Vec<i32> = (0..20).map(|at| 5 + 4 * at).collect();
            let logits = row_logits(&team, &row);
            assert!(logits.iter().all(|one| !one.is_empty()));
            let answers = [Sampling::default(), sampling].map(|how| answered(&team, how));
            assert!(answers.iter().flatten().any(|one| one.tokens.len() > 3));
            (logits, answers)
        });
    }
}

#[test]
fn generation_by_decomposed_ops_gives_the_same_tokens_and_logits_in_every_order() {
    let nf4 = adapter("adapter_trained_nf4");
    let job = Job::new(&["plugins=\"nf4\"", nf4.as_str(), NO_DROPOUT]);
    let folder = plugin_folder(&job, "late");
    let row: Vec<i32> = (0..20).map(|at| 5 + 4 * at).collect();
    let of = |run: &Job, out: &str| {
        let team = generating(&run.config(out));
        (
            row_logits(&team, &row),
            answered(&team, Sampling::default()),
        )
    };
    let hidden = "backend.late.hides=\"rms_norm,rope,swiglu\"";
    let found = ORDERS.map(|order| {
        let mut run = on_late(&job, &folder, order);
        run.keys.push(hidden.to_owned());
        let stop = StopFlag::new();
        let resolved = run.config(&named("late", order));
        let session = Session::open_to_generate(&resolved, &stop, |_, _| Ok(GENERATION));
        let session = session.expect("a session");
        assert_eq!(
            session.run.plan.decomposed(),
            ["rms_norm", "rope", "swiglu"]
        );
        of(&run, &named("late", order))
    });
    let [expected, others @ ..] = &found;
    assert!(others.iter().all(|found| found == expected), "{found:?}");
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        (name, fs::read(entry.path()).expect("a file"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    files
}

#[test]
fn merged_models_equal_cpu_in_every_order() {
    let packed = |name: &str| golden_path(&format!("packed/{name}"));
    let cases = [
        ("dense", None, None),
        ("dense", Some(Base::Decoded), Some("plugins=\"nf4\"")),
        ("nf4", None, None),
    ];
    for (model, base, plugins) in cases {
        let job = Job::new(&[]);
        equals_cpu(&job, &[], |job, out| {
            let place = job.path(out);
            let fixed = [
                format!("model.path={:?}", packed(model)),
                format!("model.adapter={:?}", packed("dense-lora")),
                format!("run.out={place:?}"),
            ];
            let plugins = plugins.map(str::to_owned);
            let keys = fixed.iter().chain(&plugins).chain(&job.keys);
            let resolved = resolve(&keys.fold(Sources::default(), Sources::set));
            let options = MergeOptions {
                base,
                dtype: Some(DType::BF16),
            };
            let resolved = resolved.expect("a config");
            merge::merge(&resolved, options, &Unobserved, &StopFlag::new()).expect("merged");
            let files = files(&place);
            assert!(files.iter().any(|(name, _)| name == "model.safetensors"));
            files
        });
    }
}
