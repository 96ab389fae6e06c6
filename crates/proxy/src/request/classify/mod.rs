//! Which class a request belongs to: the first rule of the configuration that fits.
//!
//! Whether a rule fits is not always certain: a path may be read in two ways, a header may be there
//! twice, or be nothing but the client's own word. So a condition fits, does not, or may
//! ([`Fit`]), and **doubt never promotes**: a request whose class is in doubt gets the least
//! important class it may have. A client can therefore make its request less important by what it
//! says, never more, except by proof: a signed token or a certificate.
//!
//! What a request asks for (host, path, method) is no claim but decides what the replica does,
//! and is taken as it is.
//!
//! Decision: docs/decisions/0025-classification-never-promotes-in-doubt.md.

mod certificate;
pub(crate) mod field;
mod host;
pub(crate) mod path;
mod reading;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use std::cell::OnceCell;
use std::sync::Arc;

use http::Method;
use tidegate_sentry::ClassId;

use crate::client::identity::Identity;
use crate::config::{ClassRule, Config};
use crate::message::Fields;
use certificate::CertificateCondition;
use field::FieldCondition;
use host::HostPattern;
pub(crate) use path::PathPattern;
pub(crate) use reading::Readings;
use token::{ClaimCondition, Claims, Tokens};

/// Whether a condition holds. Ordered, so that all conditions together fit as well as the worst
/// of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    No,
    /// It can be read that way, or only the client says so.
    Maybe,
    Yes,
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

/// A request as its class is decided on.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    /// Whom it is for; may be empty in HTTP/1.0.
    pub(crate) host: &'a str,
    path: &'a str,
    readings: OnceCell<Readings<'a>>,
    pub(crate) headers: &'a Fields,
    /// Whether it comes from a proxy whose headers are believed.
    pub(crate) trusted: bool,
    pub(crate) identity: Option<&'a Identity>,
    tokens: Option<&'a Tokens>,
    claims: OnceCell<Option<Arc<Claims>>>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(
        method: &'a Method,
        host: &'a str,
        path: &'a str,
        headers: &'a Fields,
    ) -> Self {
        Self {
            method,
            host,
            path,
            readings: OnceCell::new(),
            headers,
            trusted: false,
            identity: None,
            tokens: None,
            claims: OnceCell::new(),
        }
    }

    /// With what is known of the connection.
    pub(crate) fn from(mut self, trusted: bool, identity: Option<&'a Identity>) -> Self {
        self.trusted = trusted;
        self.identity = identity;
        self
    }

    /// With what verifies its token.
    pub(crate) fn verified_by(mut self, tokens: Option<&'a Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// In how many ways its path can be read. Found out when first asked for: where no rule has a
    /// path nobody asks.
    pub(crate) fn path(&self) -> &Readings<'a> {
        self.readings.get_or_init(|| Readings::of(self.path))
    }

    /// What its token proves. Verified when first asked for: most rules need no token.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        let verify = || self.tokens?.claims_of(self.headers);
        self.claims.get_or_init(verify).as_deref()
    }
}

/// The rules, ready to be matched.
#[derive(Debug)]
pub(crate) struct Classifier {
    rules: Vec<Rule>,
    default: ClassId,
}

/// The cheap conditions stand first.
#[derive(Debug)]
struct Rule {
    class: ClassId,
    methods: Vec<Method>,
    host: Option<HostPattern>,
    path: Option<PathPattern>,
    fields: Vec<FieldCondition>,
    certificate: Option<CertificateCondition>,
    claims: Vec<ClaimCondition>,
}

impl Classifier {
    /// Rules whose class or names are unknown have been refused before; here they never fit.
    pub(crate) fn new(config: &Config) -> Self {
        let rules = config.classify.iter();
        Self {
            rules: rules.filter_map(|rule| compile(config, rule)).collect(),
            default: config.default_class_id(),
        }
    }

    /// The class of a request.
    pub(crate) fn class(&self, asked: &Asked<'_>) -> ClassId {
        let mut least = ClassId(0);
        for rule in &self.rules {
            match rule.fit(asked) {
                Fit::No => {}
                Fit::Maybe => least = least.max(rule.class),
                Fit::Yes => return least.max(rule.class),
            }
        }
        least.max(self.default)
    }
}

/// A method by its name, which a file may have in small letters.
pub(crate) fn method(name: &str) -> Option<Method> {
    name.to_ascii_uppercase().parse().ok()
}

fn compile(config: &Config, rule: &ClassRule) -> Option<Rule> {
    let methods = rule.methods.iter().map(|name| method(name));
    Some(Rule {
        class: config.protect.class_id(&rule.class)?,
        methods: methods.collect::<Option<_>>()?,
        host: rule.host.as_deref().map(HostPattern::new),
        path: PathPattern::of(rule).transpose().ok()?,
        fields: FieldCondition::all_of(rule)?,
        certificate: rule.certificate.as_ref().map(CertificateCondition::new),
        claims: rule.claims.iter().map(ClaimCondition::new).collect(),
    })
}

impl Rule {
    fn fit(&self, asked: &Asked<'_>) -> Fit {
        let mut fit = Fit::from(self.methods.is_empty() || self.methods.contains(asked.method));
        fit = also(fit, &self.host, |host| host.fits(asked.host).into());
        fit = also(fit, &self.path, |path| path.fit(asked.path()));
        fit = also(fit, &self.fields, |field| field.fit(asked));
        fit = also(fit, &self.certificate, |wanted| {
            asked
                .identity
                .is_some_and(|found| wanted.fits(found))
                .into()
        });
        also(fit, &self.claims, |claim| {
            asked.claims().is_some_and(|found| claim.fits(found)).into()
        })
    }
}

/// The fit of what fitted so far together with more conditions, which are looked at only as long
/// as it matters.
fn also<'a, C: 'a>(
    so_far: Fit,
    conditions: impl IntoIterator<Item = &'a C>,
    fit: impl Fn(&C) -> Fit,
) -> Fit {
    let mut all = so_far;
    for condition in conditions {
        if all == Fit::No {
            break;
        }
        all = all.min(fit(condition));
    }
    all
}
