//! Headers of safetensors files: the order of tensors, and every fault.

use super::*;

/// The outcome for a header text, followed by `data_bytes` bytes of data.
fn outcome(text: &str, data_bytes: u64) -> Result<Vec<String>, String> {
    let path = Path::new("m");
    let raw = parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let start = LENGTH_BYTES + text.len() as u64;
    let header = check(path, raw, start, start + data_bytes).map_err(|e| e.to_string())?;
    Ok(header
        .tensors
        .into_iter()
        .map(|tensor| tensor.name)
        .collect())
}

fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
fn tensors_are_in_file_order_for_any_order_of_the_header() {
    let (a, b) = (
        entry("a", "F32", "[2,2]", "[2,18]"),
        entry("b", "U8", "[2]", "[0,2]"),
    );
    let text = format!(r#"{{"__metadata__":{{"format":"pt"}},{a},{b}}}   "#);
    assert_eq!(outcome(&text, 18).unwrap(), ["b", "a"]);
    assert_eq!(outcome("{}", 0).unwrap(), [""; 0]);
}

#[test]
fn every_invalid_entry_is_reported() {
    let one = |tensor: String| format!("{{{tensor}}}");
    let two = |a: String, b: String| format!("{{{a},{b}}}");
    let good = || entry("a", "F32", "[2]", "[0,8]");
    let huge = "[4294967296,4294967296]";
    let cases = [
        (
            one(good()),
            7,
            "describes 8 bytes of data, the file holds 7",
        ),
        (
            one(good()),
            9,
            "describes 8 bytes of data, the file holds 9",
        ),
        (
            one(entry("a", "F32", "[3]", "[0,8]")),
            8,
            "needs 12 bytes, its byte range has 8",
        ),
        (
            one(entry("a", "F32", "[2]", "[4,12]")),
            12,
            "expected one that starts at 0",
        ),
        (one(entry("a", "F32", "[2]", "[0,-8]")), 8, "invalid value"),
        (
            one(entry("a", "F32", huge, "[0,8]")),
            8,
            "has too many bytes",
        ),
        (
            one(entry("a", "F4", "[3]", "[0,1]")),
            1,
            "has too many bytes",
        ),
        (
            one(entry("a", "F33", "[2]", "[0,8]")),
            8,
            "entry \"a\": unknown variant `F33`",
        ),
        (
            one(entry("a\\u001b", "F32", "[2]", "[0,8]")),
            8,
            "control characters",
        ),
        (two(good(), good()), 8, "\"a\" occurs twice"),
        (
            two(good(), entry("b", "F32", "[2]", "[4,12]")),
            12,
            "byte range 4..12",
        ),
        (
            two(good(), entry("b", "F32", "[2]", "[12,20]")),
            20,
            "expected one that starts at 8",
        ),
    ];
    for (text, data_bytes, expected) in cases {
        let message = outcome(&text, data_bytes).unwrap_err();
        assert!(message.contains(expected), "{text}\n{message}");
    }
    // A range that ends before it starts sorts first, and is named as such.
    let backwards = one(entry("a", "F32", "[2]", "[0,8]").replace("[0,8]", "[8,0]"));
    assert!(
        outcome(&backwards, 8)
            .unwrap_err()
            .contains("byte range 8..0")
    );
}
