//! The call that a library is in, for messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A call that runs a library's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// The call, such as `create`; `open` for everything before components are made.
    pub callback: String,
    /// The component; none where the library as a whole is meant.
    pub component: Option<String>,
}

impl Doing {
    pub(crate) fn new(callback: &str, component: Option<&str>) -> Self {
        Doing {
            callback: callback.to_owned(),
            component: component.map(str::to_owned),
        }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.component, self.callback.as_str()) {
            (Some(component), callback) => write!(f, "in {callback} of `{component}`"),
            (None, "open") => f.write_str("when it was opened"),
            (None, "exit") => f.write_str("when the process ended"),
            (None, callback) => write!(f, "in {callback}"),
        }
    }
}
