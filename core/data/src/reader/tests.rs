//! Rows of JSONL and of JSON arrays, with the place of each fault.

use super::*;
use std::io::Cursor;

fn rows(text: &[u8], allowed: Allowed) -> Result<Vec<(u64, String)>, String> {
    let path = Path::new("f");
    let input = Box::new(Cursor::new(text.to_vec()));
    let mut reader = Reader::new(path, input, allowed).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().map_err(|e| e.to_string())? {
        rows.push((
            row.line,
            String::from_utf8(row.bytes.expect("short rows")).unwrap(),
        ));
    }
    assert_eq!(reader.bytes_read(), text.len() as u64);
    assert_eq!(reader.sha256().unwrap(), hex(&Sha256::digest(text)));
    Ok(rows)
}

fn row(line: u64, text: &str) -> (u64, String) {
    (line, text.into())
}

#[test]
fn lines_are_numbered_and_blank_ones_passed() {
    let text = b"\xEF\xBB\xBF{1}\r\n\r\n  \n{2}\n\n{3}";
    let expected = vec![row(1, "{1}"), row(4, "{2}"), row(6, "{3}")];
    assert_eq!(rows(text, Allowed::Lines).unwrap(), expected);
    assert_eq!(rows(text, Allowed::LinesOrArray).unwrap(), expected);
    assert_eq!(rows(b"", Allowed::Lines).unwrap(), []);
    assert_eq!(rows(b" \n\n", Allowed::LinesOrArray).unwrap(), []);
}

#[test]
fn an_array_is_cut_at_its_own_commas_only() {
    let text = br#" [ {"a": "],[{\"", "b": [1, {}]},
            2
            ,"x,\\" ]
        "#;
    let expected = vec![
        row(1, r#"{"a": "],[{\"", "b": [1, {}]}"#),
        row(2, "2\n            "),
        row(3, r#""x,\\" "#),
    ];
    assert_eq!(rows(text, Allowed::LinesOrArray).unwrap(), expected);
    assert_eq!(rows(b"[]", Allowed::LinesOrArray).unwrap(), []);
    assert_eq!(rows(b"\n[ ]\n", Allowed::LinesOrArray).unwrap(), []);
}

#[test]
fn rows_of_an_array_are_counted() {
    let text = b"[{}, {}, \n{}]";
    for (allowed, expected) in [
        (
            Allowed::LinesOrArray,
            [1, 2, 3].map(RowNumber::Row).to_vec(),
        ),
        (Allowed::Lines, [1, 2].map(RowNumber::Line).to_vec()),
    ] {
        let input = Box::new(Cursor::new(text.to_vec()));
        let mut reader = Reader::new(Path::new("f"), input, allowed).unwrap();
        let rows = std::iter::from_fn(|| reader.next_row().unwrap());
        assert_eq!(rows.map(|row| row.number).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn faults_between_rows_name_line_and_column() {
    for (text, expected) in [
        (
            "[1] x",
            "f:1: invalid JSON at column 5: expected the file's end, found `x`",
        ),
        (
            "[1,\n]",
            "f:2: invalid JSON at column 1: expected a row, found `]`",
        ),
        (
            "[,1]",
            "f:1: invalid JSON at column 2: expected a row, found `,`",
        ),
        (
            "[{}}]",
            "f:1: invalid JSON at column 4: expected `,` or `]`, found `}`",
        ),
        ("[\n{\"a\": 1", "f:2: the file ends inside this row"),
        ("[\n\n{\"a", "f:3: the file ends inside this row"),
        ("[1,\n", "f:2: the file ends inside this row"),
        ("[", "f:1: the file ends inside this row"),
    ] {
        let message = rows(text.as_bytes(), Allowed::LinesOrArray).unwrap_err();
        assert!(message.starts_with(expected), "{text}: {message}");
    }
}
