//! Bytes copied between the host's buffers and candle's tensors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use espalier_interface::bytes::Bytes;
use espalier_interface::{LogLevel, Services};

/// A count of copied bytes, which is logged when the device is closed.
pub struct Copies {
    services: Arc<dyn Services>,
    to_tensors: AtomicU64,
    from_tensors: AtomicU64,
}

impl Copies {
    /// A count of none.
    pub fn new(services: Arc<dyn Services>) -> Self {
        Copies {
            services,
            to_tensors: AtomicU64::new(0),
            from_tensors: AtomicU64::new(0),
        }
    }

    /// Counts bytes copied to a tensor.
    pub fn to_tensor(&self, bytes: usize) {
        self.to_tensors.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes copied from a tensor.
    pub fn from_tensor(&self, bytes: usize) {
        self.from_tensors.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes copied to tensors, and from them.
    pub fn bytes(&self) -> [u64; 2] {
        [&self.to_tensors, &self.from_tensors].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let [to, from] = self.bytes().map(Bytes);
        let message = format!("backend `candle` copied {to} to tensors and {from} from them");
        self.services.log(LogLevel::INFO, &message);
    }
}
