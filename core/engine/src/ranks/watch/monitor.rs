//! The watch's thread. It receives reports of other processes, checks the status of all ranks,
//! reports a loss, and ends the process where a thread does not return.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use espalier_interface::abi::call_site;
use espalier_system::notice;
use espalier_system::stop::Interrupted;

use super::diagnosis;
use super::link::{Link, State};
use super::message::Message;
use super::rank_status::Report;
use super::shared::Shared;
use crate::call_watch::Hung;
use crate::last_word::last_word;
use crate::ranks::NotMet;
use crate::ranks::lost::{Lost, LostBy};
use crate::{Error, call_watch};

/// Longest interval between two checks.
const TICK: Duration = Duration::from_millis(50);

/// Longest interval between two heartbeats to other processes, in milliseconds.
const BEAT_MS: u64 = 250;

/// How long another process has to explain a closed connection, in milliseconds.
const BLAME_WAIT_MS: u64 = 150;

/// How long the ranks have to return their error before the process is ended.
const GRACE: Duration = Duration::from_millis(500);

/// The same where a signal asked the process to end: launchers kill for good a second later.
const SHORT_GRACE: Duration = Duration::from_millis(250);

/// The same where a rank of the only process failed by itself. The others return, and the process
/// can go on without these ranks: another arm of a comparison, or the ranks before a swap.
const LONG_GRACE: Duration = Duration::from_secs(4);

/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_millis(200);

/// The call of a collective that joins a group.
const JOIN: &str = "join";

/// Starts the thread; it ends when the watch is dropped.
pub fn start(shared: Arc<Shared>) -> JoinHandle<()> {
    let mut monitor = Monitor {
        looked: shared.now(),
        beaten: None,
        has_sent_loss: false,
        shared,
    };
    thread::Builder::new()
        .name("watch".into())
        .spawn(move || {
            while monitor.wait() {
                monitor.look();
            }
            monitor.farewell();
        })
        .expect("a process that starts ranks can start one more thread")
}

/// The call in which this process waits for the others to join.
fn joining() -> Option<String> {
    let mut pending = call_site::pending().into_iter();
    let call = pending.find(|one| one.call.callback() == JOIN)?.call;
    let (plugin, file) = (call.site().component(), call.site().file());
    let file = file.map_or_else(|| "linked".to_owned(), |file| file.display().to_string());
    Some(format!("{JOIN} of plugin `{plugin}` ({file})"))
}

struct Monitor {
    shared: Arc<Shared>,
    /// When it looked last, on the watch's clock.
    looked: u64,
    /// When it sent its last heartbeat.
    beaten: Option<u64>,
    /// Whether the others know of the loss.
    has_sent_loss: bool,
}

impl Monitor {
    /// Waits for the next look; false when the watch is over.
    fn wait(&self) -> bool {
        let tick = TICK.min(self.shared.timeout / 8);
        let first = self.shared.first_lost();
        let known = first.lost.is_some();
        let waited = self
            .shared
            .lost_changed
            .wait_timeout_while(first, tick, |first| {
                !first.over && first.lost.is_some() == known
            });
        let (first, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !first.over
    }

    fn look(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = shared.now();
        let timeout = shared.timeout.as_millis() as u64;
        if now - self.looked > timeout / 2 {
            // This process was suspended, perhaps with all others, so nobody counts as silent for
            // that time.
            self.shared.seeing_since(now);
        }
        self.looked = now;
        let mut links = shared.links();
        for link in links.iter_mut() {
            if let Some(lost) = link.receive(now) {
                self.shared.conclude(lost);
            }
        }
        let reports = self.shared.all_reports(&links, now);
        let first = self.shared.first_lost().lost.clone();
        let first = first.or_else(|| {
            let lost = self.lost_process(&links, &reports, now);
            let lost = lost.or_else(|| self.diagnosed(&links, &reports));
            lost.inspect(|lost| self.shared.conclude(lost.clone()))
        });
        self.tell(&mut links, first.as_ref(), now);
        drop(links);
        match first {
            Some(lost) => self.end_if_late(lost),
            None => self.end_if_waiting(),
        }
    }

    /// Ends a process that waits for others to join, where it was asked to stop or has waited too
    /// long.
    fn end_if_waiting(&self) {
        let waiting = !self.shared.met.load(Ordering::SeqCst);
        let Some(say) = last_word().filter(|_| waiting) else {
            return;
        };
        if let Some(signal) = self.shared.stop.requested() {
            say(&Error::Interrupted(Interrupted { signal }));
        }
        let meeting = self.shared.meeting();
        if let Some(meeting) = meeting
            .as_ref()
            .filter(|meeting| meeting.since.elapsed() >= meeting.within)
        {
            say(&Error::NotMet(NotMet {
                secs: meeting.within.as_secs(),
                missing: meeting.gathering.missing(),
                inside: joining(),
            }));
        }
    }

    /// The first process that closed its connection, is silent, or ended too early.
    fn lost_process(&self, links: &[Link], reports: &[Report], now: u64) -> Option<Lost> {
        let timeout = self.shared.timeout.as_millis() as u64;
        let closed = links.iter().filter_map(|link| match link.state {
            State::Closed(at) if now - at >= BLAME_WAIT_MS => Some((at, link)),
            _ => None,
        });
        if let Some((_, link)) = closed.min_by_key(|(at, link)| (*at, link.process)) {
            return Some(self.lost(link, LostBy::Closed, reports));
        }
        let since = self.shared.seen_since();
        let silence = |link: &Link| now - link.received.max(since);
        let open = links.iter().filter(|link| link.state == State::Open);
        if let Some(link) = open
            .max_by_key(|link| silence(link))
            .filter(|link| silence(link) >= timeout)
        {
            return Some(self.lost(link, LostBy::Silent(silence(link) / 1000), reports));
        }
        let over = links.iter().find(|link| link.state == State::Over)?;
        let waits = |report: &Report| report.open.iter().any(|open| open.ms >= timeout);
        let waited_for = self.shared.reports().iter().any(waits);
        waited_for.then(|| self.lost(over, LostBy::Ended, reports))
    }

    /// All ranks of a process that is lost by `cause`.
    fn lost(&self, link: &Link, cause: LostBy, reports: &[Report]) -> Lost {
        let each = self.shared.world.ranks_per_process();
        let rank = link.process * each;
        let last = link.report(rank);
        Lost {
            ranks: each,
            process: Some((link.process, link.host.clone())),
            step: last
                .map_or(0, |report| report.step)
                .max(diagnosis::newest_step(reports)),
            place: last.map(Report::place).unwrap_or_default(),
            waiting: diagnosis::longest_waiting(reports, rank..rank + each),
            ..Lost::of(rank, cause)
        }
    }

    /// The loss that the reports of all ranks show.
    fn diagnosed(&self, links: &[Link], reports: &[Report]) -> Option<Lost> {
        let timeout = self.shared.timeout.as_millis() as u64;
        let lost = diagnosis::diagnose(reports, timeout)?;
        let process = lost.rank / self.shared.world.ranks_per_process();
        let link = links.iter().find(|link| link.process == process);
        Some(Lost {
            process: match link {
                Some(link) => Some((process, link.host.clone())),
                None => self.shared.own_process(),
            },
            ..lost
        })
    }

    /// Sends the status of this process's ranks to the others, and once the loss.
    fn tell(&mut self, links: &mut [Link], lost: Option<&Lost>, now: u64) {
        if let (Some(lost), false) = (lost, self.has_sent_loss) {
            self.has_sent_loss = true;
            let message = Message::Lost(lost.clone());
            links.iter_mut().for_each(|link| link.send(&message));
        }
        let pause = BEAT_MS.min(self.shared.timeout.as_millis() as u64 / 8);
        if self.beaten.is_some_and(|at| now < at + pause) || links.is_empty() {
            return;
        }
        self.beaten = Some(now);
        let beat = Message::Beat(self.shared.reports());
        links.iter_mut().for_each(|link| link.send(&beat));
    }

    /// Ends the process where its ranks did not end it in time.
    fn end_if_late(&self, lost: Lost) {
        let alone = self.shared.world.processes == 1;
        let grace = match (self.shared.stop.requested(), &lost.cause) {
            (Some(_), _) => SHORT_GRACE,
            (None, LostBy::Reported(_)) if alone => LONG_GRACE,
            (None, _) => GRACE,
        };
        let since = self.shared.first_lost().since;
        let late = since.is_some_and(|since| since.elapsed() >= grace);
        if let Some(say) = last_word().filter(|_| late) {
            say(&self.own_cause(lost));
        }
    }

    /// Why this process ends, where one of its ranks hangs: the plugin's call that the others wait
    /// for, or else the hanging rank.
    fn own_cause(&self, lost: Lost) -> Error {
        let world = self.shared.world;
        let own = world.own_ranks().contains(&lost.rank);
        let hangs = own && matches!(lost.cause, LostBy::Hangs(_));
        match call_watch::late().filter(|_| hangs) {
            Some(call) if world.processes > 1 => Error::Hung(Hung {
                call: Box::new(call),
                limited_by: "run.peer_timeout_secs",
            }),
            Some(call) => {
                notice::say(&format!("rank {} is waited for in {call}", lost.rank));
                Error::Peer(lost)
            }
            None => Error::Peer(lost),
        }
    }

    /// Sends the last message of this process and waits until the others have read it.
    fn farewell(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now = shared.now();
        let first = shared.first_lost().lost.clone();
        let mut links = shared.links();
        self.tell(&mut links, first.as_ref(), now);
        for link in links.iter_mut() {
            if first.is_none() {
                link.send(&Message::Bye);
            }
            link.finish();
        }
        let deadline = Instant::now() + FAREWELL;
        links.iter_mut().for_each(|link| link.drain(deadline));
    }
}
