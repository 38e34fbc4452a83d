//! A connection between every two processes, so that each sees at once when another ends.
//!
//! Every process listens on a port of its own and publishes it through an existing collective. Each
//! connects to those before it. Both ends first send a random token of the run; any other client is
//! refused.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use espalier_system::world::World;
use serde::{Deserialize, Serialize};

use super::link::Link;
use super::message::{Inbox, Message};
use crate::Error;
use crate::ranks::lost::{Lost, LostBy};

/// Time for all to be connected.
const MEETING: Duration = Duration::from_secs(30);

/// Time for one address to answer, and for one caller to say who it is.
const ANSWER: Duration = Duration::from_secs(5);

/// Interval between two checks for callers.
const PAUSE: Duration = Duration::from_millis(10);

/// A process's addresses, for the other processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introduction {
    /// The name of its machine.
    pub host: String,
    /// Addresses at which other machines may reach it.
    addresses: Vec<IpAddr>,
    port: u16,
    /// Equal for processes that reach each other over the loopback device.
    loopback: String,
    /// The run's token, where this is the first process.
    token: String,
}

/// A process that others can reach.
pub struct Post {
    listener: TcpListener,
    /// Its addresses.
    pub introduction: Introduction,
}

impl Post {
    /// Listens on all addresses of this machine.
    ///
    /// # Errors
    /// Where the system gives no port, no addresses or no random numbers.
    pub fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        listener.set_nonblocking(true)?;
        let addresses = if_addrs::get_if_addrs()?
            .into_iter()
            .map(|interface| interface.ip());
        let introduction = Introduction {
            host: host_name(),
            addresses: addresses.filter(reaches_far).collect(),
            port: listener.local_addr()?.port(),
            loopback: loopback(),
            token: token()?,
        };
        Ok(Post {
            listener,
            introduction,
        })
    }

    /// The port that it listens on.
    #[cfg(test)]
    pub fn port(&self) -> u16 {
        self.introduction.port
    }

    /// Connects the process of `world` with all that are introduced in `all`, by their numbers;
    /// `now` is the watch's clock.
    ///
    /// # Errors
    /// The first process that cannot be reached, or does not come, in time.
    pub fn meet(&self, world: World, all: &[Introduction], now: u64) -> Result<Vec<Link>, Error> {
        let process = world.process;
        let unreached = |other: u32, error: &io::Error| {
            let rank = other * world.ranks_per_process();
            Error::Peer(unreached((rank, other), &all[other as usize], error))
        };
        let deadline = Instant::now() + MEETING;
        let token = all[0].token.as_str();
        let link = |other: u32, stream: TcpStream| {
            let host = all[other as usize].host.clone();
            let link = Link::new(other, host, stream, now);
            link.map_err(|error| unreached(other, &error))
        };
        let mut links = Vec::new();
        for other in 0..process {
            let there = &all[other as usize];
            let greeting = Greeting {
                process,
                other,
                token,
            };
            let stream = self.call(&greeting, there, deadline);
            links.push(link(
                other,
                stream.map_err(|error| unreached(other, &error))?,
            )?);
        }
        let mut missing: Vec<u32> = (process + 1..all.len() as u32).collect();
        let mut callers = Vec::new();
        while let Some(&next) = missing.first() {
            if Instant::now() > deadline {
                let late = io::Error::new(ErrorKind::TimedOut, "it has not called");
                return Err(unreached(next, &late));
            }
            while let Ok((stream, _)) = self.listener.accept() {
                callers.extend(Caller::new(stream));
            }
            let (known, waiting): (Vec<Caller>, _) = callers
                .into_iter()
                .filter_map(|caller| caller.received(token))
                .partition(|c| c.process.is_some());
            callers = waiting;
            for caller in known {
                let stream = caller.welcome(process, token, &mut missing);
                let stream = stream.map(|(other, stream)| link(other, stream));
                links.extend(stream.transpose()?);
            }
            thread::sleep(PAUSE);
        }
        Ok(links)
    }

    /// Calls another process on each of its addresses in turn.
    fn call(
        &self,
        greeting: &Greeting<'_>,
        there: &Introduction,
        deadline: Instant,
    ) -> io::Result<TcpStream> {
        let near = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let is_near = there.loopback == self.introduction.loopback;
        let addresses = near.iter().filter(|_| is_near).chain(&there.addresses);
        let addresses: Vec<SocketAddr> = addresses.map(|&ip| (ip, there.port).into()).collect();
        let mut last = io::Error::new(ErrorKind::NotFound, "it has no address");
        while Instant::now() < deadline {
            for address in &addresses {
                match greeting.send(address) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            thread::sleep(PAUSE);
        }
        Err(last)
    }
}

/// A client that has connected, and its number once it is known.
struct Caller {
    stream: TcpStream,
    inbox: Inbox,
    since: Instant,
    process: Option<u32>,
}

impl Caller {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Caller {
            stream,
            inbox: Inbox::default(),
            since: Instant::now(),
            process: None,
        })
    }

    /// The same client with what has arrived since. None where it is no process of this run.
    fn received(mut self, token: &str) -> Option<Self> {
        let mut bytes = [0; 256];
        match self.stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => self.inbox.take(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        match self.inbox.next() {
            Ok(Some(Message::Hello {
                token: sent,
                process,
            })) if sent == token => {
                self.process = Some(process);
                Some(self)
            }
            Ok(None) if self.since.elapsed() < ANSWER => Some(self),
            _ => None,
        }
    }

    /// Answers the client, where it is one of `missing` and still waits.
    fn welcome(
        mut self,
        process: u32,
        token: &str,
        missing: &mut Vec<u32>,
    ) -> Option<(u32, TcpStream)> {
        let other = self.process.filter(|other| missing.contains(other))?;
        let waits = self
            .stream
            .peek(&mut [0])
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if !waits || self.stream.write_all(&hello(process, token)).is_err() {
            return None;
        }
        missing.retain(|&process| process != other);
        Some((other, self.stream))
    }
}

/// What a process says first to another one of its run.
struct Greeting<'a> {
    /// The process that calls.
    process: u32,
    /// The process that is called.
    other: u32,
    /// The run's token.
    token: &'a str,
}

impl Greeting<'_> {
    /// Connects to `address`, where the other process is expected.
    fn send(&self, address: &SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(address, ANSWER)?;
        stream.write_all(&hello(self.process, self.token))?;
        let found = received(&mut stream, self.token)?;
        if found == self.other {
            Ok(stream)
        } else {
            Err(strange("another process answers there"))
        }
    }
}

fn hello(process: u32, token: &str) -> Vec<u8> {
    let token = token.to_owned();
    Message::Hello { token, process }.frame()
}

/// The number of the process that greets with `token`. Reads byte by byte, so that nothing after
/// the greeting is consumed.
fn received(stream: &mut TcpStream, token: &str) -> io::Result<u32> {
    let deadline = Instant::now() + ANSWER;
    let mut inbox = Inbox::default();
    let mut byte = [0];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        stream.read_exact(&mut byte)?;
        inbox.take(&byte);
        match inbox.next() {
            Ok(None) if !left.is_zero() => {}
            Ok(Some(Message::Hello {
                token: sent,
                process,
            })) if sent == token => return Ok(process),
            _ => {
                return Err(strange("another program listens at that address"));
            }
        }
    }
}

fn strange(message: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

/// The loss of a process that is `there`, and of its first rank.
fn unreached((rank, process): (u32, u32), there: &Introduction, error: &io::Error) -> Lost {
    let addresses: Vec<String> = there.addresses.iter().map(IpAddr::to_string).collect();
    let at = format!("{} port {}", addresses.join(" or "), there.port);
    Lost {
        process: Some((process, there.host.clone())),
        ..Lost::of(
            rank,
            LostBy::Unreached(format!("it cannot be reached at {at}: {error}")),
        )
    }
}

/// Whether other machines may reach an address: not the loopback device's, nor one of a single
/// link, which needs more than its number.
fn reaches_far(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// What identifies a loopback device: the machine's boot and the network namespace.
fn loopback() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), network.display())
}

/// 16 random bytes in hexadecimal digits.
fn token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
