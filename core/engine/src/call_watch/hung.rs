//! A plugin's call that does not return.

use espalier_system::failure::{ExitClass, Failure};

use super::LateCall;

/// A plugin's call does not return.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} does not return: no sign of progress for {} s", call.secs)]
pub struct Hung {
    /// The call.
    pub call: Box<LateCall>,
    /// The key of the config that limits it.
    pub limited_by: &'static str,
}

impl Failure for Hung {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Plugin
    }

    fn next_step(&self) -> String {
        format!(
            "report it to the author of `{}`, or raise {} if it is only slow; a training run continues \
             from its last checkpoint with --resume",
            self.call.plugin, self.limited_by
        )
    }
}
