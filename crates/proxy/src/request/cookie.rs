//! The cookies of a request.

use http::header::COOKIE;

use crate::message::Fields;

/// The values of a cookie, in all its occurrences.
pub(crate) fn cookies<'a>(
    headers: &'a Fields,
    name: &'a str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    headers
        .get_all(COOKIE)
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(';'))
        .filter_map(|pair| pair.trim_ascii().split_once('='))
        .filter_map(move |(key, value)| (key == name).then_some(value))
}
