//! Conditions on headers and cookies.
//!
//! They are the client's own word, unless the connection comes from a proxy that is trusted to set
//! them or the operator says that the value is a secret (`believe = "anybody"`). Even then there
//! is doubt when a header is there twice, has a twin that some applications cannot tell from it
//! (`x_plan`), or is nominated by `Connection`, so that no replica will see it.

use http::HeaderName;
use http::header::CONNECTION;

use sfv::{Dictionary, ListEntry, Parser};

use super::super::cookie::cookies;
use super::{Asked, Fit};
use crate::config::{Believe, ClassRule};
use crate::hop::has_token;
use crate::message::Fields;

const PRIORITY: HeaderName = HeaderName::from_static("priority");
/// RFC 9218 section 4.1.
const URGENCY_DEFAULT: u8 = 3;

/// A header or a cookie that has to be there.
#[derive(Debug)]
pub(super) struct FieldCondition {
    place: Place,
    /// `None` is any value.
    value: Option<Box<str>>,
    /// Instead: the least urgent `Priority`.
    urgency: Option<u8>,
    believe: Believe,
}

#[derive(Debug)]
enum Place {
    Header(HeaderName),
    Cookie(Box<str>),
}

/// What was found under a name.
#[derive(Debug, Default)]
struct Found {
    values: u32,
    fitting: u32,
    doubtful: bool,
}

impl FieldCondition {
    /// The conditions of a rule; `None` if a name is none.
    pub(super) fn all_of(rule: &ClassRule) -> Option<Vec<Self>> {
        let condition = |place: Place, value: &String| Self {
            place,
            value: (value != "*").then(|| value.as_str().into()),
            urgency: None,
            believe: rule.believe,
        };
        let headers = rule.headers.iter().map(|(name, value)| {
            let name = name.parse().ok()?;
            Some(condition(Place::Header(name), value))
        });
        let cookies = rule.cookies.iter();
        let cookies = cookies
            .map(|(name, value)| Some(condition(Place::Cookie(name.as_str().into()), value)));
        let urgency = rule.urgency.map(|urgency| {
            Some(Self {
                place: Place::Header(PRIORITY),
                value: None,
                urgency: Some(urgency),
                believe: rule.believe,
            })
        });
        headers.chain(cookies).chain(urgency).collect()
    }

    pub(super) fn fit(&self, asked: &Asked<'_>) -> Fit {
        let mut found = Found::default();
        match &self.place {
            Place::Header(name) => self.look_for_header(name, asked.headers, &mut found),
            Place::Cookie(name) => {
                for value in cookies(asked.headers, name) {
                    self.look_at(value.as_bytes(), &mut found);
                }
            }
        }
        let believed = asked.trusted || self.believe == Believe::Anybody;
        match found {
            Found { fitting: 0, .. } => Fit::No,
            Found {
                values: 1,
                doubtful: false,
                ..
            } if believed => Fit::Yes,
            _ => Fit::Maybe,
        }
    }

    fn look_for_header(&self, name: &HeaderName, headers: &Fields, found: &mut Found) {
        for (other, value) in headers.iter() {
            if other == name {
                self.look_at(value.as_bytes(), found);
            } else if is_twin(other, name) {
                self.look_at(value.as_bytes(), found);
                found.doubtful = true;
            }
        }
        found.doubtful |= found.fitting > 0 && has_token(headers, &CONNECTION, name.as_str());
    }

    fn look_at(&self, value: &[u8], found: &mut Found) {
        let fits = match self.urgency {
            Some(most) => urgency(value).is_some_and(|urgency| urgency <= most),
            None => {
                let same = |wanted: &str| wanted.as_bytes() == value;
                self.value.as_deref().is_none_or(same)
            }
        };
        found.values += 1;
        found.fitting += u32::from(fits);
    }
}

/// The urgency in a `Priority` (RFC 9218 section 4): 3 where `u` is missing or out of range. `None`
/// for what is no dictionary of structured fields.
fn urgency(value: &[u8]) -> Option<u8> {
    let dictionary: Dictionary = Parser::new(value).parse().ok()?;
    let urgency = match dictionary.get("u") {
        Some(ListEntry::Item(item)) => item.bare_item.as_integer(),
        _ => None,
    };
    let urgency = urgency.and_then(|urgency| u8::try_from(i64::from(urgency)).ok());
    Some(
        urgency
            .filter(|&urgency| urgency <= 7)
            .unwrap_or(URGENCY_DEFAULT),
    )
}

/// Whether two different names are the same once `_` is read as `-`.
pub(crate) fn is_twin(one: &HeaderName, other: &HeaderName) -> bool {
    let fold = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (one, other) = (one.as_str().as_bytes(), other.as_str().as_bytes());
    one.len() == other.len() && one.iter().zip(other).all(|(&a, &b)| fold(a) == fold(b))
}
