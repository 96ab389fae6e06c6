//! The trace context of a request: the headers `traceparent` and `tracestate` of the W3C
//! recommendation "Trace Context", level 2.
//!
//! `traceparent` is `00-TRACE-PARENT-FLAGS`: 32, 16 and 2 hexadecimal digits in lower case. A
//! later version is read as far as version 00 goes. What is malformed, or there twice, is as good
//! as none, and `tracestate` goes with it.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderName, HeaderValue};

use crate::message::Fields;

/// The parent of a request, in the trace that it belongs to.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What tracing systems add to it.
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;

/// Members of a `tracestate`, by the recommendation.
const STATE_MEMBERS_MAX: usize = 32;

/// Bytes of a `tracestate` that is passed on. Chosen: many times the 512 that every participant
/// has to take.
const STATE_BYTES_MAX: usize = 8192;

/// The caller recorded this request.
const SAMPLED: u8 = 1;

/// The digits of the trace's id are random.
const RANDOM: u8 = 2;

/// The id of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(NonZeroU128);

impl TraceId {
    /// Zero is no id.
    #[must_use]
    pub fn new(id: u128) -> Option<Self> {
        NonZeroU128::new(id).map(Self)
    }

    /// Its bytes, the most significant first.
    #[must_use]
    pub fn bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId(NonZeroU64);

impl SpanId {
    /// Zero is no id.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(Self)
    }

    /// Its bytes, the most significant first.
    #[must_use]
    pub fn bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a `traceparent` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) trace: TraceId,
    /// The span that a request is sent by.
    pub(crate) span: SpanId,
    flags: u8,
}

impl Context {
    /// A context of a trace that begins or goes on here.
    pub(crate) fn new(trace: TraceId, span: SpanId, parent: Option<Self>, sampled: bool) -> Self {
        // Ids that are made here are random.
        let random = parent.map_or(RANDOM, |parent| parent.flags & RANDOM);
        Self {
            trace,
            span,
            flags: random | if sampled { SAMPLED } else { 0 },
        }
    }

    /// Whether the caller recorded the request.
    pub(crate) fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The one context that a request has; none if it has none, several, or one that is malformed.
    pub(crate) fn of(headers: &Fields) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT);
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// Reads the value of a `traceparent`.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let (head, rest) = value.split_at_checked(PARENT_BYTES)?;
        let dashes = [2, 35, 52].iter().all(|&at| head[at] == b'-');
        let version = hex(&head[..2])?;
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            // A later version may go on behind another dash.
            _ => rest.first().is_none_or(|&byte| byte == b'-'),
        };
        if !(dashes && ends) {
            return None;
        }
        Some(Self {
            trace: TraceId::new(hex(&head[3..35])?)?,
            span: SpanId::new(hex(&head[36..52])? as u64)?,
            flags: hex(&head[53..])? as u8 & (SAMPLED | RANDOM),
        })
    }

    /// Its value as a header, of version 00.
    pub(crate) fn header(self) -> HeaderValue {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], self.trace.0.get());
        write_hex(&mut text[36..52], u128::from(self.span.0.get()));
        write_hex(&mut text[53..], u128::from(self.flags));
        // Digits and dashes are a valid value.
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Whether a request's `tracestate` can be passed on: members of `key=value`, not too many.
pub(crate) fn is_state_valid(headers: &Fields) -> bool {
    let (mut members, mut bytes) = (0, 0);
    for value in headers.get_all(TRACESTATE) {
        bytes += value.len();
        let list = value.as_bytes().split(|&byte| byte == b',');
        for member in list.map(<[u8]>::trim_ascii).filter(|it| !it.is_empty()) {
            members += 1;
            if !is_member(member) {
                return false;
            }
        }
    }
    members <= STATE_MEMBERS_MAX && bytes <= STATE_BYTES_MAX
}

fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|&byte| byte == b'=') else {
        return false;
    };
    let (key, value) = (&member[..equals], &member[equals + 1..]);
    let in_key =
        |&byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let in_value = |&byte: &u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    let begins = key.first().is_some_and(u8::is_ascii_alphanumeric);
    begins
        && key.len() <= 256
        && key.iter().all(in_key)
        && (1..=256).contains(&value.len())
        && value.iter().all(in_value)
}

/// Digits in lower case, as the recommendation wants them.
fn hex(digits: &[u8]) -> Option<u128> {
    let mut number = 0;
    for &digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        number = number << 4 | u128::from(value);
    }
    Some(number)
}

fn write_hex(out: &mut [u8], mut number: u128) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<Context> {
        Context::parse(text.as_bytes())
    }

    #[test]
    fn traceparent_is_read_and_written() {
        let context = parse(USUAL).expect("it is valid");
        assert_eq!(
            context.trace.to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.header(), USUAL);
    }

    #[test]
    fn traceparent_of_a_later_version_is_read_as_far_as_it_is_known() {
        let later = parse(&format!("cc{}", &USUAL[2..]));
        assert_eq!(later, parse(USUAL));
        assert_eq!(parse(&format!("cc{}-more", &USUAL[2..])), later);
        assert_eq!(parse(&format!("cc{}.more", &USUAL[2..])), None);
        assert_eq!(parse(&format!("ff{}", &USUAL[2..])), None);
    }

    #[test]
    fn traceparent_that_is_malformed_is_none() {
        for wrong in [
            "",
            "00",
            &USUAL[..54],
            &format!("{USUAL}-"),
            &format!("{USUAL}0"),
            &USUAL.to_uppercase(),
            &USUAL.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn flags_that_nobody_knows_are_not_passed_on() {
        let odd = parse(&format!("{}ff", &USUAL[..53])).expect("it is valid");
        assert_eq!(odd.header(), format!("{}03", &USUAL[..53]));
    }

    #[test]
    fn tracestate_has_members_of_key_and_value() {
        let state = |values: &[&str]| {
            let fields = values.iter().map(|value| {
                let value = HeaderValue::from_str(value).expect("it is a value");
                (TRACESTATE, value)
            });
            is_state_valid(&fields.collect())
        };
        assert!(state(&[]));
        assert!(state(&[
            "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE",
            "",
            "ot=th:8"
        ]));
        assert!(state(&["tenant@vendor=x"]));
        assert!(!state(&["rojo"]));
        assert!(!state(&["rojo="]));
        assert!(!state(&["Rojo=1"]));
        assert!(!state(&["a=1=2"]));
        let many = |count: usize| vec!["a=1"; count].join(",");
        assert!(state(&[&many(32)]));
        assert!(!state(&[&many(33)]));
    }

    proptest::proptest! {
        /// Whatever comes is read without a panic, and what is read is written as it is read.
        #[test]
        fn fuzz_traceparent(text in "[0-9a-f-]{0,60}|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.?") {
            if let Some(context) = parse(&text) {
                proptest::prop_assert_eq!(Context::parse(context.header().as_bytes()), Some(context));
            }
        }
    }
}
