//! Peers' configuration files with numbers to fill in.
//!
//! `<<name>>` stands for a word or a number, `<<0.7*name>>` for a multiple of a number. What a file
//! says beside a number is its reason.

use std::collections::BTreeMap;

use crate::failure::Failure;

/// What may stand between `<<` and `>>`.
#[derive(Debug, Default)]
pub(crate) struct Values {
    words: BTreeMap<&'static str, String>,
    numbers: BTreeMap<&'static str, f64>,
}

impl Values {
    pub(crate) fn word(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.words.insert(name, value.into());
        self
    }

    pub(crate) fn number(mut self, name: &'static str, value: f64) -> Self {
        self.numbers.insert(name, value);
        self
    }

    /// The text with every name replaced.
    pub(crate) fn fill(&self, template: &str) -> Result<String, Failure> {
        let mut text = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("<<") {
            let (token, after) = after
                .split_once(">>")
                .ok_or_else(|| Failure::said("a template has `<<` without `>>`"))?;
            text += before;
            text += &self.value(token)?;
            rest = after;
        }
        Ok(text + rest)
    }

    fn value(&self, token: &str) -> Result<String, Failure> {
        let unknown = || Failure::said(format!("a template asks for `{token}`, which is unknown"));
        if let Some(word) = self.words.get(token) {
            return Ok(word.clone());
        }
        let (factor, name) = match token.split_once('*') {
            Some((factor, name)) => (factor.parse::<f64>().map_err(|_| unknown())?, name),
            None => (1.0, token),
        };
        let number = self.numbers.get(name).ok_or_else(unknown)?;
        Ok(written(factor * number))
    }
}

/// Whole numbers from ten on, which is what peers want for counts and milliseconds.
fn written(number: f64) -> String {
    if number >= 10.0 {
        format!("{number:.0}")
    } else {
        let text = format!("{number:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_multiples_are_filled_in() {
        let values = Values::default()
            .word("port", "8080")
            .number("capacity", 300.0)
            .number("target_s", 0.5);
        let text = values
            .fill("listen <<port>>; rate <<0.95*capacity>>; t <<target_s>>s")
            .unwrap();
        assert_eq!(text, "listen 8080; rate 285; t 0.5s");
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = Values::default().fill("x <<2*speed>>").unwrap_err();
        assert!(error.to_string().contains("2*speed"), "{error}");
        assert!(Values::default().fill("x <<port").is_err());
    }
}
