//! The PROXY protocol, versions 1 and 2: who the client is, told by the balancer in front of us.
//!
//! HAProxy's "The PROXY protocol, versions 1 & 2". Strict: a listener that expects the header takes
//! no connection without it, since anybody could otherwise pretend to be anybody.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// "Worst case" of the specification: 107 characters with the line end.
const LINE_BYTES_MAX: usize = 107;
/// Addresses and a few extensions; balancers send certificates of clients at most.
const BLOCK_BYTES_MAX: u16 = 4096;

/// Reads the header; `None` if the balancer speaks for itself (a health check).
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if &start == SIGNATURE {
        read_v2(stream).await
    } else {
        read_v1(stream, &start).await
    }
}

async fn read_v2(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let len = u16::from_be_bytes([head[2], head[3]]);
    if len > BLOCK_BYTES_MAX {
        return Err(invalid("the header is too long"));
    }
    let mut block = vec![0; usize::from(len)];
    stream.read_exact(&mut block).await?;
    parse_v2(head[0], head[1], &block)
}

pub(crate) fn parse_v2(
    version_command: u8,
    family: u8,
    block: &[u8],
) -> io::Result<Option<SocketAddr>> {
    match version_command {
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(invalid("neither LOCAL nor PROXY of version 2")),
    }
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    match (family, block.len()) {
        (0x11, 12..) => {
            let ip: [u8; 4] = block[..4].try_into().map_err(io::Error::other)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port(8))))
        }
        (0x21, 36..) => {
            let ip: [u8; 16] = block[..16].try_into().map_err(io::Error::other)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(ip).into(), port(32))))
        }
        // The balancer could not say, or the client came over a local socket.
        (0x00 | 0x31, _) => Ok(None),
        _ => Err(invalid("not TCP over IPv4 or IPv6")),
    }
}

/// Reads the rest of the line and not a byte more: what follows belongs to somebody else.
async fn read_v1(stream: &mut TcpStream, start: &[u8]) -> io::Result<Option<SocketAddr>> {
    let mut line = start.to_vec();
    if !line.starts_with(b"PROXY ") {
        return Err(invalid("no header"));
    }
    while !line.ends_with(b"\n") {
        let mut ahead = [0; LINE_BYTES_MAX];
        let room = LINE_BYTES_MAX - line.len();
        let seen = stream.peek(&mut ahead[..room]).await?;
        if seen == 0 {
            return Err(invalid("the line is too long or ends early"));
        }
        let end = ahead[..seen].iter().position(|&byte| byte == b'\n');
        let take = end.map_or(seen, |at| at + 1);
        stream.read_exact(&mut ahead[..take]).await?;
        line.extend_from_slice(&ahead[..take]);
    }
    parse_v1(&line)
}

pub(crate) fn parse_v1(line: &[u8]) -> io::Result<Option<SocketAddr>> {
    let malformed = || invalid("the line is malformed");
    let line = line.strip_suffix(b"\r\n").ok_or_else(malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| malformed())?;
    let words: Vec<_> = line.split(' ').collect();
    let (family, source, port) = match words[..] {
        ["PROXY", "UNKNOWN", ..] => return Ok(None),
        ["PROXY", family, source, destination, port, destination_port] => {
            let ip: IpAddr = destination.parse().map_err(|_| malformed())?;
            let sound = destination_port.parse::<u16>().is_ok() && is_family(family, ip);
            sound
                .then_some((family, source, port))
                .ok_or_else(malformed)?
        }
        _ => return Err(malformed()),
    };
    let ip: IpAddr = source.parse().map_err(|_| malformed())?;
    let port: u16 = port.parse().map_err(|_| malformed())?;
    if is_family(family, ip) {
        Ok(Some(SocketAddr::new(ip, port)))
    } else {
        Err(malformed())
    }
}

fn is_family(family: &str, ip: IpAddr) -> bool {
    matches!(
        (family, ip),
        ("TCP4", IpAddr::V4(_)) | ("TCP6", IpAddr::V6(_))
    )
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("PROXY protocol: {message}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(line: &str) -> Option<Option<String>> {
        let parsed = parse_v1(line.as_bytes()).ok()?;
        Some(parsed.map(|addr| addr.to_string()))
    }

    #[test]
    fn lines_name_the_client() {
        let v4 = v1("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n");
        assert_eq!(v4, Some(Some("192.0.2.1:56324".into())));
        let v6 = v1("PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n");
        assert_eq!(v6, Some(Some("[2001:db8::1]:1".into())));
        assert_eq!(v1("PROXY UNKNOWN\r\n"), Some(None));
        assert_eq!(
            v1("PROXY UNKNOWN ffff:: ffff:: 65535 65535\r\n"),
            Some(None)
        );
    }

    #[test]
    fn other_lines_name_nobody() {
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
            "PROXY TCP4 2001:db8::1 198.51.100.1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 443 x\r\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(v1(line), None, "{line:?}");
        }
    }

    #[test]
    fn blocks_name_the_client() {
        let block = [
            192, 0, 2, 1, 198, 51, 100, 1, 0xDC, 0x04, 0x01, 0xBB, 3, 0, 0,
        ];
        let found = parse_v2(0x21, 0x11, &block).unwrap();
        assert_eq!(found, Some("192.0.2.1:56324".parse().unwrap()));
        let mut block = [0; 36];
        (block[15], block[33]) = (1, 9);
        assert_eq!(
            parse_v2(0x21, 0x21, &block).unwrap(),
            Some("[::1]:9".parse().unwrap())
        );
        assert_eq!(parse_v2(0x20, 0x00, &[]).unwrap(), None);
        assert_eq!(parse_v2(0x21, 0x00, &[]).unwrap(), None);
    }

    proptest::proptest! {
        #[test]
        fn fuzz_lines(line in "PROXY (TCP4|TCP6|UNKNOWN|[ -~]{0,6}) ?[0-9a-f:. ]{0,60}(\r\n|\n|)") {
            let _ = parse_v1(line.as_bytes());
        }

        #[test]
        fn fuzz_blocks(version: u8, family: u8, block: Vec<u8>) {
            for (version, family) in [(version, family), (0x21, family), (0x21, 0x11), (0x21, 0x21)] {
                let _ = parse_v2(version, family, &block);
            }
        }

        #[test]
        fn fuzz_clients_are_read_back(ip: IpAddr, port: u16) {
            let family = if ip.is_ipv4() { "TCP4" } else { "TCP6" };
            let line = format!("PROXY {family} {ip} {ip} {port} 443\r\n");
            proptest::prop_assert_eq!(v1(&line), Some(Some(SocketAddr::new(ip, port).to_string())));
        }
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for (version, family, len) in [
            (0x11, 0x11, 12),
            (0x22, 0x11, 12),
            (0x21, 0x11, 11),
            (0x21, 0x21, 35),
            (0x21, 0x12, 12),
        ] {
            assert!(
                parse_v2(version, family, &vec![0; len]).is_err(),
                "{version:x} {family:x} {len}"
            );
        }
    }
}
