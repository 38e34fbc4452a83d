//! PiSSA and LoftQ: what `host split` writes, and what is computed and learned from it, against
//! PEFT with bitsandbytes and hqq.

mod adapting;
mod splitting;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use espalier_engine::step;
use espalier_tests::{
    Golden, Rig, golden_path, largest_difference, micro_batch, relative_norm, step_of,
};

use adapting::{Subject, assert_near, eval_batch, model, row_by_row, tied_model, values};
use splitting::{
    CASES, FIXED, LOFTQ, PISSA, ROWS, SITES, adapter_of, kept, params, product, rig, split,
    split_model,
};

#[test]
fn the_first_base_and_adapter_are_pefts() {
    for case in CASES {
        let ((place, done), golden) = (case.split(), case.golden());
        let expected = golden.numbers("errors");
        match done.errors.relative() {
            None => assert_eq!(case.name, "pissa_f32"),
            Some(found) => {
                let off = largest_difference(&found, expected);
                assert!(
                    off <= 1e-5,
                    "{}: errors {found:?}, expected {expected:?}",
                    case.name
                );
                assert!(found[0] < found[1], "{}: nothing is gained", case.name);
            }
        }
        let saved = Golden::read(&place.path().join("out/adapter/adapter_model.safetensors"));
        case.compare("begin.", 1e-4, &|name| saved.numbers(name).to_vec());
        let rig = rig(&place);
        let found = rig.loss_and_gradients(&step_of(vec![eval_batch()]));
        assert_near(found, golden.numbers("loss")[0], 1e-5, case.name);
        let begun = |name: &str| saved.numbers(name).to_vec();
        for site in &SITES[..2] {
            let [down, up] = params(site.0);
            let one = product(&rig.gradient(&up), &begun(&down), *site, 1.0);
            let other = product(&begun(&up), &rig.gradient(&down), *site, 1.0);
            let sum: Vec<f64> = one
                .iter()
                .zip(&other)
                .map(|(one, other)| one + other)
                .collect();
            let expected = golden.numbers(&format!("grad.{}", site.0));
            let distance = relative_norm(&kept(&sum, *site), expected);
            assert!(
                distance <= 1e-4,
                "{}: gradients are off by {distance}",
                case.name
            );
        }
        let expected = golden.numbers("logits");
        let found = rig.logits(&eval_batch());
        // Those of the last token of the first row.
        let found = &found[47 * expected.len()..48 * expected.len()];
        let off = largest_difference(found, expected);
        assert!(off <= 2e-5, "{}: logits differ by {off}", case.name);
    }
}

#[test]
fn twenty_steps_follow_pefts_on_one_and_three_ranks() {
    let rows = Golden::open("llama/data.safetensors").rows("train_tokens");
    let total = rows.len() as u64 / 4;
    for case in CASES {
        let ((place, _), golden) = (case.split(), case.golden());
        let (adapter, base) = (adapter_of(&place), place.path().join("out/base"));
        let lora = Subject::shipped("lora", 8);
        let teams =
            [1, 3].map(|ranks| lora.team(&base, ranks, &[], &[("model.adapter", &adapter)]));
        for (index, rows) in rows.chunks(4).enumerate() {
            let at = [index as u64, total];
            for team in &teams {
                let found = team
                    .team
                    .train(&team.config.optim, &row_by_row(rows), at, 42);
                let (found, what) = (found.expect("a step"), format!("{} {index}", case.name));
                assert_near(found.loss, golden.numbers("curve.loss")[index], 2e-5, &what);
                let norm = golden.numbers("curve.norm")[index];
                assert_near(found.grad_norm / norm, 1.0, 1e-4, &what);
            }
        }
        for team in &teams {
            let of = values(team);
            case.compare("last.", 2e-4, &|name| of(name));
        }
    }
}

#[test]
fn a_dense_pissa_has_the_logits_of_its_model() {
    let keys = [
        FIXED[0],
        PISSA,
        "plugins=[\"lora\"]",
        "adapter.lora.rslora=true",
    ];
    let (place, done) = split(&keys).expect("split");
    assert_eq!(
        (done.sites, done.base.changed, done.errors.relative()),
        (14, 14, None)
    );
    let rig = rig(&place);
    let golden = Golden::open("llama/forward_tiny-trained.safetensors");
    let off = largest_difference(&rig.logits(&eval_batch()), golden.numbers("logits"));
    assert!(off <= 2e-5, "logits differ by {off}");
    let bare = Rig::new(&place.path().join("out/base"), &ROWS);
    let off = largest_difference(&bare.logits(&eval_batch()), golden.numbers("logits"));
    assert!(off > 0.1, "the base alone is another model: {off}");
}

#[test]
fn weights_begin_nearer_than_packed_alone_at_four_and_two_bits() {
    for (name, quantizer) in [
        ("nf4", "plugins=[\"nf4\", \"lora\"]"),
        ("hqq, 4 bits", "quantizer.hqq.bits=4"),
        ("hqq, 2 bits", "quantizer.hqq.bits=2"),
    ] {
        let plugins = if name == "nf4" {
            quantizer
        } else {
            "plugins=[\"hqq\", \"lora\"]"
        };
        let errors = |more: &[&str]| {
            let keys = [&[plugins, quantizer, FIXED[0]], more].concat();
            let (_, done) = split(&keys).expect("split");
            done.errors.relative().expect("packed weights")
        };
        let [pissa, alone] = errors(&[PISSA]);
        let [once, again] = errors(&[LOFTQ]);
        let [five, _] = errors(&[LOFTQ, "adapter.lora.loftq_iter=5"]);
        assert_eq!(alone, again, "{name}");
        assert!(
            pissa < 0.95 * alone,
            "{name}: PiSSA {pissa}, packed alone {alone}"
        );
        assert!(
            once < 0.95 * alone,
            "{name}: LoftQ {once}, packed alone {alone}"
        );
        assert!(five < once, "{name}: five rounds {five}, one {once}");
    }
}

/// All files below a directory, with their bytes.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let folders = ["base", "adapter"].map(|name| directory.join(name));
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let named = paths.map(|path| {
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let inside = path.strip_prefix(directory).expect("below");
        (
            format!("{}", inside.display()),
            (name, fs::read(&path).expect("a file")),
        )
    });
    // The adapter's config names the path of its base.
    let same = named.filter(|(_, (name, _))| name != "adapter_config.json");
    same.map(|(path, (_, bytes))| (path, bytes)).collect()
}

#[test]
fn the_bits_depend_on_the_seed_and_on_no_thread() {
    for keys in [
        [PISSA, "plugins=[\"lora\"]"],
        [LOFTQ, "plugins=[\"nf4\", \"lora\"]"],
    ] {
        let with = |more: [&str; 2]| {
            let (place, _) = split(&[&keys[..], &more].concat()).expect("split");
            files(&place.path().join("out"))
        };
        let one = with(["run.threads=1", "run.seed=1"]);
        assert!(one.keys().any(|name| name == "base/model.safetensors"));
        assert!(
            one.keys()
                .any(|name| name == "adapter/adapter_model.safetensors")
        );
        assert!(one == with(["run.threads=3", "run.seed=1"]), "{keys:?}");
        assert!(one != with(["run.threads=1", "run.seed=2"]), "{keys:?}");
    }
}

#[test]
fn the_split_base_trains_with_what_other_sites_pack() {
    // A site that stays dense beside packed ones: its base is the dense rest.
    let keys = [
        "plugins=[\"nf4\", \"lora\"]",
        PISSA,
        "sites=[{match=\"*.q_proj\", quantizer=\"none\"}]",
    ];
    let (place, done) = split(&keys).expect("split");
    assert_eq!((done.sites, done.base.changed), (14, 14));
    let rig = rig(&place);
    let rows = Golden::open("llama/data.safetensors").rows("eval_tokens");
    let batch = step_of(vec![micro_batch(&rows, &rows)]);
    let before = rig.loss_and_gradients(&batch);
    step::train(&rig.executor, &rig.config.optim, &batch, [0, 10], 1).expect("a step");
    assert!(rig.loss_and_gradients(&batch) < before);
}

#[test]
fn what_contradicts_itself_is_refused_before_a_weight_is_read() {
    let (dense, packed) = (model(), golden_path("packed/nf4"));
    let lora = "plugins=[\"lora\"]";
    let saved = format!("model.adapter={:?}", golden_path("llama/adapter_init"));
    for (model, keys, words) in [
        (&dense, vec![lora], "leaves the base as it is"),
        (&dense, vec![PISSA], "no adapter was named"),
        (
            &dense,
            vec![lora, LOFTQ],
            "no quantizer packs `model.layers.0.self_attn.q_proj`",
        ),
        (
            &dense,
            vec![lora, PISSA, &saved],
            "model.adapter is a saved adapter",
        ),
        (
            &packed,
            vec![lora, PISSA],
            "the model is packed already, by `nf4`",
        ),
        (
            &dense,
            vec![lora, PISSA, "adapter.lora.rank=65"],
            "init = pissa and rank = 65",
        ),
        (
            &dense,
            vec![lora, PISSA, "adapter.lora.modules_to_save=[\"lm_head\"]"],
            "modules_to_save with `lm_head`",
        ),
        (
            &dense,
            vec![lora, PISSA, "adapter.lora.targets=[\"embed_tokens\"]"],
            "the token table `model.embed_tokens`",
        ),
        (
            &dense,
            vec![lora, "adapter.lora.loftq_iter=2"],
            "loftq_iter = 2 changes nothing",
        ),
        (
            &dense,
            vec!["plugins=[\"dora\"]", "adapter.dora.init=\"pissa\""],
            "init",
        ),
    ] {
        let error = split_model(model, &keys).expect_err(words);
        assert!(
            error.to_string().contains(words),
            "{error}, expected {words}"
        );
    }
    let keys = [lora, PISSA, "adapter.lora.targets=[\"lm_head\"]"];
    let error = split_model(tied_model().path(), &keys).expect_err("tied");
    assert!(
        error
            .to_string()
            .contains("`lm_head`, which shares its weight"),
        "{error}"
    );
}

/// Training, planning and evaluating take the base and the adapter that were written.
#[test]
fn runs_on_the_unchanged_base_are_refused_with_the_way_to_split_it() {
    let lora = Subject::shipped("lora", 8);
    let pissa = ("adapter.lora.init", "\"pissa\"");
    let refused = |more: adapting::Keys<'_>| {
        let error = lora.try_rig(&["lora"], more).err().expect("refused");
        error.to_string()
    };
    let message = refused(&[pissa]);
    assert!(
        message.contains("adapter.lora.init lets adapter `lora` begin with a part of the weights"),
        "{message}"
    );
    let (place, _) = split(&[PISSA, "plugins=[\"lora\"]"]).expect("split");
    let adapter = adapter_of(&place);
    let message = refused(&[pissa, ("model.adapter", &adapter)]);
    assert!(
        message.contains("model.adapter is a saved one"),
        "{message}"
    );
}
