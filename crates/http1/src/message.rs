//! Requests and responses with their headers in a list.
//!
//! They are what the types of the crate `http` are, but for their headers. A hash map of headers is
//! made for look-ups, and pays for them with a table that is filled, grown and dropped with every
//! message. A proxy looks up few names and passes everything on: a list in the order of arrival
//! does with less (`docs/decisions/0050-headers-in-a-list.md`). The number of headers is bounded by
//! `limits.headers`, so a walk over them is short for every sender.

use std::borrow::Borrow;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};

/// Headers that we add to a request: `x-forwarded-*` and `tidegate-*`. Of a response it is a cookie
/// at most.
const OURS: usize = 6;

/// Headers in the order of their arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(HeaderName, HeaderValue)>);

impl Fields {
    /// No headers.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With room for this many headers of a request, and for what we add on their way.
    #[inline]
    #[must_use]
    pub fn with_room(fields: usize) -> Self {
        Self(Vec::with_capacity(fields + OURS))
    }

    /// With room for this many headers of a response.
    #[inline]
    #[must_use]
    pub fn of_response(fields: usize) -> Self {
        Self(Vec::with_capacity(fields + 1))
    }

    /// Header lines.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no header.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and values in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The name of every header, as often as it is there.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.0.iter().map(|(name, _)| name)
    }

    /// The first value.
    pub fn get(&self, name: impl Borrow<HeaderName>) -> Option<&HeaderValue> {
        let name = name.borrow();
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value)
    }

    /// The values of a header in their order.
    #[inline]
    pub fn get_all<'a>(
        &'a self,
        name: impl Borrow<HeaderName> + 'a,
    ) -> impl Iterator<Item = &'a HeaderValue> {
        let same = move |(other, value): &'a (_, _)| (other == name.borrow()).then_some(value);
        self.0.iter().filter_map(same)
    }

    /// Whether there is such a header.
    pub fn contains(&self, name: impl Borrow<HeaderName>) -> bool {
        self.get(name).is_some()
    }

    /// Adds a value behind those that are there.
    #[inline]
    pub fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.push((name, value));
    }

    /// Sets a value in place of all that are there.
    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        let Some(at) = self.0.iter().position(|(other, _)| *other == name) else {
            return self.append(name, value);
        };
        self.0[at].1 = value;
        let mut index = 0;
        self.0.retain(|(other, _)| {
            index += 1;
            index <= at + 1 || *other != name
        });
    }

    /// Sets a value where there is none.
    pub fn insert_if_absent(&mut self, name: HeaderName, value: impl FnOnce() -> HeaderValue) {
        if !self.contains(&name) {
            self.append(name, value());
        }
    }

    /// Removes all values of a header.
    pub fn remove(&mut self, name: impl Borrow<HeaderName>) {
        let name = name.borrow();
        self.retain(|other| other != name);
    }

    /// Keeps the headers whose names pass.
    pub fn retain(&mut self, mut passes: impl FnMut(&HeaderName) -> bool) {
        self.0.retain(|(name, _)| passes(name));
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for Fields {
    fn from_iter<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl From<HeaderMap> for Fields {
    fn from(map: HeaderMap) -> Self {
        let mut fields = Self::with_room(map.len());
        // A map names a header once and gives all of its values.
        for (name, value) in map {
            let name = name.or_else(|| fields.0.last().map(|(name, _)| name.clone()));
            if let Some(name) = name {
                fields.append(name, value);
            }
        }
        fields
    }
}

impl From<Fields> for HeaderMap {
    fn from(fields: Fields) -> Self {
        let mut map = Self::with_capacity(fields.len());
        for (name, value) in fields.0 {
            map.append(name, value);
        }
        map
    }
}

/// The first value, as a map of headers gives it. It panics where there is none.
impl<N> std::ops::Index<N> for Fields
where
    HeaderName: PartialEq<N>,
{
    type Output = HeaderValue;

    fn index(&self, name: N) -> &HeaderValue {
        let found = self.iter().find(|(other, _)| **other == name);
        found.expect("a header that is there").1
    }
}

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Request<B> {
    /// What is to be done.
    pub method: Method,
    /// With what.
    pub uri: Uri,
    /// The version of HTTP in which it came.
    pub version: Version,
    /// Its headers.
    pub headers: Fields,
    /// Its body.
    pub body: B,
}

impl<B> Request<B> {
    /// The same with another body.
    #[inline]
    pub fn map<C>(self, map: impl FnOnce(B) -> C) -> Request<C> {
        Request {
            method: self.method,
            uri: self.uri,
            version: self.version,
            headers: self.headers,
            body: map(self.body),
        }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            method: parts.method,
            uri: parts.uri,
            version: parts.version,
            headers: parts.headers.into(),
            body,
        }
    }
}

impl<B> From<Request<B>> for http::Request<B> {
    fn from(request: Request<B>) -> Self {
        let mut made = Self::new(request.body);
        *made.method_mut() = request.method;
        *made.uri_mut() = request.uri;
        *made.version_mut() = request.version;
        *made.headers_mut() = request.headers.into();
        made
    }
}

/// A response.
#[derive(Debug, Clone, Default)]
pub struct Response<B> {
    /// What became of the request.
    pub status: StatusCode,
    /// The version of HTTP in which it came.
    pub version: Version,
    /// Its headers.
    pub headers: Fields,
    /// Its body.
    pub body: B,
}

impl<B> Response<B> {
    /// A response in HTTP/1.1 without headers.
    #[inline]
    #[must_use]
    pub fn new(status: StatusCode, body: B) -> Self {
        Self {
            status,
            version: Version::HTTP_11,
            headers: Fields::new(),
            body,
        }
    }

    /// The same with another body.
    #[inline]
    pub fn map<C>(self, map: impl FnOnce(B) -> C) -> Response<C> {
        Response {
            status: self.status,
            version: self.version,
            headers: self.headers,
            body: map(self.body),
        }
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            version: parts.version,
            headers: parts.headers.into(),
            body,
        }
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> Self {
        let mut made = Self::new(response.body);
        *made.status_mut() = response.status;
        *made.version_mut() = response.version;
        *made.headers_mut() = response.headers.into();
        made
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, HOST, VIA};
    use proptest::prelude::*;

    use super::*;

    fn text(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }

    #[test]
    fn value_takes_the_place_of_all() {
        let mut fields = Fields::from_iter([
            (VIA, text("1")),
            (HOST, text("a")),
            (VIA, text("2")),
            (VIA, text("3")),
        ]);
        fields.insert(VIA, text("4"));
        let left: Vec<_> = fields.iter().collect();
        assert_eq!(left, [(&VIA, &text("4")), (&HOST, &text("a"))]);
        fields.insert_if_absent(HOST, || text("b"));
        fields.insert_if_absent(ACCEPT, || text("c"));
        assert_eq!((&fields[HOST], &fields[ACCEPT]), (&text("a"), &text("c")));
    }

    /// An operation on headers, by a few names.
    fn operation() -> impl Strategy<Value = (u8, HeaderName, HeaderValue)> {
        let name = prop_oneof![Just(HOST), Just(VIA), Just(ACCEPT)];
        let value = (0..3_u8).prop_map(|value| HeaderValue::from(u16::from(value)));
        (0..3_u8, name, value)
    }

    proptest! {
        /// A list does what a map does.
        #[test]
        fn list_and_a_map_agree(operations in proptest::collection::vec(operation(), 0..20)) {
            let (mut list, mut map) = (Fields::new(), HeaderMap::new());
            for (kind, name, value) in operations {
                match kind {
                    0 => {
                        list.append(name.clone(), value.clone());
                        map.append(name, value);
                    }
                    1 => {
                        list.insert(name.clone(), value.clone());
                        map.insert(name, value);
                    }
                    _ => {
                        list.remove(&name);
                        map.remove(name);
                    }
                }
                for name in [HOST, VIA, ACCEPT] {
                    prop_assert!(list.get_all(&name).eq(map.get_all(&name)));
                    prop_assert_eq!(list.get(&name), map.get(&name));
                }
                prop_assert_eq!(HeaderMap::from(list.clone()), map.clone());
                prop_assert_eq!(HeaderMap::from(Fields::from(map.clone())), map.clone());
            }
        }
    }
}
