//! A request -> a group: its members exchange greetings and agree on the tag of their messages.
#![allow(unsafe_code)] // Messages from and into local arrays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use espalier_interface::{JoinRequest, PluginError, Result, Services};

use crate::group::MpiGroup;
use crate::peer;
use crate::process::{Process, process};
use crate::transfer::{Stopped, Transfer};

/// The tag of greetings.
const TAG: i32 = 1;

/// Bytes of a greeting: a tag, the length of a name, and as much of the name as fits.
const GREETING: usize = 256;

type Greeting = [u8; GREETING];

/// Joins a group of processes.
///
/// # Errors
/// `INVALID` for a request that contradicts MPI's ranks or size; `PEER` where some members did not
/// join in time.
pub fn join(request: &JoinRequest, services: &Arc<dyn Services>) -> Result<MpiGroup> {
    let process = process(services)?;
    check(request, process)?;
    let _turn = process.joining();
    let own = greeting(request, process.next_tag());
    let greetings = greet(request, process, &own)?;
    for (number, found) in request.members.iter().zip(&greetings) {
        if found[4..] != own[4..] {
            let found = name(found);
            let what = format!("process {number} joins `{found}` meanwhile");
            return Err(peer(&request.group, what));
        }
    }
    let tags = greetings.iter().map(tag);
    let tag = tags.max().expect("a group has members");
    process.entered(tag);
    Ok(MpiGroup::new(request, process, tag))
}

fn check(request: &JoinRequest, process: &Process) -> Result<()> {
    let own = request.members.get(request.member as usize);
    if own == Some(&process.rank) && request.size == process.size {
        return Ok(());
    }
    Err(PluginError::invalid(format!(
        "group `{}`: this is process {} of {}, MPI counts it as {} of {}: start all with one mpirun or srun, which \
         numbers them machine by machine",
        request.group,
        own.map_or_else(|| "none".to_owned(), u32::to_string),
        request.size,
        process.rank,
        process.size
    )))
}

/// Exchanges greetings with all members; the answers are in member order.
fn greet(request: &JoinRequest, process: &Process, own: &Greeting) -> Result<Vec<Greeting>> {
    let until = Instant::now() + Duration::from_secs(request.timeout_secs);
    let mut found = vec![*own; request.members.len()];
    let mut transfer = Transfer::new(process, TAG);
    for (&number, found) in request.members.iter().zip(&mut found) {
        if number != process.rank {
            // SAFETY: both arrays outlive the transfer, and only it uses them meanwhile.
            unsafe {
                transfer.receive(number, found.as_mut_ptr(), GREETING);
                transfer.send(number, own.as_ptr(), GREETING);
            }
        }
    }
    match transfer.finish(Some(until)) {
        Ok(()) => Ok(found),
        Err(stopped) => {
            // An exchange that was started here cannot be resumed.
            process.break_off();
            let seconds = request.timeout_secs;
            let members = &request.members;
            Err(peer(
                &request.group,
                match stopped {
                    Stopped::Late => {
                        format!("of processes {members:?} not all came within {seconds} s")
                    }
                    other => other.to_string(),
                },
            ))
        }
    }
}

fn greeting(request: &JoinRequest, tag: i32) -> Greeting {
    let mut greeting = [0; GREETING];
    greeting[..4].copy_from_slice(&tag.to_le_bytes());
    let text = format!("{} of {:?}", request.group, request.members);
    greeting[4..8].copy_from_slice(&(text.len() as u32).to_le_bytes());
    let kept = text.len().min(GREETING - 8);
    greeting[8..8 + kept].copy_from_slice(&text.as_bytes()[..kept]);
    greeting
}

fn tag(greeting: &Greeting) -> i32 {
    i32::from_le_bytes(greeting[..4].try_into().expect("four bytes"))
}

fn name(greeting: &Greeting) -> String {
    let length = u32::from_le_bytes(greeting[4..8].try_into().expect("four bytes")) as usize;
    let kept = &greeting[8..8 + length.min(GREETING - 8)];
    String::from_utf8_lossy(kept).into_owned()
}
