//! Which process listens on an address: its socket by `/proc/net/tcp`, its owner by `/proc/*/fd`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use super::process::Processes;

/// A listening socket, as `/proc/net/tcp` has it.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    addr: SocketAddr,
    inode: u64,
}

/// The process that listens on one of some addresses of this machine; of a master and its workers,
/// the master.
pub(super) fn owner(processes: &Processes, addrs: &[SocketAddr]) -> Option<u32> {
    let links: Vec<String> = sockets(processes)
        .filter(|socket| addrs.iter().any(|&addr| serves(socket.addr, addr)))
        .map(|socket| format!("socket:[{}]", socket.inode))
        .collect();
    if links.is_empty() {
        return None;
    }
    let mut holders = holders(processes, &links);
    holders.sort_unstable();
    let is_child = |pid: u32| {
        let parent = processes.parent(pid);
        parent.is_some_and(|parent| holders.contains(&parent))
    };
    holders.iter().copied().find(|&pid| !is_child(pid))
}

/// Whether a socket gets what is sent to an address.
fn serves(socket: SocketAddr, addr: SocketAddr) -> bool {
    socket.port() == addr.port()
        && (socket.ip() == addr.ip() || (socket.ip().is_unspecified() && is_local(addr.ip())))
}

/// Only an address of this machine can be bound.
fn is_local(ip: IpAddr) -> bool {
    TcpListener::bind((ip, 0)).is_ok()
}

fn sockets(processes: &Processes) -> impl Iterator<Item = Socket> {
    ["net/tcp", "net/tcp6"]
        .map(|file| fs::read_to_string(processes.root().join(file)).unwrap_or_default())
        .into_iter()
        .flat_map(|text| text.lines().filter_map(parse_socket).collect::<Vec<_>>())
}

/// "0: 0100007F:0BB8 00000000:0000 0A ... inode ...", where 0A means that it listens.
fn parse_socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    if *fields.get(3)? != "0A" {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Socket {
        addr: SocketAddr::new(parse_ip(ip)?, port),
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Addresses are printed as 32-bit words of this machine's byte order.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = hex.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let mut bytes = [0; 16];
            bytes.copy_from_slice(words.as_flattened());
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Processes that have one of these sockets open.
fn holders(processes: &Processes, links: &[String]) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(processes.root()) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| holds(processes, pid, links))
        .collect()
}

fn holds(processes: &Processes, pid: u32, links: &[String]) -> bool {
    // Other users' descriptors cannot be read, which is as good as not holding any.
    let entries = fs::read_dir(processes.file(pid, "fd"));
    entries.into_iter().flatten().flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let line = "  0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    0        0 12345 1 0000000000000000 100 0 0 10 0";
        // As a machine with the least significant byte first prints it.
        if cfg!(target_endian = "little") {
            let expected = Socket {
                addr: "127.0.0.1:3000".parse().unwrap(),
                inode: 12345,
            };
            assert_eq!(parse_socket(line), Some(expected));
            let loopback = parse_ip("00000000000000000000000001000000");
            assert_eq!(loopback, Some(Ipv6Addr::LOCALHOST.into()));
        }
        assert_eq!(parse_socket(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(parse_socket("sl local_address rem_address st"), None);
        assert_eq!(parse_ip("0100"), None);
    }

    #[test]
    fn socket_on_all_addresses_serves_those_of_this_machine_only() {
        let any: SocketAddr = "0.0.0.0:80".parse().unwrap();
        assert!(serves(any, "127.0.0.1:80".parse().unwrap()));
        assert!(!serves(any, "127.0.0.1:81".parse().unwrap()));
        // TEST-NET-1 is nobody's (RFC 5737).
        assert!(!serves(any, "192.0.2.1:80".parse().unwrap()));
        let own: SocketAddr = "127.0.0.2:80".parse().unwrap();
        assert!(!serves(own, "127.0.0.1:80".parse().unwrap()));
    }
}
