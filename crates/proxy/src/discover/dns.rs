//! Replicas by their name in the DNS: every address of a name (A, AAAA), or every service (SRV).
//!
//! Questions go to the name servers of `/etc/resolv.conf`, by UDP and again by TCP where an answer
//! is cut short. The system's resolver gives neither times to live nor SRV; it is asked where the
//! DNS does not know a name, since `/etc/hosts` may.
//!
//! Decision: docs/decisions/0132-discovery-by-a-small-dns-client.md.

use std::fs;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Found;
use crate::config::{Discover, Origin};
use crate::pool::{Member, MemberState};

/// For one question to one server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Largest answer by UDP that is not cut short (RFC 1035 section 4.2.1); larger ones are tolerated.
const UDP_BYTES_MAX: usize = 4096;

/// Port of name servers.
const PORT: u16 = 53;

/// Most replicas that one name may have.
const RECORDS_MAX: usize = 4096;

/// A record as far as it is of use here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Data {
    Address(IpAddr),
    Service {
        priority: u16,
        weight: u16,
        port: u16,
        target: String,
    },
}

#[derive(Debug, Default)]
struct Answer {
    data: Vec<Data>,
    ttl: Option<u32>,
    /// The name does not exist, or has no records of this kind.
    empty: bool,
}

impl Answer {
    fn add(&mut self, other: Self) {
        self.data.extend(other.data);
        self.ttl = match (self.ttl, other.ttl) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// The replicas that a source names.
pub(super) async fn resolve(source: &Discover) -> Result<Found, String> {
    let system = System::of(source);
    let (members, ttl) = match (&source.dns, &source.srv) {
        (Some(origin), _) => addresses(&system, origin).await?,
        (_, Some(origin)) => services(&system, origin).await?,
        _ => return Err("it names neither `dns`, `srv` nor `file`".to_owned()),
    };
    if members.is_empty() {
        return Err("the name has no addresses".to_owned());
    }
    let ttl = ttl.map(|seconds| Duration::from_secs(seconds.into()));
    Ok(Found { members, ttl })
}

type Members = (Vec<Member>, Option<u32>);

async fn addresses(system: &System, origin: &Origin) -> Result<Members, String> {
    let answer = system.addresses(&origin.host).await?;
    let one = NonZeroU32::MIN;
    let members = ips(&answer).map(|ip| member(origin, ip, origin.port, one));
    Ok((members.collect(), answer.ttl))
}

/// The services of the best priority, each address of a target a replica (RFC 2782).
async fn services(system: &System, origin: &Origin) -> Result<Members, String> {
    let answer = system.ask_all(&origin.host, TYPE::SRV).await?;
    let priority = |data: &Data| match data {
        Data::Service { priority, .. } => Some(*priority),
        Data::Address(_) => None,
    };
    let best = answer.data.iter().filter_map(priority).min();
    let (mut members, mut ttl) = (Vec::new(), answer.ttl);
    for data in answer.data.iter().filter(|data| priority(data) == best) {
        let Data::Service {
            weight,
            port,
            target,
            ..
        } = data
        else {
            continue;
        };
        let found = system.addresses(target).await?;
        ttl = ttl.into_iter().chain(found.ttl).min();
        let weight = NonZeroU32::new((*weight).into()).unwrap_or(NonZeroU32::MIN);
        members.extend(ips(&found).map(|ip| member(origin, ip, *port, weight)));
    }
    Ok((members, ttl))
}

fn ips(answer: &Answer) -> impl Iterator<Item = IpAddr> {
    let address = |data: &Data| match data {
        Data::Address(ip) => Some(*ip),
        Data::Service { .. } => None,
    };
    let mut ips: Vec<_> = answer.data.iter().filter_map(address).collect();
    ips.sort_unstable();
    ips.dedup();
    ips.truncate(RECORDS_MAX);
    ips.into_iter()
}

fn member(origin: &Origin, ip: IpAddr, port: u16, weight: NonZeroU32) -> Member {
    Member {
        url: Origin {
            tls: origin.tls,
            host: ip.to_string(),
            port,
        },
        weight,
        state: MemberState::Active,
    }
}

/// Whom to ask, and under which names.
struct System {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    ndots: usize,
    /// Whether the system's resolver may know what the DNS does not.
    hosts: bool,
}

impl System {
    fn of(source: &Discover) -> Self {
        let text = match source.nameserver {
            Some(_) => String::new(),
            None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
        };
        let conf = resolv_conf::Config::parse(&text).unwrap_or_default();
        let named = conf
            .nameservers
            .iter()
            .map(|ip| SocketAddr::new(ip.into(), PORT));
        Self {
            servers: match source.nameserver {
                Some(server) => vec![*server],
                None => named.collect(),
            },
            search: conf.get_last_search_or_domain().cloned().collect(),
            ndots: conf.ndots as usize,
            hosts: source.nameserver.is_none(),
        }
    }

    /// The names that a name may stand for, in order (resolv.conf(5), `ndots`).
    fn names(&self, name: &str) -> Vec<String> {
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let below = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let mut names: Vec<_> = below.collect();
        let dots = name.matches('.').count();
        let at = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(at, name.to_owned());
        names
    }

    /// Every address of a name.
    async fn addresses(&self, name: &str) -> Result<Answer, String> {
        if let Ok(ip) = name.parse() {
            return Ok(Answer {
                data: vec![Data::Address(ip)],
                ..Answer::default()
            });
        }
        let v4 = self.ask_all(name, TYPE::A).await;
        let v6 = self.ask_all(name, TYPE::AAAA).await;
        let mut answer = match (v4, v6) {
            (Ok(mut v4), Ok(v6)) => {
                v4.add(v6);
                v4
            }
            // Half of an answer would take the other half's replicas away.
            (Err(failure), _) | (_, Err(failure)) if !self.hosts => return Err(failure),
            _ => Answer::default(),
        };
        if answer.data.is_empty() && self.hosts {
            let found = tokio::net::lookup_host((name, 0)).await;
            let found = found.map_err(|error| format!("the name is not found: {error}"))?;
            answer.data = found.map(|address| Data::Address(address.ip())).collect();
        }
        Ok(answer)
    }

    /// The records of the first of a name's readings that has any.
    async fn ask_all(&self, name: &str, kind: TYPE) -> Result<Answer, String> {
        let mut last = Answer::default();
        for name in self.names(name) {
            last = self.ask(&name, kind).await?;
            if !last.empty {
                break;
            }
        }
        Ok(last)
    }

    /// Asks the servers in turn, until one answers.
    async fn ask(&self, name: &str, kind: TYPE) -> Result<Answer, String> {
        let mut failure = "there is no name server; give `nameserver`".to_owned();
        for server in &self.servers {
            match ask(*server, name, kind).await {
                Ok(answer) => return Ok(answer),
                Err(error) => failure = format!("name server {server}: {error}"),
            }
        }
        Err(failure)
    }
}

async fn ask(server: SocketAddr, name: &str, kind: TYPE) -> io::Result<Answer> {
    // A stranger has to guess it, and the port, to be believed.
    let id = RandomState::new().hash_one(name) as u16;
    let question = question(id, name, kind)?;
    let bytes = limited(by_udp(server, &question)).await?;
    match read(id, &bytes)? {
        Some(answer) => Ok(answer),
        None => {
            let bytes = limited(by_tcp(server, &question)).await?;
            read(id, &bytes)?.ok_or_else(|| malformed("cut short by TCP as well"))
        }
    }
}

async fn limited<T>(asking: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
    timeout(TIMEOUT, asking).await.map_err(timed_out)?
}

fn malformed(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn question(id: u16, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let name = Name::new(name).map_err(malformed)?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
    packet
        .questions
        .push(Question::new(name, kind, class, false));
    packet.build_bytes_vec().map_err(malformed)
}

async fn by_udp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut bytes = vec![0; UDP_BYTES_MAX];
    loop {
        let read = socket.recv(&mut bytes).await?;
        // An answer to an earlier question is not ours.
        if bytes[..read].starts_with(&question[..2]) {
            bytes.truncate(read);
            return Ok(bytes);
        }
    }
}

async fn by_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(malformed)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The records of an answer; `None` if it is cut short.
fn read(id: u16, bytes: &[u8]) -> io::Result<Option<Answer>> {
    let packet = Packet::parse(bytes).map_err(malformed)?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err(malformed("it answers something else"));
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(None);
    }
    if !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError) {
        return Err(io::Error::other(format!("it says {:?}", packet.rcode())));
    }
    let mut answer = Answer::default();
    for record in packet.answers.iter().take(RECORDS_MAX) {
        let Some(data) = data(&record.rdata) else {
            continue;
        };
        answer.data.push(data);
        answer.ttl = answer.ttl.into_iter().chain([record.ttl]).min();
    }
    answer.empty = answer.data.is_empty();
    Ok(Some(answer))
}

fn data(rdata: &RData<'_>) -> Option<Data> {
    match rdata {
        RData::A(record) => Some(Data::Address(Ipv4Addr::from(record.address).into())),
        RData::AAAA(record) => Some(Data::Address(Ipv6Addr::from(record.address).into())),
        RData::SRV(record) => Some(Data::Service {
            priority: record.priority,
            weight: record.weight,
            port: record.port,
            target: record.target.to_string(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_searched_first() {
        let system = System {
            servers: Vec::new(),
            search: vec!["ns.svc".to_owned(), "svc".to_owned()],
            ndots: 2,
            hosts: true,
        };
        assert_eq!(system.names("app"), ["app.ns.svc", "app.svc", "app"]);
        assert_eq!(
            system.names("a.b.c"),
            ["a.b.c", "a.b.c.ns.svc", "a.b.c.svc"]
        );
        assert_eq!(system.names("app."), ["app"]);
    }

    #[test]
    fn answers_to_other_questions_are_refused() {
        let question = question(7, "a.example", TYPE::A).unwrap();
        assert!(read(7, &question).is_err(), "a question is no answer");
        let mut reply = Packet::new_reply(8).build_bytes_vec().unwrap();
        assert!(read(7, &reply).is_err(), "another id");
        reply[1] = 7;
        assert!(read(7, &reply).unwrap().unwrap().empty);
        assert!(read(7, b"x").is_err());
    }
}
