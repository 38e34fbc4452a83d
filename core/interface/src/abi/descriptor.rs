//! A declaration -> the bytes of the section `.espalier`, made when the plugin is compiled and read
//! without running it.
//!
//! Layout: the 8 bytes `ESPALIER`, the length of the text as u32 little endian, the text: a JSON
//! object `{abi, name, version, components: [{name, role, doc, options: [{name, type, default,
//! range, doc}], capabilities}]}`.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::root::{ABI_MAJOR, ABI_MINOR};
use crate::OptionSpec;
use crate::declaration::Declaration;

/// First bytes of the section.
pub const MAGIC: &[u8; 8] = b"ESPALIER";

/// Name of the section.
pub const SECTION: &str = ".espalier";

const HEADER: usize = 12;

/// The descriptor as the host reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Descriptor {
    /// ABI major and minor version that the plugin was built with.
    pub abi: [u32; 2],
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its components.
    pub components: Vec<ComponentDescriptor>,
}

/// A component in a [`Descriptor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentDescriptor {
    /// Name.
    pub name: String,
    /// Role, by name.
    pub role: String,
    /// One line of documentation.
    pub doc: String,
    /// Options.
    pub options: Vec<OptionDescriptor>,
    /// Capabilities.
    pub capabilities: std::collections::BTreeMap<String, String>,
}

/// An option in a [`Descriptor`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptionDescriptor {
    /// Name.
    pub name: String,
    /// Type, by name.
    #[serde(rename = "type")]
    pub kind: String,
    /// Default; null leaves it unset.
    pub default: Json,
    /// Allowed values.
    pub range: String,
    /// One line of documentation.
    pub doc: String,
}

/// Reads the descriptor at the start of a section's bytes.
///
/// # Errors
/// A message that says why the bytes are no descriptor.
pub fn read(section: &[u8]) -> Result<Descriptor, String> {
    if section.len() < HEADER || section[..8] != MAGIC[..] {
        return Err(format!(
            "section `{SECTION}` does not begin with `ESPALIER`"
        ));
    }
    let length = u32::from_le_bytes(section[8..HEADER].try_into().expect("four bytes")) as usize;
    let text = section[HEADER..].get(..length).ok_or_else(|| {
        format!(
            "descriptor of {length} bytes in a section of {}",
            section.len()
        )
    })?;
    serde_json::from_slice(text).map_err(|error| format!("descriptor cannot be read: {error}"))
}

/// Length of [`bytes`].
pub const fn length(declaration: &Declaration) -> usize {
    HEADER + text(declaration, &mut [], 0)
}

/// The section's bytes; `N` is [`length`].
pub const fn bytes<const N: usize>(declaration: &Declaration) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < 8 {
        out[at] = MAGIC[at];
        at += 1;
    }
    let length = ((N - HEADER) as u32).to_le_bytes();
    while at < HEADER {
        out[at] = length[at - 8];
        at += 1;
    }
    text(declaration, &mut out, HEADER);
    out
}

/// Writes the text into `out` from `at` on, as far as there is room, and returns its end. Without
/// room it only counts.
const fn text(declaration: &Declaration, out: &mut [u8], mut at: usize) -> usize {
    at = raw(out, at, "{\"abi\":[");
    at = number(out, at, ABI_MAJOR);
    at = raw(out, at, ",");
    at = number(out, at, ABI_MINOR);
    at = raw(out, at, "],\"name\":");
    at = quoted(out, at, declaration.name);
    at = raw(out, at, ",\"version\":");
    at = quoted(out, at, declaration.version);
    at = raw(out, at, ",\"components\":[");
    let mut i = 0;
    while i < declaration.components.len() {
        let component = &declaration.components[i];
        at = raw(out, at, if i == 0 { "{\"name\":" } else { ",{\"name\":" });
        at = quoted(out, at, component.name);
        at = raw(out, at, ",\"role\":");
        at = quoted(out, at, component.role.0);
        at = raw(out, at, ",\"doc\":");
        at = quoted(out, at, component.doc);
        at = raw(out, at, ",\"options\":[");
        let mut j = 0;
        while j < component.options.len() {
            let option = &component.options[j];
            at = raw(out, at, if j == 0 { "{\"name\":" } else { ",{\"name\":" });
            at = quoted(out, at, option.name);
            at = raw(out, at, ",\"type\":");
            at = quoted(out, at, option.kind.0);
            at = raw(out, at, ",\"default\":");
            check_default(option);
            at = raw(out, at, option.default);
            at = raw(out, at, ",\"range\":");
            at = quoted(out, at, option.range);
            at = raw(out, at, ",\"doc\":");
            at = quoted(out, at, option.doc);
            at = raw(out, at, "}");
            j += 1;
        }
        at = raw(out, at, "],\"capabilities\":{");
        let mut j = 0;
        while j < component.capabilities.len() {
            if j > 0 {
                at = raw(out, at, ",");
            }
            at = quoted(out, at, component.capabilities[j].0);
            at = raw(out, at, ":");
            at = quoted(out, at, component.capabilities[j].1);
            j += 1;
        }
        at = raw(out, at, "}}");
        i += 1;
    }
    raw(out, at, "]}")
}

/// Refuses a default that begins as no JSON of its option's type does. The compiler reports it, not
/// the host that cannot read the library.
const fn check_default(option: &OptionSpec) {
    let (kind, default) = (option.kind.0.as_bytes(), option.default.as_bytes());
    let first = if default.is_empty() { 0 } else { default[0] };
    if is(default, b"null") {
        return;
    }
    if is(kind, b"text") || is(kind, b"texts") {
        let is_list = is(kind, b"texts") && first == b'[';
        let is_quoted = default.len() > 1 && first == b'"' && default[default.len() - 1] == b'"';
        assert!(
            is_list || is_quoted,
            "the default of a text option is JSON, with quotes of its own: default: \"\\\"nearest\\\"\""
        );
    } else if is(kind, b"bool") {
        let is_bool = is(default, b"true") || is(default, b"false");
        assert!(
            is_bool,
            "the default of a bool option is \"true\" or \"false\""
        );
    } else if is(kind, b"integer") || is(kind, b"number") {
        let is_number = first == b'-' || first.is_ascii_digit();
        assert!(is_number, "the default of a number is JSON, such as \"64\"");
    } else if is(kind, b"integer_table") || is(kind, b"number_table") {
        assert!(
            first == b'{',
            "the default of a table is JSON, such as an opening and a closing brace"
        );
    }
}

/// Whether two texts are equal.
const fn is(one: &[u8], other: &[u8]) -> bool {
    let mut i = 0;
    while i < one.len() && i < other.len() && one[i] == other[i] {
        i += 1;
    }
    i == one.len() && i == other.len()
}

const fn byte(out: &mut [u8], at: usize, byte: u8) -> usize {
    if at < out.len() {
        out[at] = byte;
    }
    at + 1
}

const fn raw(out: &mut [u8], mut at: usize, text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        at = byte(out, at, bytes[i]);
        i += 1;
    }
    at
}

const fn quoted(out: &mut [u8], mut at: usize, text: &str) -> usize {
    at = byte(out, at, b'"');
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        assert!(
            bytes[i] >= b' ',
            "a description is one line without control characters"
        );
        if bytes[i] == b'"' || bytes[i] == b'\\' {
            at = byte(out, at, b'\\');
        }
        at = byte(out, at, bytes[i]);
        i += 1;
    }
    byte(out, at, b'"')
}

const fn number(out: &mut [u8], at: usize, number: u32) -> usize {
    let at = if number >= 10 {
        self::number(out, at, number / 10)
    } else {
        at
    };
    byte(out, at, b'0' + (number % 10) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Component, OptionKind, OptionSpec, PluginError, Role};

    const COMPONENT: Component = Component {
        name: "sample",
        role: Role::QUANTIZER,
        doc: "says \"hello\"",
        options: &[OptionSpec {
            name: "bits",
            kind: OptionKind::INTEGER,
            default: "4",
            range: "1..=8",
            doc: "bits a code",
        }],
        capabilities: &[("deterministic", "yes")],
        create: |_, _| Err(PluginError::unsupported("a sample")),
    };
    const DECLARATION: Declaration = Declaration {
        name: "sample-12",
        version: "1.2.3",
        components: &[COMPONENT, COMPONENT],
    };
    static BYTES: [u8; length(&DECLARATION)] = bytes(&DECLARATION);

    #[test]
    fn what_is_written_at_compile_time_is_read_back() {
        let found = read(&BYTES).expect("our own bytes");
        assert_eq!(
            (found.name.as_str(), found.version.as_str()),
            ("sample-12", "1.2.3")
        );
        assert_eq!(found.abi, [ABI_MAJOR, ABI_MINOR]);
        assert_eq!(found.components.len(), 2);
        let component = &found.components[1];
        assert_eq!(component.doc, "says \"hello\"");
        assert_eq!(component.options[0].default, 4);
        assert_eq!(component.capabilities["deterministic"], "yes");
    }

    /// The length of a declaration with one option of this kind and default.
    fn with_default(kind: OptionKind, default: &'static str) -> usize {
        let options: &'static [OptionSpec] = Box::leak(Box::new([OptionSpec {
            kind,
            default,
            ..COMPONENT.options[0]
        }]));
        let components: &'static [Component] = Box::leak(Box::new([Component {
            options,
            ..COMPONENT
        }]));
        length(&Declaration {
            components,
            ..DECLARATION
        })
    }

    #[test]
    fn defaults_of_the_form_of_their_type_are_written() {
        for (kind, default) in [
            (OptionKind::TEXT, "\"nearest\""),
            (OptionKind::TEXT, "null"),
            (OptionKind::TEXTS, "[\"a\"]"),
            (OptionKind::TEXTS, "\"a\""),
            (OptionKind::BOOL, "true"),
            (OptionKind::NUMBER, "-1e-3"),
            (OptionKind::INTEGER_TABLE, "{}"),
            (OptionKind("another"), "anything"),
        ] {
            assert!(with_default(kind, default) > default.len());
        }
    }

    #[test]
    #[should_panic(expected = "quotes of its own")]
    fn a_text_default_without_inner_quotes_fails() {
        with_default(OptionKind::TEXT, "nearest");
    }

    #[test]
    #[should_panic(expected = "such as \"64\"")]
    fn a_number_that_is_none_fails() {
        with_default(OptionKind::INTEGER, "many");
    }

    #[test]
    fn a_cut_section_is_refused() {
        assert!(
            read(&BYTES[..40])
                .expect_err("cut")
                .contains("in a section of 40")
        );
        assert!(read(b"").is_err());
    }
}
