//! A run on candle logs the bytes that its launches copied.

mod launching;

use std::sync::{Arc, Mutex};

use espalier_interface::{LogLevel, Services};
use launching::{OPERANDS, launch, product};

/// Services of one thread that keep what is logged.
#[derive(Default)]
struct Listening(Mutex<Vec<String>>);

impl Services for Listening {
    fn threads(&self) -> usize {
        1
    }

    fn parallel_for(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(body);
    }

    fn log(&self, level: LogLevel, message: &str) {
        assert_eq!(level, LogLevel::INFO);
        self.0.lock().expect("no panic").push(message.to_owned());
    }
}

#[test]
fn the_bytes_that_launches_copied_are_logged_when_the_device_is_closed() {
    let services = Arc::new(Listening::default());
    let device = launching::device(services.clone(), None);
    for _ in 0..3 {
        launch(&*device, &product(), &OPERANDS).expect("a product");
    }
    assert!(services.0.lock().expect("no panic").is_empty());
    drop(device);
    // 3 x (8 + 16) KiB of operands, 3 x 8 KiB of results.
    let expected = "backend `candle` copied 72.00 KiB to tensors and 24.00 KiB from them";
    assert_eq!(*services.0.lock().expect("no panic"), [expected]);
}
