//! Plugins that change during a run: an accepted swap continues with the same state bit for bit,
//! and a refused one leaves no trace.

mod swapping;

use std::fs;

use espalier_registry::PluginIdentity;
use espalier_trainer::error::Error;
use espalier_trainer::swap::{Outcome, Staging, SwapAnswer, SwapRequest};
use espalier_trainer::train::{self, Stopped};
use serde_json::{Value as Json, json};

use swapping::{Asking, Job, STEPS, ask, plugin_folder};

#[test]
fn a_quantizer_swapped_for_itself_changes_no_bit_for_any_place_of_the_new_weights() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let plain = job.run("plain", &[]);
    let twice = [ask("quantizer=nf4", 3, &[]), ask("quantizer=nf4", 6, &[])];
    for staging in [Staging::Auto, Staging::Mapped] {
        let out = format!("{staging:?}");
        let requests = twice
            .clone()
            .map(|request| SwapRequest { staging, ..request });
        let swapped = job.run(&out, &requests);
        swapped.same_training(&plain, &out);
        let place = match staging {
            Staging::Auto => "memory",
            Staging::Mapped => "mapped file",
        };
        for (answer, step) in swapped.answers.iter().zip([2, 5]) {
            let record = &answer.record;
            assert_eq!((record.outcome, record.step), (Outcome::Taken, step));
            assert_eq!(record.staged_in.as_deref(), Some(place));
            assert!(record.encoded > 0 && record.loss_before == record.loss_after);
        }
        assert_eq!(swapped.run["swaps"].as_array().map(Vec::len), Some(2));
        assert_eq!(Job::swaps(&swapped), 2);
    }
}

#[test]
fn a_base_of_random_numbers_is_drawn_again_for_another_quantizer() {
    let job = Job::new(&["plugins=\"nf4,lora\"", "model.init=\"random\""]);
    let plain = job.run("plain", &[]);
    let same = job.run("same", &[ask("quantizer=nf4", 3, &[])]);
    same.same_training(&plain, "nf4 for itself");
    let other = job.run("other", &[ask("quantizer=int8", 3, &[])]);
    assert_eq!(other.answers[0].record.outcome, Outcome::Taken);
    let (losses, others) = (other.losses(), plain.losses());
    assert_eq!(losses[..2], others[..2]);
    assert!(losses[2..] != others[2..], "{losses:?}");
    for step in [2, 4] {
        let out = format!("from-{step}");
        job.unfinished("other", &out);
        let resumed = job.resume(&out, step).expect("a run");
        resumed.same_training(&other, &out);
    }
}

#[test]
fn a_swap_keeps_the_state_of_each_optimizer() {
    for [name, key] in [
        ["optim.name=\"sgd\"", "optim.momentum=0.9"],
        ["optim.name=\"adamw8bit\"", "optim.min_8bit_size=500"],
    ] {
        let job = Job::new(&["plugins=\"nf4,lora\"", name, key]);
        let plain = job.run("plain", &[]);
        let swapped = job.run("swapped", &[ask("quantizer=nf4", 3, &[])]);
        swapped.same_training(&plain, name);
        assert_eq!(Job::swaps(&swapped), 1);
    }
}

#[test]
fn a_third_party_quantizer_is_swapped_in_and_a_resumed_run_continues_after_it() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let folder = plugin_folder(&job, "linear4");
    let theirs = SwapRequest {
        plugin_dirs: vec![folder.clone()],
        ..ask("quantizer=linear4", 4, &[])
    };
    let requests = [
        theirs,
        ask("quantizer=nf4", 7, &["quantizer.nf4.block_size=32"]),
    ];
    let swapped = job.run("swapped", &requests);
    let plain = job.run("plain", &[]);
    let (losses, others) = (swapped.losses(), plain.losses());
    assert_eq!(losses[..3], others[..3]);
    assert!(losses.iter().all(|loss| loss.is_finite()) && losses[3..] != others[3..]);
    assert!(losses[7] < losses[3] && losses[3] < losses[0], "{losses:?}");
    let [there, back] = &swapped.answers[..] else {
        panic!("two answers")
    };
    let sha256 = |answer: &SwapAnswer| answer.record.to.as_ref().and_then(|to| to.sha256.clone());
    assert!(sha256(there).is_some_and(|hash| hash.len() == 64));
    assert_eq!(back.record.from, there.record.to);
    assert_eq!(back.record.changed, ["quantizer.nf4.block_size=32"]);

    for step in [2, 4, 6, 8] {
        let out = format!("from-{step}");
        job.unfinished("swapped", &out);
        let resumed = job.resume(&out, step).expect("a run");
        resumed.same_training(&swapped, &out);
        assert_eq!(Job::swaps(&resumed), 2, "{out}");
    }
    fs::remove_dir_all(&folder).expect("ours");
    for step in [2, 4] {
        let out = format!("gone-{step}");
        job.unfinished("swapped", &out);
        let error = job.resume(&out, step).err().expect("no such plugin");
        assert!(error.to_string().contains("linear4"), "{error}");
        assert_eq!(error.exit_code(), 5);
    }
    // After the last swap it is no longer needed.
    job.unfinished("swapped", "behind");
    let behind = job.resume("behind", 8).expect("a run");
    behind.same_training(&swapped, "behind");
}

#[test]
fn an_invalid_swap_is_refused_and_leaves_no_trace() {
    let job = Job::new(&["plugins=\"nf4,lora\"", "adapter.lora.rank=4"]);
    let plain = job.run("plain", &[]);
    let cases = [
        (ask("quantizer=nf5", 2, &[]), 5, "unknown quantizer `nf5`"),
        (
            ask("quantizer=lora", 2, &[]),
            5,
            "is a component of role adapter",
        ),
        (
            ask("adapter=lora", 2, &["adapter.lora.rank=8"]),
            2,
            "an adapter of another shape",
        ),
        (
            ask("adapter=lora", 2, &["adapter.lora.targets=[\"q_proj\"]"]),
            2,
            "another shape",
        ),
        (
            ask("adapter=lora", 2, &["adapter.lora.alfa=8"]),
            2,
            "unknown option `alfa`",
        ),
        (
            ask("quantizer=nf4", 2, &["quantizer.nf4.block_size=7"]),
            2,
            "block_size",
        ),
        (ask("backend=metal", 2, &[]), 5, "unknown backend `metal`"),
        (ask("sharding=zero", 2, &[]), 5, "unknown sharding `zero`"),
        (ask("quantizer=nf4", STEPS + 1, &[]), 2, "the run ended"),
    ];
    let refused = job.refuses(&plain, cases.to_vec());
    assert_eq!(refused.run["swaps"], json!([]));

    let whole = Job::new(&["optim.clip_norm=1.0"]);
    let asked = [ask("quantizer=nf4", 2, &[]), ask("adapter=lora", 2, &[])];
    let asking = whole.asking("whole", &asked);
    train::run(&whole.config("whole"), &asking, &asking.stop).expect("a run");
    for number in [1, 2] {
        let answer = asking
            .mailbox
            .answer(number)
            .expect("whole")
            .expect("an answer");
        let reason = answer.record.reason.unwrap_or_default();
        assert!(
            reason.contains("trains the model itself") && answer.exit_code == 2,
            "{reason}"
        );
    }

    let part = Job::new(&["plugins=\"nf4\"", "model.train_only=\"model.layers.1.*\""]);
    let asked = [ask("quantizer=hqq", 2, &[]), ask("quantizer=none", 2, &[])];
    let asking = part.asking("part", &asked);
    train::run(&part.config("part"), &asking, &asking.stop).expect("a run");
    for number in [1, 2] {
        let answer = asking.mailbox.answer(number).expect("a part");
        let answer = answer.expect("an answer");
        let reason = answer.record.reason.unwrap_or_default();
        assert!(
            reason.contains("its quantizer stays") && answer.exit_code == 2,
            "{reason}"
        );
    }
}

#[test]
fn adapter_options_the_strategy_and_no_quantizer_can_be_swapped_in() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let plain = job.run("plain", &[]);
    let same = [ask("sharding=single", 3, &[]), ask("adapter=lora", 4, &[])];
    let same = job.run("same", &same);
    same.same_training(&plain, "the same again");
    for answer in &same.answers {
        assert_eq!(answer.record.outcome, Outcome::Taken);
        assert_eq!((answer.record.encoded, answer.record.bytes_beside), (0, 0));
    }
    let others = [
        ask("adapter=lora", 3, &["adapter.lora.alpha=64"]),
        ask("adapter=lora", 5, &["adapter.lora.dropout=0.0"]),
        ask("quantizer=none", 5, &[]),
    ];
    let others = job.run("others", &others);
    assert_eq!(others.losses()[..2], plain.losses()[..2]);
    assert!(others.losses()[2..] != plain.losses()[2..]);
    assert!(
        others
            .answers
            .iter()
            .all(|one| one.record.outcome == Outcome::Taken)
    );
    let saved: Json = serde_json::from_slice(&others.state[0]).expect("JSON");
    assert_eq!(
        (&saved["lora_alpha"], &saved["lora_dropout"]),
        (&json!(64), &json!(0.0))
    );
    assert_eq!(others.answers[2].record.to, None);
    for step in [2, 4, 6] {
        let out = format!("from-{step}");
        job.unfinished("others", &out);
        let resumed = job.resume(&out, step).expect("a run");
        resumed.same_training(&others, &out);
    }
}

#[test]
fn a_rebuilt_plugin_can_be_swapped_in_under_its_name() {
    let mut job = Job::new(&["plugins=\"linear4,lora\""]);
    let folder = plugin_folder(&job, "linear4");
    job.keys.push(format!("run.plugin_dirs=[{folder:?}]"));
    let plain = job.run("plain", &[]);
    let library = fs::read_dir(&folder).expect("a folder").next();
    let library = library.expect("a library").expect("an entry").path();
    let first = fs::read(&library).expect("a library");
    // Bytes after the last section change the file and nothing else.
    let rebuilt = [first.as_slice(), b"rebuilt"].concat();
    let mut asking = job.asking("rebuilt", &[ask("quantizer=linear4", 5, &[])]);
    asking.replaced = Some((3, library.clone(), rebuilt));
    train::run(&job.config("rebuilt"), &asking, &asking.stop).expect("a run");
    let swapped = job.outcomes("rebuilt", 1);
    let record = &swapped.answers[0].record;
    let sha256 = |identity: &Option<PluginIdentity>| identity.as_ref()?.sha256.clone();
    assert_eq!(record.outcome, Outcome::Taken, "{record:?}");
    assert!(sha256(&record.from) != sha256(&record.to), "{record:?}");
    swapped.same_training(&plain, "rebuilt");

    job.unfinished("rebuilt", "again");
    let again = job.resume("again", 6).expect("the rebuilt one");
    again.same_training(&plain, "again");
    fs::write(&library, &first).expect("written");
    job.unfinished("rebuilt", "older");
    let error = job.resume("older", 6).err().expect("another file");
    assert!(error.to_string().contains("linear4.sha256"), "{error}");
}

#[test]
fn a_stop_has_priority_over_a_swap() {
    let job = Job::new(&["plugins=\"nf4,lora\""]);
    let asking = Asking {
        stop_after: Some(1),
        ..job.asking("stopped", &[ask("quantizer=fp4", 2, &[])])
    };
    let stopped = train::run(&job.config("stopped"), &asking, &asking.stop);
    assert!(
        matches!(stopped, Err(Error::Stopped(Stopped { step: 1, .. }))),
        "{stopped:?}"
    );
    let answer = asking.mailbox.answer(1).expect("whole").expect("an answer");
    let reason = answer.record.reason.unwrap_or_default();
    assert!(reason.contains("the run ended after step 1"), "{reason}");
    let resumed = job.resume("stopped", 1).expect("a run");
    assert_eq!(resumed.run["swaps"], json!([]));
    resumed.same_training(&job.run("plain", &[]), "after a stop");
}
