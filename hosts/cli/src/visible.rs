//! A letter of a row or an answer -> a letter that cannot steer a terminal.

/// Control characters by their pictures.
pub fn visible(letter: char) -> char {
    match letter {
        '\n' => '⏎',
        '\t' => '⇥',
        '\u{7f}' => '␡',
        control @ '\0'..='\x1f' => {
            char::from_u32(0x2400 + control as u32).expect("a picture of a control character")
        }
        '\u{80}'..='\u{9f}' => '\u{FFFD}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_pictures() {
        let shown: String = "a\tb\nc\x1b[2J\u{7f}\u{85}é".chars().map(visible).collect();
        assert_eq!(shown, "a⇥b⏎c␛[2J␡\u{FFFD}é");
    }
}
