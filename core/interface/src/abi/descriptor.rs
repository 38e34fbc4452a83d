//! A declaration -> the bytes of the section `.espalier`, made when the plugin is compiled and read
//! without running it.
//!
//! Layout: the 8 bytes `ESPALIER`, the length of the text as u32 little endian, the text: a JSON
//! object `{abi, name, version, components: [{name, role, doc, options: [{name, type, default,
//! range, doc}], capabilities}]}`.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::root::{ABI_MAJOR, ABI_MINOR};
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
