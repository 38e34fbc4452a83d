//! Calls of a group with threads in several processes: first within the process, then by one thread
//! with the other processes, then within the process again.

use std::ptr::NonNull;

use espalier_interface::{DType, ErrorCode, PluginError};

use super::Span;
use super::route::{Direct, Route, copy};

type Result<T> = std::result::Result<T, PluginError>;

/// The route from a thread to the threads of all processes.
pub(super) struct Both {
    /// All threads of the process. Each of them makes the same calls, possibly in another group.
    pub process: Direct,
    /// This thread's place among them.
    pub thread: u64,
    /// Threads of the process.
    pub threads: u64,
    /// The threads of this thread's group, where there are several.
    pub group: Option<Direct>,
    /// Groups of the process: threads `i`, `i + groups`, ... are of group `i`.
    pub groups: u64,
    /// The processes; only the first thread has it.
    pub processes: Option<Direct>,
    /// This process's place among them.
    pub process_index: u64,
    /// How many they are.
    pub num_processes: u64,
}

impl Both {
    /// The first thread calls the other processes. The others wait for it and for its outcome.
    fn across(&self, call: impl FnOnce(&Direct) -> Result<()>) -> Result<()> {
        let done = self.processes.as_ref().map_or(Ok(()), call);
        let mut failed = [u8::from(done.is_err())];
        self.process.broadcast(Span::of(&mut failed))?;
        done?;
        match failed {
            [0] => Ok(()),
            _ => Err(PluginError::new(
                ErrorCode::PEER,
                "the call between the processes failed",
            )),
        }
    }

    /// The block of this process: `bytes` for each of the processes, one after the other.
    fn block(&self, whole: Span, bytes: u64) -> Span {
        part(whole, self.process_index * bytes, bytes)
    }
}

impl Route for Both {
    fn all_gather(&self, send: Span, recv: Span) -> Result<()> {
        let bytes = self.threads * send.bytes;
        let block = self.block(recv, bytes);
        self.process.all_gather(send, block)?;
        self.across(|processes| processes.all_gather(block, recv))?;
        let before = self.process_index * bytes;
        let after = before + bytes;
        self.process.broadcast(part(recv, 0, before))?;
        self.process
            .broadcast(part(recv, after, recv.bytes - after))
    }

    fn reduce_scatter(&self, dtype: DType, send: Span, recv: Span) -> Result<()> {
        let block = self.block(send, send.bytes / self.num_processes);
        self.process.all_reduce(dtype, send)?;
        self.across(|processes| processes.reduce_scatter(dtype, send, block))?;
        self.process.broadcast(block)?;
        copy(part(block, self.thread * recv.bytes, recv.bytes), recv);
        Ok(())
    }

    fn all_reduce(&self, dtype: DType, data: Span) -> Result<()> {
        if let Some(group) = &self.group {
            group.all_reduce(dtype, data)?;
        }
        // The first thread of each group has its sum; all threads wait until they are done.
        let own = (data.address.as_ptr() as u64).to_ne_bytes();
        let mut addresses = vec![0; 8 * self.threads as usize];
        let recv = Span::of(&mut addresses);
        self.process.all_gather(Span::read_only(&own), recv)?;
        let (addresses, _) = addresses.as_chunks::<8>();
        let firsts = &addresses[..self.groups as usize];
        self.across(|processes| {
            firsts.iter().try_for_each(|&address| {
                let address = u64::from_ne_bytes(address) as *mut u8;
                let address = NonNull::new(address).expect("another thread's span");
                processes.all_reduce(dtype, Span { address, ..data })
            })
        })?;
        match &self.group {
            Some(group) => group.broadcast(data),
            None => Ok(()),
        }
    }

    fn abort(&self) {
        self.process.abort();
        for direct in [&self.group, &self.processes].into_iter().flatten() {
            direct.abort();
        }
    }
}

/// `bytes` of `whole`, from byte `start` on.
fn part(whole: Span, start: u64, bytes: u64) -> Span {
    assert!(start + bytes <= whole.bytes, "a part is within the whole");
    // The address of an empty part at the end may be one past it, which is no null either.
    let address = whole.address.as_ptr().wrapping_add(start as usize);
    Span {
        address: NonNull::new(address).expect("within memory"),
        bytes,
    }
}
