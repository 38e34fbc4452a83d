//! The connection to another process: its last report and the time of its last message.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::message::{Inbox, Message};
use super::rank_status::Report;

/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// Unsent bytes above which heartbeats are dropped: the other side does not read.
const BACKLOG: usize = 256 << 10;

/// The state of a connection. Times are milliseconds of the watch's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is open.
    Open,
    /// The other process came to the end of its run.
    Over,
    /// It was closed without a message, at this time.
    Closed(u64),
}

/// The connection to another process.
pub struct Link {
    /// The other process.
    pub process: u32,
    /// The name of its machine.
    pub host: String,
    /// Its state.
    pub state: State,
    /// The time of its last message.
    pub received: u64,
    stream: TcpStream,
    inbox: Inbox,
    out: Vec<u8>,
    reports: Vec<Report>,
}

impl Link {
    /// The connection `stream` to `process` on `host`, opened `now`.
    ///
    /// # Errors
    /// Where the system cannot make it one that does not block.
    pub fn new(process: u32, host: String, stream: TcpStream, now: u64) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Link {
            process,
            host,
            state: State::Open,
            received: now,
            stream,
            inbox: Inbox::default(),
            out: Vec::new(),
            reports: Vec::new(),
        })
    }

    /// The status of its ranks at `now`, from their last reports.
    pub fn reports(&self, now: u64) -> impl Iterator<Item = Report> + '_ {
        let age = now.saturating_sub(self.received);
        self.reports
            .iter()
            .cloned()
            .map(move |report| report.aged(age))
    }

    /// The last report of its rank `rank`.
    pub fn report(&self, rank: u32) -> Option<&Report> {
        self.reports.iter().find(|report| report.rank == rank)
    }

    /// Reads what has arrived. Returns a loss that the other process reports.
    pub fn receive(&mut self, now: u64) -> Option<super::Lost> {
        if matches!(self.state, State::Closed(_)) {
            return None;
        }
        let ended = self.read(now);
        let mut lost = None;
        loop {
            match self.inbox.next() {
                Ok(Some(Message::Beat(reports))) => self.reports = reports,
                Ok(Some(Message::Lost(reported))) => lost = lost.or(Some(reported)),
                Ok(Some(Message::Bye)) => self.state = State::Over,
                Ok(Some(Message::Hello { .. })) => {}
                Ok(None) => break,
                Err(_) => {
                    self.close(now);
                    break;
                }
            }
        }
        if ended {
            self.close(now);
        }
        lost
    }

    /// Sends `message`, now or when the other side accepts it. Of heartbeats only the newest is
    /// kept.
    pub fn send(&mut self, message: &Message) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        let late = self.out.len() > BACKLOG && matches!(message, Message::Beat(_));
        if !late {
            self.out.extend(message.frame());
        }
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // What it still says is read before it counts as closed.
                Err(_) => return self.out.clear(),
            }
        }
    }

    /// Ends this side, so that the other reads all that was sent.
    pub fn finish(&mut self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads on until the other side has ended, too, or `deadline`.
    pub fn drain(&mut self, deadline: Instant) {
        let mut chunk = [0; CHUNK];
        while Instant::now() < deadline {
            match self.stream.read(&mut chunk) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }

    /// Takes what has arrived; true when no more will come.
    fn read(&mut self, now: u64) -> bool {
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return true,
                Ok(count) => {
                    self.received = now;
                    self.inbox.take(&chunk[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    fn close(&mut self, now: u64) {
        if self.state == State::Open {
            self.state = State::Closed(now);
        }
    }
}
