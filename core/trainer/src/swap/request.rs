//! A request to a running job: another component for a role, or the same one with other options or
//! from a new file.

use std::path::PathBuf;

use espalier_config::nearest;
use espalier_interface::Role;
use espalier_system::failure::UsageError;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Roles whose component can be swapped in a run.
const ROLES: [Role; 4] = [
    Role::QUANTIZER,
    Role::ADAPTER,
    Role::SHARDING,
    Role::BACKEND,
];

/// The name for no component.
const NONE: &str = "none";

/// A request to swap a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwapRequest {
    /// The role, by name.
    pub role: String,
    /// The new component; `none` for no quantizer.
    pub name: String,
    /// Options of that component to change, `quantizer.hqq.bits=4` each.
    pub set: Vec<String>,
    /// Folders searched before the run's own for plugin libraries; absolute.
    pub plugin_dirs: Vec<PathBuf>,
    /// The step before which it takes over, counted from 1; `None`: the next.
    pub before_step: Option<u64>,
    /// Where the new weights are staged.
    pub staging: Staging,
    /// The sender, in words.
    pub asked_by: String,
}

/// Where new weights are staged before they replace the old ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Staging {
    /// In memory if it is large enough for both, else in a mapped file.
    #[default]
    Auto,
    /// In a mapped file.
    Mapped,
}

impl SwapRequest {
    /// The request for `ROLE=NAME` with the changes `set`.
    ///
    /// # Errors
    /// An invalid text; a role that cannot be swapped; a change of other keys than this component's
    /// options.
    pub fn new(assignment: &str, set: &[String]) -> Result<Self, Error> {
        let (role, name) = assignment
            .split_once('=')
            .ok_or_else(|| usage(format!("expected ROLE=NAME, found `{assignment}`")))?;
        let request = SwapRequest {
            role: role.trim().to_owned(),
            name: name.trim().to_owned(),
            set: set.to_vec(),
            ..SwapRequest::default()
        };
        request.check()?;
        Ok(request)
    }

    /// The requested role.
    ///
    /// # Errors
    /// A role that cannot be swapped, or does not exist.
    pub fn role(&self) -> Result<Role, Error> {
        let found = ROLES.into_iter().find(|role| role.0 == self.role);
        found.ok_or_else(|| match Role::from_name(&self.role) {
            Some(role) => usage(format!("role {role} cannot be swapped in a running job")),
            None => {
                let names = ROLES.map(|role| role.0);
                let meant = nearest(&self.role, names);
                let meant =
                    meant.map_or(String::new(), |name| format!(", the nearest is `{name}`"));
                usage(format!("unknown role `{}`{meant}", self.role))
            }
        })
    }

    /// The new component of the role; `None` to leave the role empty.
    pub fn component(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| *name != NONE)
    }

    /// Refuses requests that no run can fulfil.
    ///
    /// # Errors
    /// As [`SwapRequest::new`].
    pub fn check(&self) -> Result<(), Error> {
        let role = self.role()?;
        if self.name.is_empty() {
            return Err(usage(format!("expected {role}=NAME, found no name")));
        }
        if self.component().is_none() && role != Role::QUANTIZER {
            return Err(usage(format!(
                "{role}=none: a run keeps its {role}; only the quantizer can be left out"
            )));
        }
        let section = format!("{role}.{}.", self.name);
        let stranger = self
            .set
            .iter()
            .find(|change| !change.trim_start().starts_with(&section));
        match stranger {
            None => Ok(()),
            Some(change) => Err(Error::Usage(UsageError {
                message: format!(
                    "`{change}` is no option of {role} `{}`: a swap changes nothing else of a run",
                    self.name
                ),
                next_step: format!("write --set {section}OPTION=VALUE"),
            })),
        }
    }

    /// `quantizer=hqq`.
    pub fn assignment(&self) -> String {
        format!("{}={}", self.role, self.name)
    }
}

fn usage(message: String) -> Error {
    let roles = ROLES.map(|role| role.0).join(", ");
    Error::Usage(UsageError {
        message,
        next_step: format!("name a component for one of {roles}: quantizer=nf4"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(assignment: &str, set: &[&str]) -> String {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let error = SwapRequest::new(assignment, &set).expect_err(assignment);
        assert_eq!(error.exit_code(), 2, "{assignment}");
        error.to_string()
    }

    #[test]
    fn only_changes_that_a_run_can_make_are_accepted() {
        let set = ["quantizer.hqq.bits=3".to_owned()];
        let request = SwapRequest::new("quantizer = hqq", &set).expect("a swap");
        assert_eq!(request.assignment(), "quantizer=hqq");
        assert_eq!(request.component(), Some("hqq"));
        let none = SwapRequest::new("quantizer=none", &[]).expect("a swap");
        assert_eq!(none.component(), None);
        assert!(refused("nf4", &[]).contains("expected ROLE=NAME"));
        assert!(refused("quantiser=nf4", &[]).contains("the nearest is `quantizer`"));
        assert!(refused("family=llama", &[]).contains("cannot be swapped"));
        assert!(refused("adapter=none", &[]).contains("keeps its adapter"));
        assert!(refused("backend=", &[]).contains("no name"));
        for change in ["optim.learning_rate=1", "quantizer.nf4.block_size=64"] {
            let message = refused("quantizer=hqq", &[change]);
            assert!(
                message.contains("is no option of quantizer `hqq`"),
                "{message}"
            );
        }
    }
}
