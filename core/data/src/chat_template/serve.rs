//! The rendering process: reads a template and conversations from standard input and writes texts
//! to standard output. Limits of memory and time end it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::{fs, process};

use rustix::process::{Resource, Rlimit};

use super::bounds::{self, STACK_BYTES, STEPS};
use super::exchange::{self, Opening, Received, Response};
use super::rendering::{Fault, Rendering};

/// Exit code where a conversation takes too long.
pub(super) const OUT_OF_TIME: i32 = 75;

/// Interval between two checks of a conversation's processor time.
const PAUSE: Duration = Duration::from_millis(100);

/// Renders a template in this process until standard input ends. A limit may end the process.
///
/// # Errors
/// Where standard output cannot be written.
pub fn serve() -> io::Result<()> {
    set(Resource::Core, 0);
    let watch = Arc::new(Watch::default());
    let watched = Arc::clone(&watch);
    let rendering = thread::Builder::new()
        .name("template".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || render_all(&watched))?;
    let mut seen = (0, 0);
    while !rendering.is_finished() {
        thread::park_timeout(PAUSE);
        seen = watch.look(seen);
    }
    rendering.join().expect("it has no panic of its own")
}

/// The state of the current conversation.
#[derive(Default)]
struct Watch {
    /// Its number; even between two conversations.
    number: AtomicU64,
    /// Milliseconds of processor time that it may take.
    millis: AtomicU64,
}

impl Watch {
    fn begin(&self, millis: u64) {
        self.millis.store(millis, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Release);
    }

    fn end(&self) {
        self.number.fetch_add(1, Ordering::Release);
    }

    /// Ends the process where the conversation `seen` earlier, with its start time, takes too long.
    fn look(&self, seen: (u64, u64)) -> (u64, u64) {
        let number = self.number.load(Ordering::Acquire);
        if number.is_multiple_of(2) {
            return (number, 0);
        }
        let now = processor_millis();
        if number != seen.0 {
            return (number, now);
        }
        if now.saturating_sub(seen.1) >= self.millis.load(Ordering::Relaxed) {
            process::exit(OUT_OF_TIME);
        }
        seen
    }
}

fn render_all(watch: &Watch) -> io::Result<()> {
    let mut input = io::stdin().lock();
    // A duplicate of its own, which nothing else writes to or buffers.
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    let Some(opening) = exchange::read::<Opening>(&mut input)? else {
        return Ok(());
    };
    let own_bytes = address_space();
    let mut limited = 0;
    let mut limit = |bytes: u64| {
        if bytes != limited {
            set(Resource::As, own_bytes.saturating_add(bytes));
            limited = bytes;
        }
    };
    limit(bounds::memory_bytes(opening.source.len()));
    watch.begin(bounds::SECS * 1000);
    let opened = Rendering::new(&opening.source, opening.special_tokens);
    watch.end();
    let rendering = match opened {
        Ok(rendering) => rendering,
        Err(fault) => return exchange::write(&mut output, &Err::<(), _>(fault)),
    };
    exchange::write(&mut output, &Ok::<_, Fault>(()))?;
    while let Some(asked) = exchange::read::<Received>(&mut input)? {
        let limits = asked.limits;
        limit(limits.memory_bytes);
        watch.begin(limits.millis);
        let most = limits.text_bytes;
        let response: Response = match limits.steps {
            STEPS => rendering.answers(&asked.conversation, &asked.jobs, most),
            steps => rendering
                .of_steps(steps)
                .answers(&asked.conversation, &asked.jobs, most),
        };
        watch.end();
        exchange::write(&mut output, &response)?;
    }
    Ok(())
}

/// Sets a limit of this process. A limit that may not be set stays as it is.
fn set(resource: Resource, most: u64) {
    let maximum = rustix::process::getrlimit(resource).maximum;
    let current = Some(maximum.map_or(most, |maximum| most.min(maximum)));
    // A lower limit than the hard one is never refused.
    let _ = rustix::process::setrlimit(resource, Rlimit { current, maximum });
}

/// Bytes of address space of this process.
fn address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // Where the system does not say, more than this program uses.
    kib.map_or(4 << 30, |kib| kib << 10)
}

/// Processor time of this process so far.
fn processor_millis() -> u64 {
    let mut text = String::new();
    let read = File::open("/proc/self/stat").and_then(|mut file| file.read_to_string(&mut text));
    // The program's name, in parentheses, may hold spaces. User and system time are the 11th and
    // 12th field after it, in hundredths of a second.
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2);
    match read {
        Ok(_) => ticks.map(|ticks| ticks.parse().unwrap_or(0) * 10).sum(),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_this_process_takes() {
        assert!(address_space() > 1 << 20 && address_space() < 4 << 40);
        let before = processor_millis();
        let mut sum = 0u64;
        while processor_millis() < before + 30 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
