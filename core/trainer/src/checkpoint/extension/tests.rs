//! What may change for the next steps of a run, and what is refused.

use espalier_config::{Sources, resolve};

use super::*;
use crate::checkpoint::{CONFIG_VERSION, config_differences};

fn run(total: u64, optim: &Json) -> Json {
    json!({
        "config_version": CONFIG_VERSION,
        "config": {"run": {"epochs": 9, "max_steps": total}, "optim": optim},
        "data": {"total_steps": total, "steps_per_epoch": 3},
    })
}

fn asked(sets: &[&str]) -> Extension {
    let sources = sets
        .iter()
        .fold(Sources::default(), |all, set| all.set(*set));
    Extension::asked(&resolve(&sources).expect("a config"))
}

fn judged(extension: &Extension, old: &Json, new: &Json, step: u64) -> Vec<String> {
    let found = config_differences(old, new, step, extension);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn what_the_command_line_asks_for_holds_from_the_step_on() {
    let (cosine, faster) = (
        json!({"schedule": "cosine", "learning_rate": 2e-4}),
        json!({"schedule": "cosine", "learning_rate": 1e-3}),
    );
    let (old, new) = (run(6, &cosine), run(9, &faster));
    let both = asked(&["run.max_steps=9", "optim.learning_rate=1e-3"]);
    assert_eq!(judged(&both, &old, &new, 6), [""; 0]);
    let refused = judged(&asked(&["run.max_steps=9"]), &old, &new, 6);
    let expected = [
        "optim.learning_rate: 0.0002 -> 0.001 (a run keeps what it began with; to \
                     change it from here on, give `--set optim.learning_rate=0.001`)",
    ];
    assert_eq!(refused, expected);
    let refused = judged(&Extension::default(), &old, &new, 6);
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(
        refused[1].contains("give `--set run.max_steps=9`"),
        "{refused:?}"
    );
    // A process that died right after it began with the changes.
    let recorded = json!([{"from_step": 6, "changed": changed(&old, &new)}]);
    let recorded = recorded.as_array().expect("a list");
    let again = |step| {
        judged(
            &Extension::default().recorded(recorded, step),
            &old,
            &new,
            step,
        )
    };
    assert_eq!(again(6), [""; 0]);
    assert_eq!(again(4).len(), 2, "they held from step 6 on only");
}

#[test]
fn a_run_without_more_steps_is_refused_with_the_key_that_ends_it() {
    let constant = json!({"schedule": "constant"});
    let (short, long) = (run(6, &constant), run(9, &constant));
    let more = asked(&["run.max_steps=9"]);
    let refused = judged(&more, &long, &short, 3);
    assert!(
        refused[0].contains("9 steps cannot become one of 6"),
        "{refused:?}"
    );
    let faster = run(6, &json!({"schedule": "constant", "learning_rate": 1e-3}));
    let refused = judged(&asked(&["optim.learning_rate=1e-3"]), &short, &faster, 6);
    assert!(
        refused[0].contains("come to its end: `--set run.max_steps=N`"),
        "{refused:?}"
    );
    let mut by_epochs = run(6, &constant);
    by_epochs["config"]["run"] = json!({"epochs": 2, "max_steps": 20});
    let refused = judged(&asked(&["run.max_steps=20"]), &short, &by_epochs, 6);
    let words = "run.epochs = 2 ends the run after 6 steps: give `--set run.epochs=7`, too";
    assert!(refused.iter().any(|one| one.contains(words)), "{refused:?}");
}

#[test]
fn a_schedule_that_depends_on_the_end_is_told() {
    let told = |optim: Json| {
        let (old, new) = (run(6, &optim), run(12, &optim));
        consequence(&changed(&old, &new), &old, &new, 6)
    };
    let longer = "from step 7 on: run.max_steps 6 -> 12";
    assert_eq!(told(json!({"schedule": "constant"})), longer);
    let linear = told(json!({"schedule": "linear", "learning_rate": 2e-4}));
    // As transformers' Trainer: half of the new schedule is left.
    let expected = "; the schedule is that of a run of 12 steps with these settings, and step 7 \
                    has the learning rate 1.000e-4; the steps before had others, so";
    assert!(
        linear.starts_with(&format!("{longer}{expected}")),
        "{linear}"
    );
}

#[test]
fn only_the_values_of_the_command_line_make_a_finished_run_longer() {
    let constant = json!({"schedule": "constant"});
    let changes = |sources: Sources| {
        let resolved = resolve(&sources).expect("a config");
        Extension::asked(&resolved).changes(&run(6, &constant), &resolved)
    };
    assert!(changes(Sources::default().set("run.max_steps=9")));
    assert!(!changes(Sources::default().set("run.max_steps=6")));
    assert!(!changes(Sources::default().flag(
        "--steps",
        "run.max_steps",
        9
    )));
    assert!(!changes(Sources::default()));
}
