//! More memory than available.

use espalier_interface::bytes::Bytes;

use crate::failure::{ExitClass, Failure};

/// The plan or an allocation exceeds the available memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough {kind} memory: {needed} needed, {available} available")]
pub struct OutOfMemory {
    /// `host` or the device's name.
    pub kind: String,
    /// The peak of the run.
    pub needed: Bytes,
    /// The available memory.
    pub available: Bytes,
}

impl OutOfMemory {
    /// The user's next step after running out of memory.
    pub const NEXT_STEP: &str = "lower data.max_seq_len or data.micro_batch, set model.recompute = \"layer\", \
                                 or see `host plan`";
}

impl Failure for OutOfMemory {
    fn exit_class(&self) -> ExitClass {
        ExitClass::Resources
    }

    fn next_step(&self) -> String {
        OutOfMemory::NEXT_STEP.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_powers_of_two() {
        let error = OutOfMemory {
            kind: "host".into(),
            needed: Bytes(3 << 30),
            available: Bytes(512 << 20),
        };
        assert_eq!(
            error.to_string(),
            "not enough host memory: 3.00 GiB needed, 512.00 MiB available"
        );
        assert_eq!(error.exit_class().code(), 8);
    }
}
