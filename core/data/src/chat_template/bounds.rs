//! The bounds of an untrusted template: its size and nesting, checked before it is parsed, and the
//! steps, time, memory and text of a rendering.
//!
//! A template is a program that came with a model. The crate minijinja counts its steps, but one
//! step can double a text, and nothing bounds memory. A chain of operators is compiled recursively.
//! So such a template is rendered in a process of its own ([`super::workers`]) with these limits.
//! What can be seen from its text is refused earlier.

use std::fmt;

use minijinja::ErrorKind;
use minijinja::machinery::{Token, WhitespaceConfig, tokenize};
use minijinja::syntax::SyntaxConfig;
use serde::{Deserialize, Serialize};

/// Most bytes of a template; the longest of published models has 30,000.
const SOURCE_BYTES: usize = 1 << 20;
/// Most tokens of one tag: an expression is compiled by as many nested calls.
const TAG_TOKENS: usize = 4096;
/// Most `elif`s of a template: each is compiled within the one before.
const ELIFS: usize = 1000;
/// Steps after which a rendering counts as endless.
pub(super) const STEPS: u64 = 50_000_000;
/// Seconds of processor time that a conversation may take.
pub(super) const SECS: u64 = 3;
/// Bytes of stack for compiling and rendering.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// Bytes that a process may allocate for a conversation of `bytes`, above its idle size. Rounded to
/// few sizes, since each change is a system call.
pub(super) fn memory_bytes(bytes: usize) -> u64 {
    let conversations = 1 + bytes / (4 << 20);
    (128 << 20) * conversations as u64
}

/// Most bytes of text for a conversation of `bytes`.
pub(super) fn text_bytes(bytes: usize) -> usize {
    (1 << 20) + 16 * bytes
}

/// A bound that a template exceeded, with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Bound {
    Source {
        bytes: usize,
    },
    Tag,
    Elifs,
    Steps,
    Time,
    Memory {
        bytes: u64,
    },
    Text {
        bytes: usize,
    },
    Stack,
    /// Its process was ended by something else.
    Ended {
        how: String,
    },
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match self {
            Bound::Source { bytes } => {
                write!(f, "has {bytes} bytes; expected at most {SOURCE_BYTES}")
            }
            Bound::Tag => write!(
                f,
                "has a tag of more than {TAG_TOKENS} names, values and signs"
            ),
            Bound::Elifs => write!(f, "has more than {ELIFS} elif tags"),
            Bound::Steps => write!(f, "takes more than {STEPS} steps for a conversation"),
            Bound::Time => write!(
                f,
                "takes more than {SECS} s of processor time for a conversation"
            ),
            Bound::Memory { bytes } => write!(
                f,
                "takes more than {:.0} MiB of memory for a conversation",
                mib(*bytes)
            ),
            Bound::Text { bytes } => write!(
                f,
                "writes more than {:.1} MiB of text for a conversation",
                mib(*bytes as u64)
            ),
            Bound::Stack => write!(
                f,
                "nests its values so deeply that they take more than {} MiB of stack",
                STACK_BYTES >> 20
            ),
            Bound::Ended { how } => write!(f, "ended the process that rendered it by {how}"),
        }
    }
}

/// A bound, and where in the template it was exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Met {
    pub bound: Bound,
    /// None where it is not known.
    pub line: Option<Line>,
}

/// A line of a template, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) enum Line {
    At(usize),
    /// A line that is reached before it.
    Near(usize),
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bound.fmt(f)?;
        match self.line {
            Some(Line::At(line)) => write!(f, " (line {line} of the template)"),
            Some(Line::Near(line)) => write!(f, " (near line {line} of the template)"),
            None => Ok(()),
        }
    }
}

/// Refuses a text that is too long or nested too deeply. A text that is no template is left to the
/// compiler, which has better messages.
pub(super) fn check(source: &str) -> Result<(), Met> {
    let met = |bound, line| Err(Met { bound, line });
    if source.len() > SOURCE_BYTES {
        let bytes = source.len();
        return met(Bound::Source { bytes }, None);
    }
    let (mut tokens, mut elifs, mut opened) = (0, 0, false);
    let (syntax, space) = (SyntaxConfig, WhitespaceConfig::default());
    for token in tokenize(source, false, syntax, space) {
        let Ok((token, span)) = token else { break };
        let line = Some(Line::At(span.start_line as usize));
        tokens += 1;
        elifs += usize::from(opened && matches!(token, Token::Ident("elif")));
        opened = matches!(token, Token::BlockStart);
        if matches!(token, Token::BlockEnd | Token::VariableEnd) {
            tokens = 0;
        }
        if tokens > TAG_TOKENS {
            return met(Bound::Tag, line);
        }
        if elifs > ELIFS {
            return met(Bound::Elifs, line);
        }
    }
    Ok(())
}

/// The bound that minijinja itself enforces, where `error` is about it.
pub(super) fn of_error(error: &minijinja::Error) -> Option<Met> {
    (error.kind() == ErrorKind::OutOfFuel).then(|| Met {
        bound: Bound::Steps,
        line: error.line().map(Line::At),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> String {
        check(source).expect_err("refused").to_string()
    }

    #[test]
    fn a_text_too_deep_to_be_compiled_is_refused_with_its_line() {
        let chain = |link: &str| format!("\n\n{{{{ 'a'{} }}}}", link.repeat(50_000));
        for link in [
            " + 'a'",
            " ~ 'a'",
            "|trim",
            ".a",
            " if 1 else 2",
            "[0]",
            " and 1",
        ] {
            let said = refused(&chain(link));
            assert!(
                said.ends_with("signs (line 3 of the template)"),
                "{link}: {said}"
            );
        }
        let signs = format!("{{{{\n{}1 }}}}", "- ".repeat(50_000));
        assert!(refused(&signs).contains("line 2"));
        let elifs = format!("{{% if a %}}{}{{% endif %}}", "\n{% elif b %}".repeat(2000));
        assert_eq!(
            refused(&elifs),
            "has more than 1000 elif tags (line 1002 of the template)"
        );
        assert!(refused(&" ".repeat(2 << 20)).contains("2097152 bytes"));
    }

    #[test]
    fn long_templates_of_short_tags_pass() {
        let many = "{% if a %}b{% elif c %}d{% endif %}{{ 'x}}' }}{# ".to_owned()
            + &"+ ".repeat(9000)
            + "#}";
        check(&many.repeat(20)).expect("short tags");
        check(&format!(
            "{{% raw %}}{}{{% endraw %}}",
            "{{ a ".repeat(9000)
        ))
        .expect("no tag");
        // Not a template; the compiler reports that.
        check("{{ 'a").expect("not judged");
    }
}
