//! JSON text that contains its own hash: a change of any byte is detected.
//!
//! The first member is `sha256`, on a separate line: the hash of all bytes after that line.

use espalier_system::files::hash_bytes;
use serde_json::Value as Json;

/// `value`, an object, as indented text with its hash.
pub(super) fn seal(value: &Json) -> String {
    let text = format!("{value:#}\n");
    let body = text
        .strip_prefix("{\n")
        .expect("an object with members begins on a line of its own");
    head(body.as_bytes()) + body
}

/// The object in a sealed text, without the hash; `None` where any byte changed.
pub(super) fn open(text: &[u8]) -> Option<Json> {
    let lines = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let (second, _) = lines.take(2).last()?;
    let (found, body) = text.split_at(second + 1);
    if found != head(body).as_bytes() {
        return None;
    }
    let object = [b"{\n", body].concat();
    serde_json::from_slice(&object).ok()
}

/// The two lines before `body`.
fn head(body: &[u8]) -> String {
    format!("{{\n  \"sha256\": \"{}\",\n", hash_bytes(body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sealed_values_round_trip_and_any_changed_bit_is_detected() {
        let value = json!({"step": 3, "files": ["a", "b"], "text": "\n\u{e9}"});
        let sealed = seal(&value).into_bytes();
        let whole: Json = serde_json::from_slice(&sealed).expect("JSON as a whole too");
        assert_eq!(whole["step"], 3);
        assert_eq!(open(&sealed), Some(value));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut flipped = sealed.clone();
                flipped[at] ^= 1 << bit;
                assert_eq!(open(&flipped), None, "bit {bit} of byte {at}");
            }
        }
        for end in 0..sealed.len() {
            assert_eq!(open(&sealed[..end]), None, "cut at {end}");
        }
        assert_eq!(open(&[sealed.as_slice(), b"\n"].concat()), None);
    }
}
