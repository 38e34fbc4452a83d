//! Held-out rows answered during training: correct answers are counted, and no bit of the training
//! changes.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use espalier_config::{ResolvedConfig, Sources, resolve};
use espalier_engine::observer::{Event, Observer, Unobserved};
use espalier_system::stop::StopFlag;
use espalier_tests::golden_path;
use espalier_trainer::{evaluate, train};

/// Questions of different lengths, each with an answer determined by its prompt, and the end token.
fn write_rows(path: &Path) {
    let row = |first: i32, length: usize| {
        let prompt: Vec<i32> = (0..length as i32).map(|i| 40 + first + i).collect();
        let answer = [100 + first, 200 - first, 130 + first, 1];
        let labels = [vec![-100; length], answer.to_vec()].concat();
        let tokens = [prompt, answer.to_vec()].concat();
        format!(
            "{}\n",
            serde_json::json!({"input_ids": tokens, "labels": labels})
        )
    };
    let rows = [row(0, 3), row(20, 9), row(40, 5), row(60, 12)];
    fs::write(path, rows.concat()).expect("a place to write");
}

fn config(place: &Path, out: &str, keys: &[(&str, String)]) -> ResolvedConfig {
    let [model, rows, out] = [
        golden_path("llama/tiny-trained"),
        place.join("rows.jsonl"),
        place.join(out),
    ];
    let sources = Sources::default()
        .set(format!("model.path={model:?}"))
        .set(format!("run.out={out:?}"))
        .set(format!("data.files=[{rows:?}]"))
        .set("model.compute=\"f32\"");
    let set =
        |sources: Sources, (key, value): &(&str, String)| sources.set(format!("{key}={value}"));
    resolve(&keys.iter().fold(sources, set)).expect("a config")
}

/// The answers told so far, and all.
#[derive(Default)]
struct Told(Mutex<Vec<[u64; 2]>>);

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        if let Event::AnswerProgress { done, total } = *event {
            self.0.lock().expect("no panic").push([done, total]);
        }
    }
}

#[test]
fn training_learns_the_answers_and_counts_them() {
    let place = tempfile::tempdir().expect("a place to write");
    let place = place.path();
    write_rows(&place.join("rows.jsonl"));
    let rows = place.join("rows.jsonl");
    let training = [
        ("plugins", "\"nf4,lora\"".to_owned()),
        ("data.eval_files", format!("[{rows:?}]")),
        ("data.batch_size", "4".to_owned()),
        ("run.epochs", "60".to_owned()),
        ("optim.learning_rate", "1e-2".to_owned()),
    ];
    let asking = [&training[..], &[("run.eval_answers", "3".to_owned())]].concat();
    let run = |out: &str, keys: &[(&str, String)]| {
        let resolved = config(place, out, keys);
        train::run(&resolved, &Unobserved, &StopFlag::new()).expect("a run")
    };
    let asked = run("asked", &asking);
    let exact = |metrics: &Option<espalier_engine::observer::EvalMetrics>| {
        metrics
            .as_ref()
            .and_then(|one| one.exact_match())
            .expect("answers")
            .to_string()
    };
    assert_eq!(
        (exact(&asked.eval_before), exact(&asked.eval_after)),
        ("0/3".into(), "3/3".into())
    );
    let metrics = fs::read_to_string(place.join("asked/metrics.jsonl")).expect("metrics");
    let last = metrics.lines().last().expect("a line");
    assert!(
        last.contains("\"eval_exact_match\":1.0,\"eval_answers\":3"),
        "{last}"
    );
    // Without a tokenizer, samples are token ids.
    let samples = |metrics: Option<espalier_engine::observer::EvalMetrics>| {
        let samples = metrics.expect("an evaluation").eval_samples;
        let rights: Vec<bool> = samples.iter().map(|one| one.right).collect();
        (samples[1].clone(), rights)
    };
    let (before, wrong) = samples(asked.eval_before);
    let (after, right) = samples(asked.eval_after);
    assert_eq!((wrong, right), (vec![false; 3], vec![true; 3]));
    assert_eq!(before.question, "60 61 62 63 64 65 66 67 68");
    assert_eq!(
        (&*after.expected, &*after.answer),
        ("120 180 150", "120 180 150")
    );
    assert_ne!(before.answer, after.answer);

    run("plain", &training);
    let adapter = |out: &str| fs::read(place.join(out).join("adapter/adapter_model.safetensors"));
    assert_eq!(
        adapter("asked").expect("an adapter"),
        adapter("plain").expect("an adapter")
    );

    let saved = place.join("asked/adapter");
    let evaluated = config(
        place,
        "unused",
        &[
            ("plugins", "\"nf4\"".to_owned()),
            ("model.adapter", format!("{saved:?}")),
            ("run.eval_answers", "100".to_owned()),
        ],
    );
    let told = Told::default();
    let found = evaluate::run(&evaluated, &told, &StopFlag::new()).expect("an evaluation");
    assert_eq!((found.exact_match, found.answers), (Some(1.0), Some(4)));
    // Each answer is told as it ends.
    let told = told.0.into_inner().expect("no panic");
    assert!(
        told.first() == Some(&[0, 4]) && told.last() == Some(&[4, 4]),
        "{told:?}"
    );
    assert!(told.is_sorted(), "{told:?}");
    // 0 asks nothing.
    let none = config(place, "unused", &[("run.eval_answers", "0".to_owned())]);
    assert_eq!(none.config().run.eval_answers, None);
}

/// Shards and offloaded weights: the counts of one rank, and no bit of the training changes.
#[test]
fn ranks_and_offloaded_weights_learn_and_count_the_same_answers() {
    let place = tempfile::tempdir().expect("a place to write");
    let place = place.path();
    let rows = place.join("rows.jsonl");
    write_rows(&rows);
    let mut first_answers = None;
    let adapter = |out: &str| {
        let path = place.join(out).join("adapter/adapter_model.safetensors");
        fs::read(path).expect("an adapter")
    };
    for (name, strategy, ranks, offload) in [
        ("one", "fsdp", "1", "params"),
        ("two", "fsdp", "2", "params+optimizer"),
        ("replicas", "ddp", "4", ""),
    ] {
        let offload = match offload {
            "" => vec![],
            _ => vec![("sharding.fsdp.offload", format!("{offload:?}"))],
        };
        let ranks = [&[("run.ranks", ranks.to_owned())], &offload[..]].concat();
        let training = [
            ("plugins", format!("\"nf4,lora,{strategy}\"")),
            ("data.eval_files", format!("[{rows:?}]")),
            ("data.batch_size", "4".to_owned()),
            ("run.epochs", "60".to_owned()),
            ("optim.learning_rate", "1e-2".to_owned()),
        ];
        let run = |out: &str, more: &[(&str, String)]| {
            let resolved = config(place, out, &[&training[..], &ranks, more].concat());
            train::run(&resolved, &Unobserved, &StopFlag::new()).expect("a run")
        };
        let asked = run(
            &format!("{name}-asked"),
            &[("run.eval_answers", "3".to_owned())],
        );
        // The base has the same answers on any ranks.
        let before = asked.eval_before.clone().map(|before| before.eval_samples);
        assert_eq!(
            *first_answers.get_or_insert(before.clone()),
            before,
            "{name}"
        );
        let exact = [asked.eval_before, asked.eval_after].map(|one| {
            let found = one.as_ref().and_then(|one| one.exact_match());
            found.expect("answers").to_string()
        });
        assert_eq!(exact, ["0/3", "3/3"], "{name}");
        run(&format!("{name}-plain"), &[]);
        let [found, plain] = ["asked", "plain"].map(|how| adapter(&format!("{name}-{how}")));
        assert!(found == plain, "{name}: answering changes the training");

        let saved = place.join(format!("{name}-asked/adapter"));
        let keys = [
            ("plugins", format!("\"nf4,{strategy}\"")),
            ("model.adapter", format!("{saved:?}")),
            ("run.eval_answers", "100".to_owned()),
        ];
        let resolved = config(place, "unused", &[&keys[..], &ranks].concat());
        let found = evaluate::run(&resolved, &Unobserved, &StopFlag::new());
        let found = found.expect("an evaluation");
        let answered = (found.exact_match, found.answers);
        assert_eq!(answered, (Some(1.0), Some(4)), "{name}");
    }
}

#[test]
fn answers_without_held_out_rows_are_refused() {
    let place = tempfile::tempdir().expect("a place to write");
    write_rows(&place.path().join("rows.jsonl"));
    let keys = [
        ("plugins", "\"lora\"".to_owned()),
        ("run.eval_answers", "3".to_owned()),
    ];
    let resolved = config(place.path(), "out", &keys);
    let refused =
        train::run(&resolved, &Unobserved, &StopFlag::new()).expect_err("nothing held out");
    assert_eq!(refused.exit_code(), 2);
    assert!(
        refused.to_string().contains("run.eval_answers"),
        "{refused}"
    );
}
