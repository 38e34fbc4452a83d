//! The messages between the two processes: JSON with a length prefix.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::rendering::{Answer, Conversation, Fault, Job, Variables};

/// The first message to a process.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub source: String,
    pub special_tokens: BTreeMap<String, String>,
}

/// The answer to it: whether the source is a template.
pub(super) type Opened = Result<(), Fault>;

/// A conversation, as it is sent.
#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub conversation: &'a Conversation,
    pub jobs: &'a [Job],
    pub limits: Limits,
}

/// A conversation, as it is read.
#[derive(Deserialize)]
pub(super) struct Received {
    pub conversation: Variables,
    pub jobs: Vec<Job>,
    pub limits: Limits,
}

/// The answer to a conversation.
pub(super) type Response = Result<Vec<Answer>, Fault>;

/// The limits of a conversation's renderings.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Steps of each.
    pub steps: u64,
    /// Processor time of all.
    pub millis: u64,
    /// Bytes of memory above the process's idle size.
    pub memory_bytes: u64,
    /// Bytes of each text.
    pub text_bytes: usize,
}

/// Writes the message `what`.
pub(super) fn write(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; size_of::<u64>()];
    serde_json::to_writer(&mut bytes, what)?;
    let length = (bytes.len() - size_of::<u64>()) as u64;
    bytes[..size_of::<u64>()].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)?;
    to.flush()
}

/// The next message; none where the other process has ended.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; size_of::<u64>()];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u64::from_le_bytes(length);
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length {
        Ok(Some(serde_json::from_slice(&bytes)?))
    } else {
        Ok(None)
    }
}
