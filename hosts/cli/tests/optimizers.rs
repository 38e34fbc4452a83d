//! Runs with each optimizer: their checkpoints, how they resume on the same and on other ranks, and
//! the groups of params that `--dry-run` and `plan` list.

use std::fs;

use espalier_torture::training;
use serde_json::Value as Json;
use training::{Training, names};

const SGD: &str = "--set optim.name=sgd --set optim.learning_rate=0.05";
const MOMENTUM: &str = "--set optim.momentum=0.9 --set optim.weight_decay=0.1";
const ADAMW8BIT: &str = "--set optim.name=adamw8bit --set optim.weight_decay=0.1";

/// The tensors of a file in the checkpoint after `step` steps; none where it has no such file.
fn tensors(training: &Training, out: &str, step: u32, file: &str) -> Option<Vec<String>> {
    let path = format!("{out}/checkpoints/step-{step}/{file}");
    let bytes = fs::read(training.path(&path)).ok()?;
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Json = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let names = header.as_object().expect("tensors").keys();
    let names = names.filter(|name| *name != "__metadata__");
    Some(names.cloned().collect())
}

#[test]
fn sgd_saves_its_momentum_and_resumes_to_the_same_bits() {
    for (kind, kept) in [
        (
            format!("--plugins lora {SGD} {MOMENTUM} --set optim.nesterov=true"),
            true,
        ),
        (format!("{SGD} {MOMENTUM}"), true),
        (format!("--plugins nf4,lora {SGD}"), false),
    ] {
        let training = Training::new(&kind);
        let whole = training.succeed("whole", "");
        training.unfinished("whole", "again");
        let resumed = training.succeed("again", "--resume=step-4 --threads 2");
        assert_eq!(resumed.metrics, whole.metrics, "{kind}");
        assert!(resumed.files == whole.files, "{kind}");
        let params = tensors(&training, "again", 6, "params.safetensors").expect("params");
        let state = tensors(&training, "again", 6, "optimizer.safetensors");
        let expected = params.iter().map(|name| format!("{name}.momentum"));
        assert_eq!(state, kept.then(|| expected.collect()), "{kind}");
    }
}

/// In full fine-tuning some params have at least 4096 elements, others fewer.
#[test]
fn adamw8bit_saves_codes_or_moments_and_resumes_to_the_same_bits() {
    let offload = "--plugins fsdp --ranks 2 --set sharding.fsdp.offload=params+optimizer";
    for (kind, kinds) in [
        (ADAMW8BIT.to_owned(), [true, true]),
        (
            format!("--plugins nf4,lora {ADAMW8BIT} --set optim.min_8bit_size=1"),
            [true, false],
        ),
        (format!("{offload} {ADAMW8BIT}"), [true, true]),
    ] {
        let training = Training::new(&kind);
        let whole = training.succeed("whole", "");
        training.unfinished("whole", "again");
        let resumed = training.succeed("again", "--resume=step-4 --threads 2");
        assert_eq!(resumed.metrics, whole.metrics, "{kind}");
        assert!(resumed.files == whole.files, "{kind}");
        let Some(params) = tensors(&training, "again", 6, "params.safetensors") else {
            assert!(
                kind.contains("fsdp"),
                "{kind}: ranks alone have files of their own"
            );
            continue;
        };
        let state = tensors(&training, "again", 6, "optimizer.safetensors").expect("state");
        let has = |name: &str, tensor: &str| state.contains(&format!("{name}.{tensor}"));
        let coded = params
            .iter()
            .filter(|name| has(name, "first_absmax"))
            .count();
        assert_eq!(
            [coded > 0, coded < params.len()],
            kinds,
            "{kind}: {coded} are coded"
        );
        for name in &params {
            assert!(
                has(name, "first_moment") && has(name, "second_moment"),
                "{name}"
            );
            let absmax = ["first_absmax", "second_absmax"].map(|tensor| has(name, tensor));
            assert_eq!(absmax[0], absmax[1], "{name}");
        }
        assert_eq!(state.len(), 2 * (params.len() + coded), "{kind}");
    }
}

#[test]
fn another_optimizer_is_refused_by_both_names() {
    let training = Training::new("--plugins lora");
    training.succeed("whole", "");
    training.unfinished("whole", "again");
    let words = "optim.name: \"adamw\" -> \"sgd\" | optim.momentum: unset -> 0.9";
    let more = format!("--resume=step-4 {SGD} --set optim.momentum=0.9");
    training.refuse("again", &more, 2, words);
    let words = "optim.name: \"adamw\" -> \"adamw8bit\"";
    training.refuse("again", &format!("--resume=step-4 {ADAMW8BIT}"), 2, words);
    let more = "--resume=step-4 --set optim.decay_norms_and_biases=true";
    let words = "optim.decay_norms_and_biases: false -> true";
    training.refuse("again", more, 2, words);
}

#[test]
fn state_of_bf16_is_saved_as_such_and_not_resumed_as_f32() {
    let training = Training::new("--plugins lora --set optim.state=bf16");
    training.succeed("whole", "");
    training.unfinished("whole", "again");
    let path = training.path("whole/checkpoints/step-6/optimizer.safetensors");
    let bytes = fs::read(path).expect("a file");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Json = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let tensors = header.as_object().expect("tensors").iter();
    let tensors = tensors.filter(|(name, _)| *name != "__metadata__");
    let dtypes: Vec<&Json> = tensors.map(|(_, tensor)| &tensor["dtype"]).collect();
    assert!(!dtypes.is_empty() && dtypes.iter().all(|dtype| **dtype == "BF16"));
    let words = "optim.state: \"bf16\" -> \"f32\"";
    training.refuse("again", "--resume=step-4 --set optim.state=f32", 2, words);
}

#[test]
fn codes_are_not_resumed_as_moments_nor_by_another_bound() {
    let training = Training::new("--plugins lora");
    training.succeed("whole", ADAMW8BIT);
    training.unfinished("whole", "again");
    let words = "optim.name: \"adamw8bit\" -> \"adamw\"";
    let more = "--resume=step-4 --set optim.name=adamw --set optim.weight_decay=0.1";
    training.refuse("again", more, 2, words);
    let words = "optim.min_8bit_size: 4096 -> 1";
    let more = format!("--resume=step-4 {ADAMW8BIT} --set optim.min_8bit_size=1");
    training.refuse("again", &more, 2, words);
}

/// Full fine-tuning, so that groups cut the units' runs beside the ranks.
#[test]
fn optimizers_and_groups_resume_on_another_number_of_ranks() {
    let group = "--set optim.groups=[{pattern=\"*.q_proj.*\",learning_rate=0.01}]";
    for optimizer in [
        format!("{SGD} {MOMENTUM}"),
        SGD.to_owned(),
        ADAMW8BIT.to_owned(),
    ] {
        let base = format!("--set model.compute=f64 {group} {optimizer}");
        let training = Training::new(&base);
        let alone = training.succeed("alone", "");
        let sharded = |ranks: u32, offload: &str| {
            format!("--plugins fsdp --ranks {ranks} --set sharding.fsdp.offload={offload}")
        };
        let changes = [
            (sharded(3, "params+optimizer"), sharded(2, "none")),
            (String::new(), sharded(3, "params+optimizer")),
            (sharded(2, "params"), String::new()),
        ];
        for (index, (from, to)) in changes.iter().enumerate() {
            let (first, second) = (format!("from-{index}"), format!("to-{index}"));
            let case = format!("{optimizer}: {from} then {to}");
            training.succeed(&first, from).assert_close(&alone, &case);
            training.unfinished(&first, &second);
            let resumed = training.succeed(&second, &format!("{to} --resume=step-2"));
            resumed.assert_close(&alone, &case);
        }
    }
}

#[test]
fn groups_are_listed_and_rates_recorded() {
    let group = "--set optim.groups=[{pattern=\"*.embed_tokens.weight\",learning_rate=1e-5}]";
    let training = Training::new(&format!("{group} --set optim.weight_decay=0.1"));
    let output = training.run("dry", "--dry-run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "optimizer  adamw\n",
        "group    \"*.embed_tokens.weight\": 1 params of ",
        "learning rate 0.00001, weight decay 0.1\n",
        "group    others: ",
        "learning rate 0.0002, weight decay 0.1\n",
        "group    other biases and norms: ",
        "learning rate 0.0002, weight decay 0\n",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert_eq!(names(&training.path("dry")), [] as [&str; 0]);
    training.succeed("run", "");
    let read = |name: &str| fs::read_to_string(training.path("run").join(name)).expect("a file");
    let run: Json = serde_json::from_str(&read("run.json")).expect("JSON");
    let groups = run["param_groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 3, "{groups:?}");
    assert_eq!(groups[0]["pattern"], "*.embed_tokens.weight");
    assert_eq!(
        (&groups[2]["exempt"], &groups[2]["weight_decay"]),
        (&true.into(), &0.0.into())
    );
    let metrics = read("metrics.jsonl");
    let step = metrics.lines().find(|line| line.contains("\"loss\""));
    let step: Json = serde_json::from_str(step.expect("a step")).expect("JSON");
    let rates = serde_json::json!([1e-5, 2e-4, 2e-4]);
    assert_eq!(step["group_learning_rates"], rates, "{step}");
    let page = read("report.html");
    assert!(
        page.contains("Groups of trained parameters"),
        "no groups in the report"
    );
}

/// LoRA+: B and magnitudes learn faster than A.
#[test]
fn an_adapters_own_rates_are_listed_and_recorded() {
    let training = Training::new("--plugins dora --set adapter.dora.learning_rate_ratio=4");
    training.succeed("run", "");
    let read = |name: &str| fs::read_to_string(training.path("run").join(name)).expect("a file");
    let run: Json = serde_json::from_str(&read("run.json")).expect("JSON");
    let groups = run["param_groups"].as_array().expect("groups");
    let rates = |group: &Json| {
        (
            group["learning_rate_ratio"].as_f64(),
            group["params"].as_u64(),
        )
    };
    let found: Vec<_> = groups.iter().map(rates).collect();
    assert_eq!(found, [(None, Some(14)), (Some(4.0), Some(28))]);
    let metrics = read("metrics.jsonl");
    let step = metrics.lines().find(|line| line.contains("\"loss\""));
    let step: Json = serde_json::from_str(step.expect("a step")).expect("JSON");
    assert_eq!(
        step["group_learning_rates"],
        serde_json::json!([2e-4, 8e-4]),
        "{step}"
    );
    assert!(read("report.html").contains("others, at 4 times the rate"));
}
