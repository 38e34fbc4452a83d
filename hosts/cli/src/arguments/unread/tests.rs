//! Config keys that a command does not read.

use espalier_config::{Sources, resolve};

use super::*;

const GENERATE: Unread<'static> = Unread {
    command: "generate",
    keys: &[ROWS, COMPARISON],
    but: &["data.chat_template"],
};

#[test]
fn sections_and_single_keys_are_refused_and_exceptions_pass() {
    let refused = |assignment: &str| GENERATE.refuse(&[assignment.to_owned()]).err();
    for assignment in [
        "data.shuffle=false",
        "data={shuffle=false}",
        "arms=[]",
        "run.eval_answers = 3",
    ] {
        let error = refused(assignment).expect(assignment);
        assert_eq!(error.exit_code(), 2, "{assignment}");
        assert!(error.to_string().contains("`host generate`"), "{error}");
    }
    for assignment in ["data.chat_template=chatml", "run.seed=1", "no assignment"] {
        assert!(refused(assignment).is_none(), "{assignment}");
    }
}

#[test]
fn every_key_is_one_of_the_config() {
    let known = resolve(&Sources::default())
        .expect("the defaults")
        .to_toml();
    let all = [
        COMPARISON, TRAINING, ROWS, RANKS, OUTPUT, NUMBERS, ADAPTERS, MODELS, SECTIONS,
    ];
    for key in all.concat() {
        let name = key.rsplit('.').next().expect("a name");
        let section = key.strip_suffix('.');
        let is_known = match section {
            // Sections of plugins are empty by default and not shown.
            Some(section) => known.contains(&format!("[{section}]")) || SECTIONS.contains(&key),
            None => {
                known.contains(&format!("\n{name} =")) || known.contains(&format!("# {name} is"))
            }
        };
        assert!(
            is_known || ["arms", "sites", "plugins"].contains(&key),
            "{key}"
        );
    }
}
