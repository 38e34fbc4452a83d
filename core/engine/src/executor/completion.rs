//! Work on a stream -> the moment when the host may read its results, with signs of life meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use espalier_interface::abi::call_site;
use espalier_interface::{BufferRange, Event, Stream};

use super::transfer::CHUNK_BYTES;
use super::{Executor, storage};
use crate::error::{Error, Result};
use crate::ranks::DoneCalls;

/// The shortest pause between two queries, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

/// A pause is at most this part of the time waited so far, so that a wait is hardly longer than
/// the work that it waits for.
const PAUSE_PART: u32 = 32;

impl Executor {
    /// Waits until all work on `stream` is done. A device may take longer for it than a rank may be
    /// silent, so the rank shows that it is alive.
    ///
    /// # Errors
    /// `Error::Plugin`: work on the stream or a call to the backend failed. `Error::Peer`: a rank
    /// is lost that a call on the stream waits for.
    pub(super) fn complete(&self, stream: Stream) -> Result<()> {
        // Without a walk under way, the compute stream comes after all that it has caught up with.
        let is_last = stream == Stream(0) && self.behind.compute_has_caught_up();
        let waited = self.wait_for(stream);
        waited.map_err(|error| {
            let lost = self.lost_on_device();
            lost.unwrap_or(error)
        })?;
        if self.peers.has_device_groups() {
            self.peers.device_calls_done(if is_last {
                DoneCalls::All
            } else {
                DoneCalls::Of(self.device.native_stream(stream))
            });
        }
        if stream == Stream(0) {
            self.behind.host_waited();
            self.since_wait.done();
        }
        Ok(())
    }

    fn wait_for(&self, stream: Stream) -> Result<()> {
        let event = self
            .since_wait
            .during("record", self.device.record(stream))?;
        let waited = self.poll(event);
        let freed = self.device.free_event(event);
        waited.and(self.since_wait.during("free_event", freed))?;
        self.work_counter.waited();
        let _busy = self.peers.in_device_call("synchronize");
        let synchronized = self.device.synchronize(stream);
        self.since_wait.waiting("synchronize", synchronized)
    }

    /// Waits until `event` is complete. The rank shows that it is alive, but the queries together
    /// are one call of the device: one that never gets there has the time of any call.
    fn poll(&self, event: Event) -> Result<()> {
        let is_complete = || self.since_wait.waiting("query", self.device.query(event));
        if is_complete()? {
            return Ok(());
        }
        let _polls = call_site::polls();
        let begun = Instant::now();
        while !is_complete()? {
            if let Some(lost) = self.lost_on_device() {
                return Err(lost);
            }
            self.peers.beat();
            thread::sleep(pause(begun.elapsed()));
        }
        Ok(())
    }

    /// The loss of a rank that a call on the device's stream waits for.
    fn lost_on_device(&self) -> Option<crate::Error> {
        if self.peers.has_device_groups() {
            self.peers.lost()
        } else {
            None
        }
    }

    /// Copies `from` to host bytes, after all that any stream was given.
    ///
    /// # Errors
    /// As [`Executor::complete`].
    pub(super) fn download(&self, from: BufferRange, to: &mut [u8]) -> Result<()> {
        self.lanes().catch_up()?;
        self.download_result(from, to)
    }

    /// As [`Executor::download`], of a range in parts of at most 1 MiB.
    ///
    /// # Errors
    /// As there. The error of `take`.
    pub(super) fn download_parts<E: From<Error>>(
        &self,
        from: BufferRange,
        take: &mut dyn FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut bytes = vec![0; CHUNK_BYTES.min(from.bytes as usize)];
        let mut done = 0;
        while done < from.bytes {
            let end = (done + CHUNK_BYTES as u64).min(from.bytes);
            let chunk = &mut bytes[..(end - done) as usize];
            self.download(storage::part(from, &(done..end), 1), chunk)?;
            take(chunk)?;
            done = end;
        }
        Ok(())
    }

    /// As [`Executor::download`], for what the compute stream alone uses: it need not wait for the
    /// other streams.
    pub(super) fn download_result(&self, from: BufferRange, to: &mut [u8]) -> Result<()> {
        self.complete(Stream(0))?;
        let _busy = self.peers.in_device_call("download");
        let done = self.device.download(from, to, Stream(0));
        self.since_wait.waiting("download", done)
    }
}

/// The pause before the next query, of a wait that has lasted `waited`.
fn pause(waited: Duration) -> Duration {
    let [shortest, longest] = PAUSES;
    (waited / PAUSE_PART).clamp(shortest, longest)
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Buffers are freed after this: nothing may use them any more. What fails here has failed
        // before, or the process ends.
        for &stream in &self.streams {
            let _ = self.device.synchronize(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_soon_after_its_work() {
        let mut now = Duration::ZERO;
        let mut queries = 0;
        while now < Duration::from_secs(30) {
            let pause = pause(now);
            assert!(
                pause <= (now / 16).max(PAUSES[0]),
                "{pause:?} after {now:?}"
            );
            now += pause;
            queries += 1;
        }
        // Every 2 ms of the long part of it.
        assert!(queries < 16_000, "{queries}");
    }
}
