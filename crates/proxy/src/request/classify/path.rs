//! Which paths a rule is about.

use regex::Regex;

use super::{Fit, Readings};
use crate::config::ClassRule;

/// A pattern of more than this many bytes once compiled is a mistake; the automaton is built at
/// every reload.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// How a path has to be.
#[derive(Debug)]
pub(crate) enum PathPattern {
    /// Segment by segment; `None` is any one segment.
    Segments {
        segments: Vec<Option<Box<str>>>,
        /// Whether nothing may follow.
        whole: bool,
    },
    /// Finite automata: linear in the path's length, whatever it is.
    Regex(Regex),
}

impl PathPattern {
    /// The pattern of a rule, if it has one.
    pub(crate) fn of(rule: &ClassRule) -> Option<Result<Self, String>> {
        match (&rule.path, &rule.path_exact, &rule.path_regex) {
            (Some(begin), _, _) => Some(Ok(Self::prefix(begin))),
            (_, Some(exact), _) => Some(Ok(Self::segments(exact, true))),
            (_, _, Some(regex)) => Some(Self::regex(regex)),
            _ => None,
        }
    }

    /// How a path has to begin.
    pub(crate) fn prefix(begin: &str) -> Self {
        Self::segments(begin.trim_end_matches('/'), false)
    }

    fn segments(pattern: &str, whole: bool) -> Self {
        let segment = |segment: &str| (segment != "*").then(|| segment.into());
        Self::Segments {
            segments: pattern.split('/').skip(1).map(segment).collect(),
            whole,
        }
    }

    fn regex(pattern: &str) -> Result<Self, String> {
        regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
            .size_limit(REGEX_BYTES_MAX)
            .build()
            .map(Self::Regex)
            .map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))
    }

    pub(super) fn fit(&self, path: &Readings<'_>) -> Fit {
        match (
            self.fits(path.written()),
            path.normal().map(|p| self.fits(p)),
        ) {
            (true, None | Some(true)) => Fit::Yes,
            (false, None | Some(false)) => Fit::No,
            _ => Fit::Maybe,
        }
    }

    pub(crate) fn fits(&self, path: &str) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(path),
            Self::Segments { segments, whole } => {
                let Some(path) = path.strip_prefix('/') else {
                    return false;
                };
                let mut found = path.split('/');
                let fits = |wanted: &Option<Box<str>>| match (found.next(), wanted) {
                    (Some(found), Some(wanted)) => found == &**wanted,
                    (Some(found), None) => !found.is_empty(),
                    (None, _) => false,
                };
                segments.iter().all(fits) && !(*whole && found.next().is_some())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_whole_segments() {
        let shop = PathPattern::prefix("/shop/");
        assert!(shop.fits("/shop") && shop.fits("/shop/") && shop.fits("/shop/cart"));
        assert!(!shop.fits("/shopping") && !shop.fits("/") && !shop.fits("*"));
        let all = PathPattern::prefix("/");
        assert!(all.fits("/") && all.fits("/anything") && !all.fits("*"));
    }

    #[test]
    fn a_star_is_one_segment() {
        let orders = PathPattern::prefix("/user/*/orders");
        assert!(orders.fits("/user/7/orders") && orders.fits("/user/7/orders/1"));
        for path in [
            "/user/orders",
            "/user//orders",
            "/user/7/8/orders",
            "/user/7",
        ] {
            assert!(!orders.fits(path), "{path}");
        }
    }

    #[test]
    fn exact_is_exact() {
        let exact = PathPattern::segments("/pay/*", true);
        assert!(exact.fits("/pay/1") && !exact.fits("/pay/1/") && !exact.fits("/pay"));
        assert!(PathPattern::segments("/", true).fits("/"));
        assert!(!PathPattern::segments("/", true).fits("/a"));
    }

    #[test]
    fn an_expression_has_to_fit_the_whole_path() {
        let regex = PathPattern::regex("/v[12]/.*|/old").unwrap();
        assert!(regex.fits("/v1/x") && regex.fits("/old"));
        assert!(!regex.fits("/a/v1/x") && !regex.fits("/older"));
        assert!(
            PathPattern::regex("(")
                .unwrap_err()
                .contains("regular expression")
        );
        assert!(PathPattern::regex(r"\w{1000}{1000}").is_err(), "too large");
    }
}
