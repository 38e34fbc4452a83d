//! A driver without a card: its memory is the host's and is never given to it. Each call is done
//! when it returns, is checked, and is kept for tests.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use espalier_interface::{ErrorCode, PluginError, Result};

use espalier_driver_device::{Driver, Route};

/// A call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Enter(u64),
    Copy(Route, u64),
    Upload(u64),
    Synchronize(u64),
    Record(u64, u64),
    /// Of a stream, for an event.
    Wait(u64, u64),
    Query(u64),
    FreeEvent(u64),
}

/// The memory of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Pinned,
}

/// What the driver knows.
#[derive(Default)]
pub struct Known {
    calls: Vec<Call>,
    /// Bytes and kind of each allocation, by its address.
    live: BTreeMap<usize, (usize, Kind)>,
    streams: u64,
    events: u64,
    /// Bytes that the device has, if there is a bound.
    pub room: Option<usize>,
    /// What the next call that waits or asks is told, once.
    pub failure: Option<&'static str>,
}

/// The driver's knowledge, shared with a test.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Known>>);

impl Watch {
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls since the last time.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.known().calls)
    }

    /// Number of allocations that are not freed.
    pub fn live(&self) -> usize {
        self.known().live.len()
    }

    fn put(&self, call: Call) {
        self.known().calls.push(call);
    }

    /// The failure of earlier work, if there is one.
    fn told(&self) -> Result<()> {
        match self.known().failure.take() {
            None => Ok(()),
            Some(what) => Err(PluginError::new(ErrorCode::DEVICE, what)),
        }
    }
}

/// The driver.
pub struct Separate(pub Watch);

/// An event, which is complete.
pub struct Point {
    number: u64,
    watch: Watch,
}

impl Drop for Point {
    fn drop(&mut self) {
        self.watch.put(Call::FreeEvent(self.number));
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 64).expect("a length of an allocation")
}

impl Separate {
    fn make(&self, bytes: usize, kind: Kind) -> Result<NonNull<u8>> {
        let refused = || PluginError::new(ErrorCode::OUT_OF_MEMORY, "the driver has no room");
        let mut known = self.0.known();
        let room = match kind {
            Kind::Device => known.room,
            Kind::Pinned => None,
        };
        if bytes > room.unwrap_or(1 << 40) {
            return Err(refused());
        }
        // SAFETY: a buffer has its tail, so its length is not 0.
        let made = NonNull::new(unsafe { alloc_zeroed(layout(bytes)) }).ok_or_else(refused)?;
        known.live.insert(made.addr().get(), (bytes, kind));
        Ok(made)
    }

    fn end(&self, address: NonNull<u8>, kind: Kind) {
        let removed = self.0.known().live.remove(&address.addr().get());
        let (bytes, found) = removed.expect("an allocation is freed once");
        assert_eq!(found, kind, "freed as memory of another kind");
        // SAFETY: it was made with this layout, and is freed once.
        unsafe { dealloc(address.as_ptr(), layout(bytes)) };
    }

    /// The kind of memory that holds all of a range; none for memory of the host's.
    fn kind(&self, start: NonNull<u8>, bytes: usize) -> Option<Kind> {
        let (known, start) = (self.0.known(), start.addr().get());
        let (&first, &(len, kind)) = known.live.range(..=start).next_back()?;
        (start + bytes <= first + len).then_some(kind)
    }

    fn check_stream(&self, stream: u64) {
        assert!(
            stream < self.0.known().streams,
            "stream {stream} is not of this driver"
        );
    }
}

impl Driver for Separate {
    type Stream = u64;
    type Event = Point;

    fn alloc(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.make(bytes, Kind::Device)
    }

    unsafe fn free(&self, address: NonNull<u8>) {
        self.end(address, Kind::Device);
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.make(bytes, Kind::Pinned)
    }

    unsafe fn free_pinned(&self, address: NonNull<u8>) {
        self.end(address, Kind::Pinned);
    }

    fn stream(&self) -> Result<u64> {
        let mut known = self.0.known();
        known.streams += 1;
        Ok(known.streams - 1)
    }

    fn enter(&self, stream: &u64) -> Result<()> {
        self.check_stream(*stream);
        self.0.put(Call::Enter(*stream));
        Ok(())
    }

    unsafe fn copy(
        &self,
        [from, to]: [NonNull<u8>; 2],
        bytes: usize,
        route: Route,
        stream: &u64,
    ) -> Result<()> {
        self.check_stream(*stream);
        let on_device = [from, to].map(|start| self.kind(start, bytes) == Some(Kind::Device));
        let expected = match route {
            Route::ToDevice => [false, true],
            Route::ToHost => [true, false],
            Route::Within => [true, true],
        };
        assert_eq!(on_device, expected, "a copy {route:?}");
        self.0.put(Call::Copy(route, *stream));
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), bytes) };
        Ok(())
    }

    unsafe fn upload(&self, from: &[u8], to: NonNull<u8>, stream: &u64) -> Result<()> {
        self.check_stream(*stream);
        assert_eq!(self.kind(to, from.len()), Some(Kind::Device), "an upload");
        self.0.put(Call::Upload(*stream));
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), from.len()) };
        Ok(())
    }

    fn synchronize(&self, stream: &u64) -> Result<()> {
        self.check_stream(*stream);
        self.0.put(Call::Synchronize(*stream));
        self.0.told()
    }

    fn record(&self, stream: &u64) -> Result<Point> {
        self.check_stream(*stream);
        let number = {
            let mut known = self.0.known();
            known.events += 1;
            known.events
        };
        self.0.put(Call::Record(*stream, number));
        Ok(Point {
            number,
            watch: self.0.clone(),
        })
    }

    fn wait(&self, stream: &u64, event: &Point) -> Result<()> {
        self.check_stream(*stream);
        assert!(
            Arc::ptr_eq(&event.watch.0, &self.0.0),
            "an event of another driver"
        );
        self.0.put(Call::Wait(*stream, event.number));
        Ok(())
    }

    fn query(&self, event: &Point) -> Result<bool> {
        self.0.put(Call::Query(event.number));
        self.0.told().map(|()| true)
    }

    fn native_device(&self) -> Option<u32> {
        Some(3)
    }
}
