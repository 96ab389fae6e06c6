//! Which class a request belongs to: the first rule of the configuration that fits.

use http::{HeaderName, Method, Request};
use tidegate_sentry::ClassId;

use super::canonical::host_without_port;
use crate::config::{ClassRule, Config};

/// The rules, ready to be matched.
#[derive(Debug)]
pub(crate) struct Classifier {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    class: ClassId,
    path: Option<String>,
    methods: Vec<Method>,
    host: Option<String>,
    headers: Vec<(HeaderName, Option<String>)>,
}

impl Classifier {
    /// Rules whose class or names are unknown have been refused before; here they never fit.
    pub(crate) fn new(config: &Config) -> Self {
        let rules = config.classify.iter();
        Self {
            rules: rules.filter_map(|rule| compile(config, rule)).collect(),
        }
    }

    /// The class of a request; `host` is the one it is for.
    pub(crate) fn class<B>(&self, request: &Request<B>, host: &str) -> ClassId {
        let fits = |rule: &&Rule| rule.fits(request, host);
        self.rules
            .iter()
            .find(fits)
            .map_or(ClassId(0), |rule| rule.class)
    }
}

fn compile(config: &Config, rule: &ClassRule) -> Option<Rule> {
    let classes = 0..config.protect.class_count() as u16;
    let class = classes
        .map(ClassId)
        .find(|&class| config.protect.class_name(class) == rule.class)?;
    let methods = rule.methods.iter().map(|method| method.parse().ok());
    let headers = rule.headers.iter().map(|(name, value)| {
        let value = (value != "*").then(|| value.clone());
        name.parse().ok().map(|name| (name, value))
    });
    Some(Rule {
        class,
        path: rule
            .path
            .as_ref()
            .map(|path| path.trim_end_matches('/').to_owned()),
        methods: methods.collect::<Option<_>>()?,
        host: rule.host.as_ref().map(|host| host.to_ascii_lowercase()),
        headers: headers.collect::<Option<_>>()?,
    })
}

impl Rule {
    fn fits<B>(&self, request: &Request<B>, host: &str) -> bool {
        let path = request.uri().path();
        let under = |prefix: &String| {
            path.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let has = |(name, value): &(HeaderName, Option<String>)| {
            let mut values = request.headers().get_all(name).iter();
            values.any(|found| value.as_ref().is_none_or(|value| found == value.as_str()))
        };
        self.path.as_ref().is_none_or(under)
            && (self.methods.is_empty() || self.methods.contains(request.method()))
            && self
                .host
                .as_ref()
                .is_none_or(|wanted| host_without_port(host).eq_ignore_ascii_case(wanted))
            && self.headers.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(method: &str, path: &str, host: &str, header: Option<(&str, &str)>) -> u16 {
        let config = Config::from_text(
            "t.toml",
            r#"
            protect.classes = [{ name = "gold" }, { name = "shop" }, { name = "bulk" }]
            [[classify]]
            class = "gold"
            headers = { x-plan = "gold" }
            [[classify]]
            class = "bulk"
            host = "Batch.example"
            [[classify]]
            class = "shop"
            path = "/shop/"
            methods = ["GET"]
            [[classify]]
            class = "bulk"
            path = "/"
            "#,
        )
        .unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        Classifier::new(&config)
            .class(&request.body(()).unwrap(), host)
            .0
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        assert_eq!(
            class("GET", "/shop/cart?x=1", "a", Some(("x-plan", "gold"))),
            0
        );
        assert_eq!(class("GET", "/shop", "a", None), 1);
        assert_eq!(class("GET", "/shopping", "a", None), 2);
        assert_eq!(class("POST", "/shop/cart", "a", None), 2);
        assert_eq!(class("GET", "/shop", "batch.example:8080", None), 2);
        assert_eq!(class("GET", "/shop", "a", Some(("x-plan", "silver"))), 1);
    }
}
