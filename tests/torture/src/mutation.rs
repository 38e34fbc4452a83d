//! Bytes of a file -> other bytes that a program may read: flipped, cut, spliced, with extreme
//! lengths and values.

use serde_json::{Value as Json, json};

use crate::random::Random;

/// A mutant of `bytes`; half of the mutants of JSON are valid JSON.
pub fn mutant(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0
        && let Ok(value) = serde_json::from_slice::<Json>(bytes)
    {
        return changed(value, random).to_string().into_bytes();
    }
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(3) {
        change(&mut bytes, random);
    }
    bytes
}

/// Changes bytes in one place.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    const TEXTS: [&[u8]; 12] = [
        b"{",
        b"}",
        b"[[[[[[[[",
        b"\"",
        b"\\u0000",
        b"\0",
        b"-1",
        b"1e999",
        b"99999999999999999999",
        b"\xff\xfe",
        b"{{",
        b"%}",
    ];
    const WORDS: [u64; 6] = [0, 1, u64::MAX, 1 << 63, 1 << 40, u32::MAX as u64];
    if bytes.is_empty() {
        bytes.extend_from_slice(TEXTS[random.below(TEXTS.len())]);
        return;
    }
    let at = place(bytes.len(), random);
    let length = 1 + random.below((bytes.len() - at).min(64));
    match random.below(9) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = random.bits() as u8,
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..at + length)),
        5 => {
            let block = bytes[at..at + length].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, block);
        }
        6 => {
            let text = *random.of_all(&TEXTS);
            bytes.splice(at..at, text.iter().copied());
        }
        7 => {
            let word = random.of_all(&WORDS).to_le_bytes();
            let end = (at + *random.of_all(&[2, 4, 8])).min(bytes.len());
            bytes[at..end].copy_from_slice(&word[..end - at]);
        }
        _ => bytes[at..at + length].fill(*random.of_all(&[0, 0xff, b'9', b'['])),
    }
}

/// A place: in headers and footers as often as anywhere else.
fn place(length: usize, random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(length.min(16)),
        1 => random.below(length.min(4096)),
        2 => length - 1 - random.below(length.min(512)),
        _ => random.below(length),
    }
}

/// A value with one place in it changed.
fn changed(mut value: Json, random: &mut Random) -> Json {
    let places = count(&value);
    let mut left = random.below(places);
    replace(&mut value, &mut left, random);
    value
}

fn count(value: &Json) -> usize {
    1 + match value {
        Json::Array(values) => values.iter().map(count).sum(),
        Json::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value `left` positions further, in text order.
fn replace(value: &mut Json, left: &mut usize, random: &mut Random) -> bool {
    if *left == 0 {
        *value = other(value, random);
        return true;
    }
    *left -= 1;
    match value {
        Json::Array(values) => values.iter_mut().any(|value| replace(value, left, random)),
        Json::Object(members) => members
            .values_mut()
            .any(|value| replace(value, left, random)),
        _ => false,
    }
}

/// The replacement of `value`.
fn other(value: &Json, random: &mut Random) -> Json {
    let deep = || (0..100).fold(json!(1), |inner, _| json!([inner]));
    match (random.below(14), value) {
        (0, _) => Json::Null,
        (1, _) => json!(0),
        (2, _) => json!(-1),
        (3, _) => json!(u64::MAX),
        (4, _) => json!(i64::MIN),
        (5, _) => json!(1e308),
        (6, _) => json!(1e-300),
        (7, _) => json!(""),
        (8, _) => json!("../../\u{0}x"),
        (9, _) => json!([]),
        (10, _) => json!({}),
        (11, _) => deep(),
        (12, Json::Number(number)) => json!(number.as_f64().unwrap_or(0.0) * 1024.0),
        (12, Json::String(text)) => json!(text.repeat(1000)),
        (_, Json::Array(values)) => {
            let mut values = values.clone();
            if let Some(value) = values.first().cloned() {
                values.push(value);
            }
            values.reverse();
            Json::Array(values)
        }
        (_, Json::Object(members)) => {
            let mut members = members.clone();
            if let Some(name) = members
                .keys()
                .nth(random.below(members.len().max(1)))
                .cloned()
            {
                members.remove(&name);
            }
            Json::Object(members)
        }
        _ => json!(random.bits() as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_many_and_the_same_again() {
        let text = br#"{"a": [1, 2, {"b": "c"}], "d": 1.5}"#;
        let of = |number| mutant(text, &mut Random::of(1, "mutants", number));
        let all: std::collections::BTreeSet<Vec<u8>> = (0..500).map(of).collect();
        assert!(all.len() > 300, "{}", all.len());
        assert_eq!(of(7), of(7));
        let json = all
            .iter()
            .filter(|bytes| serde_json::from_slice::<Json>(bytes).is_ok());
        assert!(json.count() > 80);
        for number in 0..200 {
            mutant(b"", &mut Random::of(1, "empty", number));
            mutant(b"x", &mut Random::of(1, "one", number));
        }
    }
}
