//! Work on a stream -> the moment when the host may read its results, with signs of life meanwhile.

use std::thread;
use std::time::Duration;

use espalier_interface::{BufferRange, Stream};

use super::Executor;
use crate::error::{BackendCall, Result};

/// The first pause between two queries, and the longest: pauses double in between.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(2)];

impl Executor {
    /// Waits until all work on `stream` is done. A device may take longer for it than a rank may be
    /// silent, so the rank shows that it is alive.
    ///
    /// # Errors
    /// `Error::Plugin`: work on the stream or a call to the backend failed. `Error::Peer`: a rank
    /// is lost that a call on the stream waits for.
    pub(super) fn complete(&self, stream: Stream) -> Result<()> {
        let waited = self.wait_for(stream);
        waited.map_err(|error| {
            let lost = self.lost_on_device();
            lost.unwrap_or_else(|| self.reported_late(error))
        })?;
        self.peers.device_calls_done();
        if stream == Stream(0) {
            self.behind.host_waited();
            self.since_wait.done();
        }
        Ok(())
    }

    fn wait_for(&self, stream: Stream) -> Result<()> {
        let event = self.device.record(stream).during("record")?;
        let [mut pause, longest] = PAUSES;
        let waited = loop {
            match self.device.query(event).during("query") {
                Ok(false) => {}
                done => break done,
            }
            if let Some(lost) = self.lost_on_device() {
                break Err(lost);
            }
            self.peers.beat();
            thread::sleep(pause);
            pause = (2 * pause).min(longest);
        };
        waited.and(self.device.free_event(event).during("free_event"))?;
        let _busy = self.peers.in_device_call("synchronize");
        self.device.synchronize(stream).during("synchronize")
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
        self.lanes().catch_up().during("wait")?;
        self.download_result(from, to)
    }

    /// As [`Executor::download`], for what the compute stream alone uses: it need not wait for the
    /// other streams.
    pub(super) fn download_result(&self, from: BufferRange, to: &mut [u8]) -> Result<()> {
        self.complete(Stream(0))?;
        let _busy = self.peers.in_device_call("download");
        let done = self.device.download(from, to, Stream(0));
        let done = done.during("download");
        done.map_err(|error| self.reported_late(error))
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Buffers are freed after this: nothing may use them any more. What fails here has failed
        // before, or the process ends.
        for &stream in &self.streams {
            let _ = self.device.synchronize(stream);
        }
        for &kernel in &self.prepared.all {
            let _ = self.device.release(kernel);
        }
    }
}
