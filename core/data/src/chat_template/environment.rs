//! The Jinja environment that transformers renders chat templates in.

use std::sync::OnceLock;

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;
use regex::Regex;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use super::bounds::STEPS;

/// The name of the one template of an environment.
pub(super) const NAME: &str = "chat template";
/// The variable that asks for marks around what `{% generation %}` encloses.
pub(super) const MARKING: &str = "espalier_marks_generation";
/// The mark before generated text. Both marks are Unicode noncharacters, which no text should
/// contain.
pub(super) const BEGIN: char = '\u{FDD0}';
/// The mark after generated text.
pub(super) const END: char = '\u{FDD1}';

/// An environment with the template `source`.
///
/// # Errors
/// Where `source` is not a template, with the line.
pub(super) fn new(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(STEPS));
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    if !source.contains("strftime_now is defined") {
        environment.add_function("strftime_now", strftime_of_fixed_day);
    }
    environment.add_filter("tojson", to_json);
    environment.add_filter("espalier_generation", mark);
    environment.add_template_owned(NAME, without_generation_tags(source))?;
    Ok(environment)
}

/// Whether `source` marks the model's text.
pub(super) fn has_generation_tags(source: &str) -> bool {
    generation_tag().is_match(source)
}

/// `source` with filter blocks in place of `{% generation %}`, a tag of transformers. Both have the
/// same rules for white space.
fn without_generation_tags(source: &str) -> String {
    let replaced = generation_tag().replace_all(source, |tag: &regex::Captures<'_>| {
        let inner = if tag[2].is_empty() {
            "filter espalier_generation"
        } else {
            "endfilter"
        };
        format!("{{%{} {inner} {}%}}", &tag[1], &tag[3])
    });
    replaced.into_owned()
}

fn generation_tag() -> &'static Regex {
    static TAG: OnceLock<Regex> = OnceLock::new();
    let pattern = r"\{%([-+]?)\s*((?:end)?)generation\s*([-+]?)%\}";
    TAG.get_or_init(|| Regex::new(pattern).expect("a fixed pattern"))
}

fn mark(state: &State<'_, '_>, body: &str) -> String {
    if state
        .lookup(MARKING)
        .is_some_and(|marking| marking.is_true())
    {
        format!("{BEGIN}{body}{END}")
    } else {
        body.to_owned()
    }
}

fn raise_exception(reason: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

/// The time in `format`, always of 26 July 2024, noon: the tokens of a row must not depend on the
/// day of the run. (The date is the one that Llama 3.1's template falls back to.)
fn strftime_of_fixed_day(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let directive = letters.next().unwrap_or('%');
        text += match directive {
            'Y' => "2024",
            'y' => "24",
            'm' => "07",
            'B' => "July",
            'b' | 'h' => "Jul",
            'd' | 'e' => "26",
            'j' => "208",
            'A' => "Friday",
            'a' => "Fri",
            'H' | 'I' => "12",
            'M' | 'S' => "00",
            'p' => "PM",
            'F' => "2024-07-26",
            'T' => "12:00:00",
            '%' => "%",
            other => {
                let reason = format!("strftime_now: `%{other}` is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        };
    }
    Ok(text)
}

/// As Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if ensure_ascii == Some(true) {
        let reason = "tojson: ensure_ascii = true is not supported";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    match indent {
        Some(count) => write_json(
            value,
            PrettyFormatter::with_indent(" ".repeat(count).as_bytes()),
        ),
        None => write_json(value, Spaced),
    }
}

fn write_json(value: &Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, formatter);
    let written = value.serialize(&mut serializer);
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(String::from_utf8(bytes).expect("JSON is UTF-8"))
}

/// Python's separators: `, ` and `: `.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
