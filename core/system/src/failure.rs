//! The exit code of every error of the program, and the user's next step.

/// The kinds of failure, each with its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitClass {
    /// Arguments, the config, a wrong path, a taken output directory.
    Usage,
    /// Rows that cannot be trained on.
    Data,
    /// Files of a model, an adapter or a checkpoint that are broken or not the ones expected.
    Checkpoint,
    /// A plugin that is missing, fails or hangs.
    Plugin,
    /// A rank that is lost.
    Peer,
    /// Numbers that are not finite, or that a dtype cannot hold.
    Numbers,
    /// The machine ran out of memory, disk space or another resource.
    Resources,
    /// Arms of a comparison that failed; the others are complete.
    Arms,
    /// A signal, by its number.
    Signal(i32),
}

impl ExitClass {
    /// The process's exit code; for a signal 128 + its number, as in shells.
    pub fn code(self) -> u8 {
        match self {
            ExitClass::Usage => 2,
            ExitClass::Data => 3,
            ExitClass::Checkpoint => 4,
            ExitClass::Plugin => 5,
            ExitClass::Peer => 6,
            ExitClass::Numbers => 7,
            ExitClass::Resources => 8,
            ExitClass::Arms => 9,
            ExitClass::Signal(signal) => u8::try_from(128 + signal).unwrap_or(130),
        }
    }

    /// The kind of failure with this exit code; [`ExitClass::Plugin`] for an unknown code.
    pub fn of_code(code: u8) -> Self {
        use ExitClass::{Arms, Checkpoint, Data, Numbers, Peer, Plugin, Resources, Signal, Usage};
        let all = [
            Usage, Data, Checkpoint, Plugin, Peer, Numbers, Resources, Arms,
        ];
        match all.into_iter().find(|class| class.code() == code) {
            Some(class) => class,
            None if code > 128 => Signal(i32::from(code) - 128),
            None => Plugin,
        }
    }
}

/// An error that ends a command.
pub trait Failure: std::error::Error {
    /// Its kind.
    fn exit_class(&self) -> ExitClass;

    /// What the user can do next; lower case, no full stop.
    fn next_step(&self) -> String;

    /// The failures that it stands for, where it is several, each with its next step.
    fn parts(&self) -> Vec<&(dyn Failure + 'static)> {
        Vec::new()
    }

    /// The process's exit code.
    fn exit_code(&self) -> u8 {
        self.exit_class().code()
    }
}

/// Arguments that contradict each other, or name something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UsageError {
    /// What was expected and what was found.
    pub message: String,
    /// What the user can do.
    pub next_step: String,
}

impl Failure for UsageError {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Usage
    }

    fn next_step(&self) -> String {
        self.next_step.clone()
    }
}

/// Declares a crate's error: an enum with one failure per variant, each converted with `?`.
///
/// `from lower::Error { A, B }` converts the error of a lower crate, variant by variant.
/// `through A { X, Y }` converts the sources of a variant's failure.
#[macro_export]
macro_rules! failures {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident($failure:ty),)+
        }
        $(from $lower:ident::$error:ident { $($below:ident),+ $(,)? })*
        $(through $outer:ident { $($inner:ty),+ $(,)? })*
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, thiserror::Error)]
        pub enum $name {
            $(
                $(#[$of_variant])*
                #[error(transparent)]
                $variant(#[from] $failure),
            )+
        }

        impl $crate::failure::Failure for $name {
            fn exit_class(&self) -> $crate::failure::ExitClass {
                match self {
                    $($name::$variant(failure) => $crate::failure::Failure::exit_class(failure),)+
                }
            }

            fn next_step(&self) -> String {
                match self {
                    $($name::$variant(failure) => $crate::failure::Failure::next_step(failure),)+
                }
            }

            fn parts(&self) -> Vec<&(dyn $crate::failure::Failure + 'static)> {
                match self {
                    $($name::$variant(failure) => $crate::failure::Failure::parts(failure),)+
                }
            }
        }

        impl $name {
            /// The process's exit code.
            pub fn exit_code(&self) -> u8 {
                $crate::failure::Failure::exit_code(self)
            }

            /// What the user can do next; lower case, no full stop.
            pub fn next_step(&self) -> String {
                $crate::failure::Failure::next_step(self)
            }
        }

        $(impl From<$lower::$error> for $name {
            fn from(error: $lower::$error) -> Self {
                match error {
                    $($lower::$error::$below(failure) => $name::$below(failure),)+
                }
            }
        })*

        $($(impl From<$inner> for $name {
            fn from(inner: $inner) -> Self {
                $name::$outer(inner.into())
            }
        })+)*
    };
}

/// An error and its causes in one line, `what failed: why: why`.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = one_line(&error.to_string());
    let mut last = line.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = one_line(&cause.to_string());
        // An error that prints its source itself would repeat it.
        if !last.contains(&text) {
            line = format!("{line}: {text}");
            last = text;
        }
        source = cause.source();
    }
    line
}

/// Text of several lines in one line, with terminal control characters escaped.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() && c != '\t' {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_exit_with_the_codes_of_shells() {
        assert_eq!(ExitClass::Signal(2).code(), 130);
        assert_eq!(ExitClass::Signal(15).code(), 143);
    }

    #[test]
    fn each_exit_code_has_one_kind() {
        for code in (2..=9).chain([130, 143]) {
            assert_eq!(ExitClass::of_code(code).code(), code);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = "a\n  b\u{1b}[2J\0\u{9b}1m é\r\n";
        assert_eq!(one_line(text), "a b\\u{1b}[2J\\u{0}\\u{9b}1m é");
    }
}
