//! The messages between processes: frames of a length and JSON.

use serde::{Deserialize, Serialize};

use super::rank_status::Report;
use crate::ranks::lost::Lost;

/// Most bytes of a message; a longer one is not from this program.
const LARGEST: usize = 1 << 20;

/// A message from one process to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Who connects, or who is connected to.
    Hello {
        /// The run's token.
        token: String,
        /// The number of the process that says it.
        process: u32,
    },
    /// The status of the process's ranks.
    Beat(Vec<Report>),
    /// A rank is lost: the sender ends.
    Lost(Lost),
    /// The sender has finished its run.
    Bye,
}

impl Message {
    /// The bytes of its frame.
    pub fn frame(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).expect("messages are plain data");
        let length = (text.len() as u32).to_le_bytes();
        [&length[..], &text].concat()
    }
}

/// Received bytes that are not read as messages yet.
#[derive(Default)]
pub struct Inbox(Vec<u8>);

/// Bytes that are no message.
#[derive(Debug, PartialEq, Eq)]
pub struct Garbage;

impl Inbox {
    /// Takes received bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole message, if it has arrived.
    ///
    /// # Errors
    /// `Garbage` where the received bytes are no message.
    pub fn next(&mut self) -> Result<Option<Message>, Garbage> {
        let Some(length) = self.0.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LARGEST {
            return Err(Garbage);
        }
        let Some(text) = self.0.get(4..4 + length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(text).map_err(|_| Garbage)?;
        self.0.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_however_they_are_cut_and_garbage_is_told() {
        let hello = Message::Hello {
            token: "t".into(),
            process: 3,
        };
        let sent = [hello.frame(), Message::Bye.frame()].concat();
        let mut inbox = Inbox::default();
        let mut read = Vec::new();
        for byte in sent {
            inbox.take(&[byte]);
            read.extend(inbox.next().expect("no garbage"));
        }
        assert_eq!(read, [hello, Message::Bye]);
        inbox.take(b"GET / HTTP/1.1\r\n");
        assert_eq!(inbox.next(), Err(Garbage));
        let mut inbox = Inbox::default();
        inbox.take(&[2, 0, 0, 0, b'{', b'x']);
        assert_eq!(inbox.next(), Err(Garbage));
    }
}
