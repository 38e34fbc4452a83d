//! The source of a struct -> its fields with their doc comments.

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// As a config writes it.
    pub name: String,
    /// The type, as Rust writes it.
    pub kind: String,
    /// The doc comment as one line.
    pub doc: String,
    /// Whether its own fields stand in its place.
    pub is_flattened: bool,
}

/// The fields of `pub struct of` in `text`, a formatted source; none where it is not there.
pub(super) fn fields(text: &str, of: &str) -> Option<Vec<Field>> {
    let begin = format!("pub struct {of} {{");
    let mut lines = text.lines().skip_while(|line| *line != begin);
    lines.next()?;
    let mut fields = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut rename = None;
    let mut is_flattened = false;
    for line in lines.take_while(|line| *line != "}") {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some(attribute) = line.strip_prefix("#[serde(") {
            let name = attribute.strip_prefix("rename = \"");
            rename = rename.or(name.and_then(|rest| rest.split('"').next()));
            is_flattened |= attribute.starts_with("flatten");
        } else if let Some((name, kind)) = field(line) {
            fields.push(Field {
                name: rename.take().unwrap_or(name).to_owned(),
                kind: kind.to_owned(),
                doc: doc.join(" "),
                is_flattened,
            });
            doc.clear();
            is_flattened = false;
        }
    }
    Some(fields)
}

/// `pub name: Type,`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, kind) = line.strip_prefix("pub ")?.split_once(": ")?;
    Some((name, kind.strip_suffix(',')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_names_types_and_comments() {
        let text = "/// Other.\npub struct Other {\n    pub a: u8,\n}\n\n/// Of it.\n\
                    #[derive(Debug)]\npub struct Options {\n    /// The first,\n    /// in two \
                    lines.\n    #[serde(rename = \"match\")]\n    pub pattern: String,\n    /// \
                    More.\n    #[serde(flatten)]\n    pub more: Option<Vec<u8>>,\n}\n\nimpl X {}\n";
        let found = fields(text, "Options").expect("it is there");
        let shown = |field: &Field| {
            let Field {
                name, kind, doc, ..
            } = field.clone();
            (name, kind, doc, field.is_flattened)
        };
        let of = |name: &str, kind: &str, doc: &str, flattened| {
            (name.to_owned(), kind.to_owned(), doc.to_owned(), flattened)
        };
        assert_eq!(
            found.iter().map(shown).collect::<Vec<_>>(),
            [
                of("match", "String", "The first, in two lines.", false),
                of("more", "Option<Vec<u8>>", "More.", true)
            ]
        );
        assert_eq!(fields(text, "Option"), None);
    }
}
