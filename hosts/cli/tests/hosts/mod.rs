//! Two network namespaces connected by a virtual link -> two hosts on a network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use espalier_samples::allow;

/// Addresses of the hosts.
const ADDRESSES: [&str; 2] = ["10.213.77.1", "10.213.77.2"];

/// Two hosts, which are removed on drop.
pub struct TwoHosts {
    names: [String; 2],
    /// The replacement of ssh by which mpirun starts a program on the other host.
    agent: PathBuf,
}

impl TwoHosts {
    /// Sets them up and writes their files into `folder`.
    ///
    /// # Errors
    /// If namespaces cannot be made, and why.
    pub fn new(folder: &Path) -> Result<Self, String> {
        let number = std::process::id();
        let names = ["a", "b"].map(|host| format!("esp-{host}-{number}"));
        let hosts = TwoHosts {
            agent: folder.join("agent.sh"),
            names,
        };
        let [a, b] = &hosts.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!(
            "link add wire netns {a} type veth peer name wire netns {b}"
        ))?;
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev wire"))?;
            ip(&format!("-n {name} link set wire up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        let start = "shift\nexec ip netns exec";
        let agent = format!("#!/bin/sh\n{start} {b} unshare --uts sh -c \"hostname {b}; $*\"\n");
        fs::write(&hosts.agent, agent).map_err(|error| error.to_string())?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&hosts.agent, executable).map_err(|error| error.to_string())?;
        Ok(hosts)
    }

    /// `command` in a process on each host, mpirun on the first.
    pub fn mpirun(&self, command: &Command) -> Command {
        let [a, _] = &self.names;
        let mut run = Command::new("ip");
        run.args(["netns", "exec", a, "unshare", "--uts"]);
        run.args(["sh", "-c", &format!("hostname {a}; exec \"$@\""), "sh"]);
        let [first, second] = ADDRESSES;
        run.args(["mpirun", "-n", "2"]);
        run.args(["--host", &format!("{first}:1,{second}:1")]);
        run.args(["--mca", "plm_rsh_agent"]).arg(&self.agent);
        for (name, value) in [
            ("btl", "tcp,self"),
            ("btl_tcp_if_include", "wire"),
            ("oob_tcp_if_include", "wire"),
        ] {
            run.args(["--mca", name, value]);
        }
        allow(&mut run);
        run.arg(command.get_program()).args(command.get_args());
        run.current_dir(command.get_current_dir().expect("a folder of its own"));
        for (name, value) in command.get_envs() {
            run.env(name, value.unwrap_or_default());
        }
        run
    }

    /// Bytes that the first host has sent to the second.
    pub fn bytes(&self) -> u64 {
        let [a, _] = &self.names;
        let file = "/sys/class/net/wire/statistics/tx_bytes";
        let read = Command::new("ip")
            .args(["netns", "exec", a, "cat", file])
            .output()
            .expect("it worked before");
        let text = String::from_utf8_lossy(&read.stdout).trim().to_owned();
        text.parse().expect("a number")
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("`ip` (iproute2) does not start: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "ip {words}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}
