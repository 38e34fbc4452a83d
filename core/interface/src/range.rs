//! An option's declared range as text -> a check of numbers and words.
//!
//! `32..=4096`, `1..` and `0..1` bound a number. `a | b` lists the allowed values. `power of two`
//! allows powers of two only. A comma or `in` joins conditions (`32..=4096, power of two`). Any
//! other text is for people only.

use serde_json::Value as Json;

/// One condition on a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Clause {
    /// `low..high` or `low..=high`.
    Bounds {
        /// The smallest number allowed; `-inf` for no bound.
        low: f64,
        /// The upper end.
        high: High,
    },
    /// `a | b`.
    OneOf(Vec<String>),
    /// `power of two`.
    PowerOfTwo,
}

/// The upper end of a range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum High {
    /// No bound.
    Open,
    /// Numbers below this one.
    Below(f64),
    /// Numbers up to this one.
    UpTo(f64),
}

/// Whether `value`, a number or a text, is within the range that `text` declares.
pub fn allows(text: &str, value: &Json) -> bool {
    clauses(text).iter().all(|clause| clause.allows(value))
}

/// The clauses of a declared range.
pub fn clauses(text: &str) -> Vec<Clause> {
    let joined = text.replace(" in ", ",");
    let parts = joined.split(',');
    parts.filter_map(|part| clause(part.trim())).collect()
}

fn clause(part: &str) -> Option<Clause> {
    if part.trim_start_matches("a ") == "power of two" {
        return Some(Clause::PowerOfTwo);
    }
    if part.contains('|') {
        let words = part
            .split('|')
            .map(|word| word.trim().trim_matches('"').to_owned());
        return Some(Clause::OneOf(words.collect()));
    }
    let number = |text: &str| text.trim().replace('_', "").parse::<f64>().ok();
    let (low, high) = part.split_once("..")?;
    let low = match low.trim() {
        "" => f64::NEG_INFINITY,
        bound => number(bound)?,
    };
    let high = match (high.trim(), high.trim().strip_prefix('=')) {
        ("", _) => High::Open,
        (_, Some(bound)) => High::UpTo(number(bound)?),
        (bound, None) => High::Below(number(bound)?),
    };
    Some(Clause::Bounds { low, high })
}

impl Clause {
    fn allows(&self, value: &Json) -> bool {
        match (self, value) {
            (Clause::Bounds { low, high }, Json::Number(_)) => value.as_f64().is_some_and(|x| {
                let fits = match high {
                    High::Open => true,
                    High::Below(bound) => x < *bound,
                    High::UpTo(bound) => x <= *bound,
                };
                x >= *low && fits
            }),
            (Clause::OneOf(words), Json::String(text)) => words.contains(text),
            (Clause::OneOf(words), Json::Number(number)) => words.iter().any(|word| {
                word.parse::<f64>()
                    .is_ok_and(|x| number.as_f64() == Some(x))
            }),
            (Clause::PowerOfTwo, Json::Number(number)) => {
                number.as_u64().is_some_and(u64::is_power_of_two)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_rusts() {
        for (text, inside, outside) in [
            (
                "32..=4096",
                [json!(32), json!(4096)],
                [json!(31), json!(4097)],
            ),
            ("1..", [json!(1), json!(1e300)], [json!(0), json!(-1)]),
            ("0..1", [json!(0), json!(0.999)], [json!(1), json!(-0.1)]),
            ("..=0.5", [json!(-7), json!(0.5)], [json!(0.6), json!(1)]),
            ("4 | 8", [json!(4), json!(8)], [json!(5), json!(48)]),
            (
                "a | b",
                [json!("a"), json!("b")],
                [json!("c"), json!("a | b")],
            ),
            (
                "32..=64, power of two",
                [json!(32), json!(64)],
                [json!(48), json!(128)],
            ),
            (
                "a power of two in 32..=64",
                [json!(32), json!(64)],
                [json!(48), json!(16)],
            ),
        ] {
            for value in inside {
                assert!(allows(text, &value), "{value} is in {text}");
            }
            for value in outside {
                assert!(!allows(text, &value), "{value} is not in {text}");
            }
        }
    }

    #[test]
    fn words_for_people_check_nothing() {
        assert!(allows("", &json!(-3)));
        assert!(allows("a path", &json!("anything")));
    }
}
