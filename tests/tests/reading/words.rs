//! Words of a report -> the numbers and parts in them, or the error.

use serde_json::Value as Json;

/// The error, if any.
pub type Checked = Result<(), String>;

pub fn number(text: &str) -> Result<f64, String> {
    let plain = text.replace('\u{2212}', "-");
    plain.parse().map_err(|_| format!("{text:?} is no number"))
}

pub fn between<'a>(text: &'a str, begin: &str, end: &str) -> Result<&'a str, String> {
    let (_, rest) = text
        .split_once(begin)
        .ok_or_else(|| format!("no {begin:?}"))?;
    let (found, _) = rest.split_once(end).ok_or_else(|| format!("no {end:?}"))?;
    Ok(found)
}

pub fn text(value: &Json) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "no text".to_owned())
}

pub fn ensure(holds: bool, why: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(why.into()) }
}
