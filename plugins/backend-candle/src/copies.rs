//! Bytes copied between the host's buffers and candle's tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use espalier_interface::bytes::Bytes;
use espalier_interface::{LogLevel, Services};

/// A count of copied bytes, which is logged when the device is closed.
pub struct Copies {
    services: Arc<dyn Services>,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Copies {
    /// A count of none.
    pub fn new(services: Arc<dyn Services>) -> Self {
        Copies {
            services,
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Counts bytes that were read to a tensor.
    pub fn read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that were written from a tensor.
    pub fn written(&self, bytes: usize) {
        self.written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes copied to tensors, and from them.
    fn bytes(&self) -> [u64; 2] {
        [&self.read_bytes, &self.written_bytes].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let [to, from] = self.bytes().map(Bytes);
        let message = format!("backend `candle` copied {to} to tensors and {from} from them");
        self.services.log(LogLevel::INFO, &message);
    }
}
