//! A key -> its allowed values, in the words of the checks that refuse others.

use espalier_interface::optimizer::OptimizerSpec;
use serde_json::{Value, json};

use crate::{ConfigError, Sources, resolve};

/// What a type says by itself.
const OF_TYPES: [&str; 7] = [
    "a whole number, 0 or more",
    "a whole number",
    "a number",
    "a string",
    "a list",
    "a table",
    "true or false",
];

/// The allowed values of `key`, whose type in Rust is `kind`; empty where its type says all.
pub(super) fn values(key: &str, kind: &str) -> String {
    let mut told: Vec<String> = Vec::new();
    for value in doubtful(kind) {
        // A key of one optimizer is checked where that optimizer is chosen.
        for optimizer in OptimizerSpec::shipped() {
            let Some(expected) = refusal(key, &value, &optimizer.name) else {
                continue;
            };
            if !told.contains(&expected) {
                told.push(expected);
            }
            break;
        }
    }
    told.join("; ")
}

/// Values that some keys of the type do not take.
fn doubtful(kind: &str) -> Vec<Value> {
    let inner = kind.strip_prefix("Option<").unwrap_or(kind);
    match inner.trim_end_matches('>') {
        "u64" | "usize" => vec![json!(0), json!(i64::MAX), json!(u64::MAX)],
        "f64" => vec![json!(-1.0), json!(0.0), json!(1e12)],
        "[f64; 2]" => vec![json!([-1.0, -1.0])],
        "bool" | "PathBuf" | "Section" => Vec::new(),
        kind if kind.starts_with("Vec<") || kind.starts_with("BTreeMap<") => Vec::new(),
        _ => vec![json!("?")],
    }
}

/// What the checks expect in place of `value`; none where they take it, or where they refuse other
/// keys for it.
fn refusal(key: &str, value: &Value, optimizer: &str) -> Option<String> {
    let mut sources = Sources::default().flag("--optimizer", "optim.name", optimizer);
    let mut refused = key.to_owned();
    match key.rsplit_once('.') {
        Some(("optim.groups", name)) => {
            let group = json!([{"pattern": "*", (name): value}]);
            sources = sources.flag("--value", "optim.groups", group);
            refused = format!("optim.groups.0.{name}");
        }
        Some(("sites" | "arms", _)) => return None,
        _ => sources = sources.flag("--value", key, value.clone()),
    }
    let faults = match resolve(&sources).err()? {
        ConfigError::Several(faults) => faults,
        fault => vec![fault],
    };
    let mut expected = faults.into_iter().filter_map(|fault| match fault {
        ConfigError::Value { key, expected, .. } => (key == refused).then_some(expected),
        _ => None,
    });
    let expected = expected.next()?;
    let expected = expected.split(" (nearest").next().unwrap_or_default();
    let expected = expected.strip_prefix("one of ").unwrap_or(expected);
    let says_more = !OF_TYPES.contains(&expected);
    says_more.then(|| expected.to_owned())
}
